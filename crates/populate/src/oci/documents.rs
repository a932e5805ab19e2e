//! The documents of images, as far as they say what to unpack.
//!
//! Format: OCI image specification 1.1 ("Image Index", "Image Manifest", "Image Configuration"), and the same of Docker,
//! which differ in media types only; for `manifest.json` Docker's image specification 1.2, "Combined Image JSON".

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::blob::Blob;
use super::platform::Platform;
use crate::SourceErrorKind;
use crate::verify::Digest;

/// Annotation of a manifest in `index.json`: its tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation of containerd and Docker: the name of the image with its tag.
const IMAGE_NAME: &str = "io.containerd.image.name";
/// Annotation of what BuildKit puts beside images, which is none.
const REFERENCE_TYPE: &str = "vnd.docker.reference.type";

/// Names another document or a layer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    pub(super) size: u64,
    pub(super) platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// What a descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Index,
    Manifest,
    /// Something else, which is passed over in an index.
    Other,
}

impl Descriptor {
    pub(super) fn digest(&self) -> Result<Digest, SourceErrorKind> {
        Digest::parse(&self.digest).map_err(|error| SourceErrorKind::Malformed(error.to_string()))
    }

    pub(super) fn media_type(&self) -> String {
        self.media_type.chars().take(100).flat_map(char::escape_debug).collect()
    }

    pub(super) fn named(&self) -> Named {
        if self.annotations.as_ref().is_some_and(|known| known.contains_key(REFERENCE_TYPE)) {
            return Named::Other;
        }
        match &*self.media_type {
            "application/vnd.oci.image.index.v1+json"
            | "application/vnd.docker.distribution.manifest.list.v2+json" => Named::Index,
            "application/vnd.oci.image.manifest.v1+json"
            | "application/vnd.docker.distribution.manifest.v2+json" => Named::Manifest,
            _ => Named::Other,
        }
    }

    /// Whether it is an image's config.
    pub(super) fn is_config(&self) -> bool {
        matches!(
            &*self.media_type,
            "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json"
        )
    }

    /// Whether it is a tar with changes of files.
    pub(super) fn is_layer(&self) -> bool {
        let of_oci = [
            "application/vnd.oci.image.layer.v1.tar",
            "application/vnd.oci.image.layer.nondistributable.v1.tar",
        ];
        let of_docker = [
            "application/vnd.docker.image.rootfs.diff.tar",
            "application/vnd.docker.image.rootfs.foreign.diff.tar",
        ];
        let has_end = |known: &[&str], ends: &[&str]| {
            known
                .iter()
                .filter_map(|known| self.media_type.strip_prefix(known))
                .any(|end| ends.contains(&end))
        };
        has_end(&of_oci, &["", "+gzip", "+zstd"]) || has_end(&of_docker, &["", ".gzip", ".zstd"])
    }

    /// The names that a user may know it by.
    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        let annotations = self.annotations.iter();
        annotations.flat_map(|known| {
            [REF_NAME, IMAGE_NAME].into_iter().filter_map(|key| known.get(key)).map(String::as_str)
        })
    }
}

/// `index.json`, and indexes that it names.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) manifests: Option<Vec<Descriptor>>,
}

/// What an image of one platform is made of.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// What an image is for, and what its layers are before compression.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(flatten)]
    pub(super) platform: Option<Platform>,
    pub(super) rootfs: Rootfs,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rootfs {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

impl Config {
    /// The digests of the layers before compression.
    pub(super) fn diff_ids(&self) -> Result<Vec<Digest>, SourceErrorKind> {
        let wrong = |error: crate::verify::DigestError| SourceErrorKind::Malformed(error.to_string());
        self.rootfs.diff_ids.iter().flatten().map(|text| Digest::parse(text).map_err(wrong)).collect()
    }
}

/// An image in `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SavedImage {
    pub(super) config: String,
    #[serde(default)]
    pub(super) repo_tags: Option<Vec<String>>,
    #[serde(default)]
    pub(super) layers: Option<Vec<String>>,
}

/// The marker of a layout.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    pub(super) image_layout_version: String,
}

/// Reads a document.
pub(super) fn read<T: DeserializeOwned>(blob: &Blob) -> Result<T, SourceErrorKind> {
    parse(&blob.document()?)
}

/// Reads a document whose digest and size are known.
pub(super) fn read_verified<T: DeserializeOwned>(
    blob: &Blob,
    digest: &Digest,
    size: Option<u64>,
) -> Result<T, SourceErrorKind> {
    if let Some(size) = size.filter(|&size| size != blob.len()) {
        return Err(wrong_size(blob, size));
    }
    let bytes = blob.document()?;
    if !digest.is_of(&bytes) {
        return Err(SourceErrorKind::Malformed("it is not what its digest says".into()));
    }
    parse(&bytes)
}

pub(super) fn wrong_size(blob: &Blob, size: u64) -> SourceErrorKind {
    SourceErrorKind::Malformed(format!("it has {} bytes, and its descriptor says {size}", blob.len()))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SourceErrorKind> {
    serde_json::from_slice(bytes)
        .map_err(|error| SourceErrorKind::Malformed(format!("it is not the JSON it should be: {error}")))
}
