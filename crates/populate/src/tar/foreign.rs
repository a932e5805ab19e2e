//! What a file is that is no tar archive.

use crate::SourceErrorKind;

/// First bytes of what is known by name only.
const KNOWN: [(&[u8], &str); 13] = [
    (b"070701", "a cpio archive"),
    (b"070702", "a cpio archive"),
    (b"070707", "a cpio archive"),
    (b"\xc7\x71", "a cpio archive"),
    (b"\x71\xc7", "a cpio archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"xar!", "a xar archive"),
    (b"!<arch>\n", "an ar archive, as packages of Debian are"),
    (b"\xed\xab\xee\xdb", "a package of RPM"),
    (b"hsqs", "a squashfs image"),
];

/// What is said of a file that begins with these bytes.
pub(super) fn what(first: &[u8]) -> SourceErrorKind {
    match KNOWN.iter().find(|(mark, _)| first.starts_with(mark)) {
        Some((_, name)) => SourceErrorKind::Unsupported(format!("it is {name}, which is not supported")),
        None => SourceErrorKind::Malformed("it is no tar archive".into()),
    }
}

/// What is said of a file that begins with zeroes.
pub(super) fn zeroes() -> SourceErrorKind {
    SourceErrorKind::Malformed("it is not an archive: it begins with zeroes, as images of disks do".into())
}
