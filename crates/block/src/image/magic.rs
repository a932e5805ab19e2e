//! Telling image formats apart by the marks in their first bytes.
//!
//! Sources: the format descriptions in QEMU's documentation, Microsoft's VHD and VHDX specifications, VMware's
//! virtual disk format note, and for the compressed ones their RFCs.

use super::ImageFormat;
use crate::{BlockDevice, Error, FileDevice, OpenError};

/// Bytes of the start of a file that are looked at.
const HEAD_BYTES: usize = 512;

const CONVERT: &str = "convert it first: qemu-img convert -O raw IMAGE RAW-IMAGE";
const DECOMPRESS: &str = "decompress it first";
const UNSPARSE: &str = "convert it first: simg2img IMAGE RAW-IMAGE";

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Format(ImageFormat),
    Unsupported { format: &'static str, advice: &'static str },
}

/// A mark: where it stands, what it is, and what it means.
type Mark = (usize, &'static [u8], &'static str, &'static str);

const UNSUPPORTED: [Mark; 15] = [
    (0, b"KDMV", "a VMDK image", CONVERT),
    (0, b"COWD", "a VMDK image", CONVERT),
    (0, b"# Disk DescriptorFile", "the description of a VMDK image", CONVERT),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image", CONVERT),
    (0, b"vhdxfile", "a VHDX image", CONVERT),
    (0, b"conectix", "a VHD image", CONVERT),
    (0, b"QED\0", "a QED image", CONVERT),
    (0, b"QFI\xfb\0\0\0\x01", "a qcow image of the first version", CONVERT),
    (0, b"WithoutFreeSpace", "a Parallels image", CONVERT),
    (0, b"WithouFreSpacExt", "a Parallels image", CONVERT),
    (0, b"\x3a\xff\x26\xed\x01\0", "an Android sparse image", UNSPARSE),
    (0, b"\x1f\x8b\x08", "compressed with gzip", DECOMPRESS),
    (0, b"\xfd7zXZ\0", "compressed with xz", DECOMPRESS),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstd", DECOMPRESS),
    (0, b"BZh91AY&SY", "compressed with bzip2", DECOMPRESS),
];

/// What a file's first bytes say.
pub(super) fn look(file: &FileDevice) -> Result<Found, OpenError> {
    let mut head = [0; HEAD_BYTES];
    let len = file.size_bytes().min(HEAD_BYTES as u64) as usize;
    file.read_at(0, &mut head[..len]).map_err(|error| OpenError::System {
        action: "read the start of",
        path: file.path().to_owned(),
        source: match error {
            Error::Io { source, .. } => source,
            other => std::io::Error::other(other),
        },
    })?;
    Ok(recognise(&head))
}

/// What the first bytes say; bytes that do not exist are zero.
fn recognise(head: &[u8; HEAD_BYTES]) -> Found {
    if head.starts_with(b"QFI\xfb\0\0\0\x02") || head.starts_with(b"QFI\xfb\0\0\0\x03") {
        return Found::Format(ImageFormat::Qcow2);
    }
    let known = UNSUPPORTED.iter().find(|(at, mark, ..)| head[*at..].starts_with(mark));
    match known {
        Some(&(_, _, format, advice)) => Found::Unsupported { format, advice },
        None => Found::Format(ImageFormat::Raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_where_they_stand_and_nowhere_else() {
        for (at, mark, format, _) in UNSUPPORTED {
            let mut head = [0; HEAD_BYTES];
            head[at..at + mark.len()].copy_from_slice(mark);
            assert!(
                matches!(recognise(&head), Found::Unsupported { format: f, .. } if f == format),
                "{format}"
            );
            head.rotate_right(1);
            assert_eq!(recognise(&head), Found::Format(ImageFormat::Raw));
        }
        assert_eq!(recognise(&[0; HEAD_BYTES]), Found::Format(ImageFormat::Raw));
    }
}
