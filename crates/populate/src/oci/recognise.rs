//! Whether a directory or a tar is an image: by what is in it, and never by its name.

use std::path::Path;

use super::blob::DOCUMENT_MAX_BYTES;
use super::docker::MANIFEST;
use super::documents::SavedImage;
use super::layout::{INDEX, MARKER};
use crate::archive::once;
use crate::tar::TarSource;
use crate::{Entry, EntryKind, EntryPath, OpenArchive, Source, SourceError, failure};

/// Whether a directory is an OCI layout.
#[must_use]
pub fn is_image_layout(path: &Path) -> bool {
    path.join(MARKER).is_file() && path.join(INDEX).is_file()
}

/// What the members of a tar say about whether it is an archive of images.
#[derive(Default)]
struct Look {
    /// The marker of a layout or the manifest of `docker save` is there.
    is_marked: bool,
    /// The manifest names layers.
    names_layers: bool,
    /// There are members that archives of images do not have.
    has_others: bool,
}

/// Whether a tar is an archive of images: it has the marker of a layout or the manifest of `docker save`, and nothing but
/// what such archives have; or a manifest that names layers, whatever their names are. A tar is looked at as far as its
/// members may be documents and layers: of most others, little more than the first member is read.
pub(crate) fn is_image_archive(shown: &str, open: &OpenArchive) -> Result<bool, SourceError> {
    let mut look = Look::default();
    look.at(shown, open)?;
    Ok(look.is_image())
}

/// Whether a stream of which this is the beginning may be an archive of images. What has other members before it is cut
/// off is taken for none: it may be large, and would have to be kept.
pub(crate) fn may_be_image_archive(shown: &str, begin: &OpenArchive) -> bool {
    let mut look = Look::default();
    match look.at(shown, begin) {
        Ok(()) => look.is_image(),
        Err(_) => !look.has_others,
    }
}

impl Look {
    fn is_image(&self) -> bool {
        self.names_layers || self.is_marked && !self.has_others
    }

    fn at(&mut self, shown: &str, open: &OpenArchive) -> Result<(), SourceError> {
        let archive = open().map_err(|error| SourceError::new(shown, failure(error)))?;
        let mut source = TarSource::new(shown, once(archive));
        while let Some(entry) = source.next_entry()? {
            let is_manifest = entry.path.as_bytes() == MANIFEST.as_bytes();
            self.is_marked |= is_manifest || entry.path.as_bytes() == MARKER.as_bytes();
            self.names_layers |= is_manifest && names_layers(&mut source, &entry)?;
            self.has_others |= !is_of_image(&entry.path);
            if self.names_layers || self.has_others && !is_manifest && !may_be_saved(&entry) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether a member is a manifest of `docker save`: a list of images with layers.
fn names_layers(source: &mut TarSource, entry: &Entry) -> Result<bool, SourceError> {
    let EntryKind::Regular(content) = &entry.kind else { return Ok(false) };
    if content.size_bytes > DOCUMENT_MAX_BYTES {
        return Ok(false);
    }
    let mut document = vec![0; content.size_bytes as usize];
    let mut buf = [0; 4096];
    while let Some(piece) = source.read_content(&mut buf)? {
        let at = piece.offset as usize;
        if let Some(place) = document.get_mut(at..at + piece.len) {
            place.copy_from_slice(&buf[..piece.len]);
        }
    }
    let images: Option<Vec<SavedImage>> = serde_json::from_slice(&document).ok();
    Ok(images.is_some_and(|images| !images.is_empty() && images.iter().all(|image| image.layers.is_some())))
}

/// Whether a member may lie before the manifest in what was made by hand as `docker save` makes it: a directory at the top,
/// or below at most one a layer, a document, or a link that stands for a layer.
fn may_be_saved(entry: &Entry) -> bool {
    let depth = entry.path.names().count();
    let name = entry.path.names().last().unwrap_or_default();
    match entry.kind {
        EntryKind::Directory => depth <= 1,
        EntryKind::Regular(_) | EntryKind::Symlink(_) | EntryKind::HardLink(_) => {
            let ends: [&[u8]; 8] =
                [b".json", b".tar", b".tar.gz", b".tgz", b".tar.zst", b".tar.xz", b".tar.bz2", b".layer"];
            let known: [&[u8]; 4] = [b"json", b"VERSION", b"layer", b"config"];
            depth <= 2 && (known.contains(&name) || ends.iter().any(|end| name.ends_with(end)))
        }
        _ => false,
    }
}

/// Whether a path is one that archives of images have.
fn is_of_image(path: &EntryPath) -> bool {
    let Some(top) = path.names().next() else { return true };
    let is_alone = top == path.as_bytes();
    if is_alone && [MARKER, INDEX, MANIFEST, "repositories"].iter().any(|known| known.as_bytes() == top) {
        return true;
    }
    if top == b"blobs" {
        return true;
    }
    // Layers and configs of docker save.
    let digits = top.strip_prefix(b"sha256:").unwrap_or(top);
    let (digits, end) = digits.split_at_checked(64).unwrap_or((b"", digits));
    !digits.is_empty()
        && digits.iter().all(u8::is_ascii_hexdigit)
        && (end.is_empty() || end.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_members_are_known_by_their_names() {
        let digits = "0123456789abcdef".repeat(4);
        let known =
            ["", "oci-layout", "index.json", "manifest.json", "repositories", "blobs", "blobs/sha256/x"];
        let known = known.map(str::to_owned).into_iter();
        let of_docker = ["", "/layer.tar", ".json", ".tar", ".tar.gz"].map(|end| format!("{digits}{end}"));
        for path in known.chain(of_docker).chain([format!("sha256:{digits}")]) {
            assert!(is_of_image(&EntryPath::new(path.as_bytes()).unwrap()), "{path}");
        }
        for path in ["etc", "bin/sh", "index.json/x", "0123.json", &digits[..63], &format!("{digits}x")] {
            assert!(!is_of_image(&EntryPath::new(path.as_bytes()).unwrap()), "{path}");
        }
    }
}
