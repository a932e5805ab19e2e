//! What is on a device already that somebody may miss.
//!
//! First marks of filesystems, volumes, partition tables and common files, for a name; then any byte that is not zero. A
//! device that knows where it holds data, as an image file does, is looked at as a whole, up to the first such byte; any
//! other at its ends.

use std::fmt;
use std::ops::Range;

use undercroft_block::{BlockDevice, NextData};

use super::error::MkfsError;

/// What is on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// Something with a name, and its article: "an XFS filesystem".
    Known(&'static str),
    /// Something else.
    Unknown {
        /// Its first byte that is not zero.
        offset: u64,
    },
}

impl fmt::Display for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(what) => f.write_str(what),
            Self::Unknown { offset } => write!(f, "data that is not known, from byte {offset} on"),
        }
    }
}

/// A mark: where it begins, its bytes, and what it is a mark of.
const MARKS: [(u64, &[u8], &str); 27] = [
    (1024 + 0x38, &[0x53, 0xEF], "an ext2, ext3 or ext4 filesystem"),
    (0, b"XFSB", "an XFS filesystem"),
    (0x1_0040, b"_BHRfS_M", "a btrfs filesystem"),
    (1024, &[0x10, 0x20, 0xF5, 0xF2], "an F2FS filesystem"),
    (0, b"hsqs", "a squashfs filesystem"),
    (1024, &[0xE2, 0xE1, 0xF5, 0xE0], "an EROFS filesystem"),
    (0x8001, b"CD001", "an ISO 9660 filesystem"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (0x36, b"FAT1", "a FAT filesystem"),
    (0x52, b"FAT32", "a FAT filesystem"),
    (4086, b"SWAPSPACE2", "Linux swap space"),
    (0, b"LUKS\xBA\xBE", "a LUKS volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4096, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of an md array"),
    (0, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of an md array"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (257, b"ustar", "a tar archive"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x7fELF", "a program or a library (ELF)"),
    (0, b"\x1f\x8b\x08", "a gzip file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"%PDF-", "a PDF document"),
    (510, &[0x55, 0xAA], "a partition table or boot sector"),
];

/// So much of each end is looked at where a device does not know where it holds data.
const ENDS_BYTES: u64 = 1 << 20;
/// So much is read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What is found first. `progress` is called with how far it has been looked.
pub(super) fn find(
    device: &dyn BlockDevice,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<Present>, MkfsError> {
    if let Some(what) = mark(device)? {
        return Ok(Some(Present::Known(what)));
    }
    Ok(first_byte(device, progress)?.map(|offset| Present::Unknown { offset }))
}

/// What the first mark that is found stands for.
fn mark(device: &dyn BlockDevice) -> Result<Option<&'static str>, MkfsError> {
    const LOOKED_AT: u64 = 0x1_0048;
    let mut bytes = vec![0; device.size_bytes().min(LOOKED_AT) as usize];
    device.read_at(0, &mut bytes)?;
    let found = MARKS.iter().find(|(at, mark, _)| {
        let at = *at as usize;
        bytes.get(at..at + mark.len()).is_some_and(|there| there == *mark)
    });
    Ok(found.map(|(_, _, what)| *what))
}

/// The first byte that is not zero, of those that are looked at.
fn first_byte(device: &dyn BlockDevice, progress: &mut dyn FnMut(u64)) -> Result<Option<u64>, MkfsError> {
    let size = device.size_bytes();
    let mut at = 0;
    while at < size {
        let data = match device.next_data(at)? {
            NextData::Nowhere => return Ok(None),
            NextData::At(range) => range.start.max(at)..range.end.clamp(at + 1, size),
            NextData::Unknown => {
                let front = ENDS_BYTES.min(size);
                let back = size.saturating_sub(ENDS_BYTES).max(front);
                return match first_byte_in(device, 0..front, progress)? {
                    None => first_byte_in(device, back..size, progress),
                    found => Ok(found),
                };
            }
        };
        at = data.end;
        if let Some(found) = first_byte_in(device, data, progress)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn first_byte_in(
    device: &dyn BlockDevice,
    range: Range<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<u64>, MkfsError> {
    static ZEROES: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(CHUNK_BYTES as u64) as usize;
        let chunk = &mut chunk[..len];
        device.read_at(at, chunk)?;
        // Compared as a whole first, which is as fast as memory.
        if *chunk != ZEROES[..len] {
            return Ok(chunk.iter().position(|&byte| byte != 0).map(|index| at + index as u64));
        }
        at += len as u64;
        progress(at);
    }
    Ok(None)
}
