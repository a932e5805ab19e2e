//! Images of containers as sources: OCI layouts, archives of them, and what `docker save` writes.
//!
//! | module      | holds                                                        |
//! | ----------- | ------------------------------------------------------------ |
//! | this one    | opening an image                                             |
//! | `store`     | the image's files: in a directory or in an archive           |
//! | `blob`      | one of them                                                  |
//! | `documents` | indexes, manifests and configs                               |
//! | `layout`    | documents by their digests                                   |
//! | `platform`  | what an image is for                                         |
//! | `select`    | which image of several                                       |
//! | `name`      | how a user names a source                                    |
//! | `docker`    | `manifest.json` of `docker save`                             |
//! | `layer`     | a layer's entries, verified                                  |
//! | `recognise` | whether a directory or a tar is an image                     |
//!
//! Everything within an image is verified by the digest that named it: index, manifest, config, layer, and what is in the
//! layer. Documents are bounded in size, indexes in number and depth. No file outside of the image is opened, and no link
//! in a layout followed.
//!
//! Format: OCI image specification 1.1 (image-layout, image-index, manifest, config, layer).

mod blob;
mod docker;
mod documents;
mod layer;
mod layout;
mod name;
mod platform;
mod recognise;
mod select;
mod store;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::Path;

use self::documents::{Config, Manifest};
use self::layer::{BlobLayer, Unpacked};
use self::layout::Layout;
pub use self::name::split_kind;
pub(crate) use self::name::{As, Name};
pub use self::platform::{NoPlatform, Platform};
pub use self::recognise::is_image_layout;
pub(crate) use self::recognise::{is_image_archive, may_be_image_archive};
use self::select::Wanted;
use self::store::Store;
use crate::layers::{Layer, Layered};
use crate::{Source, SourceError, SourceErrorKind};

/// Which image of those in a source, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// The platform; that of this machine if there are several and none is said.
    pub platform: Option<Platform>,
    /// The tag, or the name with the tag; there may be only one image if none is said.
    pub reference: Option<String>,
    /// Most bytes that may come out of the decompression of a layer.
    pub most_bytes: u64,
}

/// What an archive of images is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// What it is; the layout if it is both.
    Any,
    /// An archive of a layout.
    Oci,
    /// What `docker save` writes.
    Docker,
}

/// The image in the OCI layout at `path`, as one source.
///
/// # Errors
/// There is no such image, or its documents are not in order. What is wrong with a layer comes with the first entry.
pub fn image_in_layout(
    path: &Path,
    shown: &str,
    options: &ImageOptions,
) -> Result<Box<dyn Source>, SourceError> {
    let store = Store::directory(path);
    let store = store.map_err(|error| SourceError::new(shown, SourceErrorKind::Io(error)))?;
    source(Layout::new(shown, store), ArchiveKind::Oci, options)
}

/// The image in an archive that is not compressed, as one source.
///
/// # Errors
/// As for [`image_in_layout`].
pub fn image_in_archive(
    file: File,
    kind: ArchiveKind,
    shown: &str,
    options: &ImageOptions,
) -> Result<Box<dyn Source>, SourceError> {
    source(Layout::new(shown, Store::archive(shown, file)?), kind, options)
}

fn source(
    mut layout: Layout,
    kind: ArchiveKind,
    options: &ImageOptions,
) -> Result<Box<dyn Source>, SourceError> {
    let wanted = Wanted { platform: options.platform.as_ref(), reference: options.reference.as_deref() };
    let is_layout = match kind {
        ArchiveKind::Oci => true,
        ArchiveKind::Docker => false,
        ArchiveKind::Any => layout.has(layout::MARKER)? && layout.has(layout::INDEX)?,
    };
    layout.may_be_files = kind == ArchiveKind::Any && !is_layout && options.reference.is_none();
    let layers =
        if is_layout { layers_of_manifest(&layout, wanted)? } else { docker::layers(&layout, wanted)? };
    let layer = |of| Box::new(BlobLayer::new(layout.clone(), of, options.most_bytes)) as Box<dyn Layer>;
    let layered = Layered::new(layout.shown.clone(), layers.into_iter().map(layer).collect())?;
    Ok(Box::new(layered))
}

/// The layers of the image of a layout that is wanted.
fn layers_of_manifest(layout: &Layout, wanted: Wanted<'_>) -> Result<Vec<Unpacked>, SourceError> {
    layout.check_marker()?;
    let manifest: Manifest = select::manifest(layout, wanted)?;
    if !manifest.config.is_config() {
        let what =
            format!("it is no image of a filesystem: its config is a {}", manifest.config.media_type());
        return Err(SourceError::new(&layout.shown, SourceErrorKind::Unsupported(what)));
    }
    let config: Config = layout.described(&manifest.config)?;
    let failed = |kind| SourceError::new(&layout.shown, kind);
    let diff_ids = config.diff_ids().map_err(failed)?;
    if diff_ids.len() != manifest.layers.len() {
        let what =
            format!("it has {} layers, and its config names {}", manifest.layers.len(), diff_ids.len());
        return Err(failed(SourceErrorKind::Malformed(what)));
    }
    let mut layers = Vec::new();
    for (descriptor, diff_id) in manifest.layers.iter().zip(diff_ids) {
        let digest = descriptor.digest().map_err(failed)?;
        let path = layout::path_of(&digest);
        if !descriptor.is_layer() {
            let what = format!("a layer of the type {} is not supported", descriptor.media_type());
            return Err(layout.failed(&path, SourceErrorKind::Unsupported(what)));
        }
        layers.push(Unpacked { path, digest: Some(digest), size: Some(descriptor.size), diff_id });
    }
    Ok(layers)
}
