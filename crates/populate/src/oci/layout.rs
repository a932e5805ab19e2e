//! A layout: documents and layers by their digests.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::blob::Blob;
use super::documents::{self, Descriptor, Marker};
use super::store::Store;
use crate::verify::Digest;
use crate::{SourceError, SourceErrorKind};

/// The marker of a layout.
pub(super) const MARKER: &str = "oci-layout";
/// What a layout begins with.
pub(super) const INDEX: &str = "index.json";

/// An image's files, as the user knows them.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) shown: String,
    pub(super) store: Arc<Store>,
    /// That it is an image was seen by a manifest alone, which an archive of files may have too.
    pub(super) may_be_files: bool,
}

impl Layout {
    pub(super) fn new(shown: &str, store: Store) -> Self {
        Self { shown: shown.to_owned(), store: Arc::new(store), may_be_files: false }
    }

    pub(super) fn failed(&self, path: &str, mut kind: SourceErrorKind) -> SourceError {
        if let (true, SourceErrorKind::Malformed(what)) = (self.may_be_files, &mut kind) {
            what.push_str(
                "; put `tar:` in front of the archive's name if it is none of an image, but of files",
            );
        }
        SourceError::new(&self.shown, kind).at_member(path.as_bytes())
    }

    /// A failure of the image as a whole.
    pub(super) fn refused(&self, what: impl Into<String>) -> SourceError {
        SourceError::new(&self.shown, SourceErrorKind::Refused(what.into()))
    }

    /// Whether there is a file at a path.
    pub(super) fn has(&self, path: &str) -> Result<bool, SourceError> {
        let found = self.store.open(path).map_err(|kind| self.failed(path, kind))?;
        Ok(found.is_some())
    }

    /// The file at a path.
    pub(super) fn file(&self, path: &str) -> Result<Blob, SourceError> {
        let found = self.store.open(path).map_err(|kind| self.failed(path, kind))?;
        found.ok_or_else(|| self.failed(path, missing()))
    }

    /// The document at a path.
    pub(super) fn document<T: DeserializeOwned>(&self, path: &str) -> Result<T, SourceError> {
        documents::read(&self.file(path)?).map_err(|kind| self.failed(path, kind))
    }

    /// The document at a path, of this digest.
    pub(super) fn verified<T: DeserializeOwned>(
        &self,
        path: &str,
        digest: &Digest,
        size: Option<u64>,
    ) -> Result<T, SourceError> {
        documents::read_verified(&self.file(path)?, digest, size).map_err(|kind| self.failed(path, kind))
    }

    /// The document that a descriptor names.
    pub(super) fn described<T: DeserializeOwned>(&self, descriptor: &Descriptor) -> Result<T, SourceError> {
        let digest = descriptor.digest().map_err(|kind| SourceError::new(&self.shown, kind))?;
        self.verified(&path_of(&digest), &digest, Some(descriptor.size))
    }

    /// Reads the marker.
    pub(super) fn check_marker(&self) -> Result<(), SourceError> {
        let marker: Marker = self.document(MARKER)?;
        if marker.image_layout_version.starts_with("1.") {
            return Ok(());
        }
        let version: String =
            marker.image_layout_version.chars().take(40).flat_map(char::escape_debug).collect();
        Err(self.failed(
            MARKER,
            SourceErrorKind::Unsupported(format!("the layout's version {version} is not supported")),
        ))
    }
}

pub(super) fn missing() -> SourceErrorKind {
    SourceErrorKind::Malformed("it is missing".into())
}

/// Where a layout has what has a digest.
pub(super) fn path_of(digest: &Digest) -> String {
    let (algorithm, digits) = digest.parts();
    format!("blobs/{algorithm}/{digits}")
}
