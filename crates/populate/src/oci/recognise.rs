//! Whether a directory or a tar is an image: by what is in it, and never by its name.

use std::path::Path;

use super::docker::MANIFEST;
use super::layout::{INDEX, MARKER};
use crate::archive::once;
use crate::tar::TarSource;
use crate::{EntryPath, OpenArchive, Source, SourceError, failure};

/// Whether a directory is an OCI layout.
#[must_use]
pub fn is_image_layout(path: &Path) -> bool {
    path.join(MARKER).is_file() && path.join(INDEX).is_file()
}

/// Whether a tar is an archive of images: it has the marker of a layout or the manifest of `docker save`, and nothing but
/// what such archives have. Of any other tar little more than the first member is read.
pub(crate) fn is_image_archive(shown: &str, open: &OpenArchive) -> Result<bool, SourceError> {
    let archive = open().map_err(|error| SourceError::new(shown, failure(error)))?;
    let mut source = TarSource::new(shown, once(archive));
    let mut is_marked = false;
    while let Some(entry) = source.next_entry()? {
        if !is_of_image(&entry.path) {
            return Ok(false);
        }
        is_marked |= [MARKER.as_bytes(), MANIFEST.as_bytes()].contains(&entry.path.as_bytes());
    }
    Ok(is_marked)
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
