//! One checksummed structure, and its checksum made right again.

use std::ops::Range;

use crate::checksum::{crc32c, crc32c_around};

/// A structure with a checksum.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name in the format's terms.
    pub structure: &'static str,
    /// Its bytes on the device.
    pub range: Range<u64>,
    pub(super) checksum: Checksum,
}

/// How a structure is checksummed. Offsets are within the structure; `seed` is the value that the CRC starts
/// from.
#[derive(Clone, Debug)]
pub(super) enum Checksum {
    /// None.
    None,
    /// All before `at`, stored as 32 bits at `at`.
    Before { seed: u32, at: usize },
    /// All, with the 32 bits at `at` taken as zero.
    Around { seed: u32, at: usize },
    /// As `Around`, 16 bits wide.
    AroundLow16 { seed: u32, at: usize },
    /// An inode's: two halves, the upper one only where the inode says that it has the field.
    Inode { fs_seed: u32, number: u32 },
    /// A node of a directory's hash tree, whose count and limit lie at `counts`.
    HashTree { seed: u32, counts: usize },
    /// A directory block of entries: all before the last twelve bytes, stored in the last four.
    DirectoryTail { seed: u32 },
    /// A node of an extent tree, whose header says where the checksum lies.
    Extents { seed: u32 },
}

impl Site {
    /// Stores the checksum that `bytes` (the whole structure) should have. Where the damage has left no room
    /// for a checksum, nothing is done.
    pub fn mend(&self, bytes: &mut [u8]) {
        match self.checksum {
            Checksum::None => {}
            Checksum::Before { seed, at } => {
                let sum = crc32c(seed, &bytes[..at]);
                bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            }
            Checksum::Around { seed, at } => {
                let sum = crc32c_around(seed, bytes, at..at + 4);
                bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            }
            Checksum::AroundLow16 { seed, at } => {
                let sum = crc32c_around(seed, bytes, at..at + 2) as u16;
                bytes[at..at + 2].copy_from_slice(&sum.to_le_bytes());
            }
            Checksum::Inode { fs_seed, number } => mend_inode(bytes, fs_seed, number),
            Checksum::HashTree { seed, counts } => mend_hash_tree(bytes, seed, counts),
            Checksum::DirectoryTail { seed } => {
                let (entries, tail) = bytes.split_at_mut(bytes.len() - 12);
                tail[8..].copy_from_slice(&crc32c(seed, entries).to_le_bytes());
            }
            Checksum::Extents { seed } => {
                let at = 12 * (1 + usize::from(u16_at(bytes, 4)));
                if at + 4 <= bytes.len() {
                    let sum = crc32c(seed, &bytes[..at]);
                    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
                }
            }
        }
    }
}

fn mend_inode(bytes: &mut [u8], fs_seed: u32, number: u32) {
    const GENERATION: Range<usize> = 0x64..0x68;
    const LOW: usize = 0x7C;
    const EXTRA_SIZE: usize = 0x80;
    const HIGH: usize = 0x82;
    let seed = crc32c(crc32c(fs_seed, &number.to_le_bytes()), &bytes[GENERATION]);
    let has_high = bytes.len() > EXTRA_SIZE && u16_at(bytes, EXTRA_SIZE) >= 4;
    let mut sum = crc32c_around(seed, &bytes[..EXTRA_SIZE], LOW..LOW + 2);
    if has_high {
        sum = crc32c_around(sum, &bytes[EXTRA_SIZE..], HIGH - EXTRA_SIZE..HIGH - EXTRA_SIZE + 2);
        bytes[HIGH..HIGH + 2].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
    } else {
        sum = crc32c(sum, &bytes[EXTRA_SIZE..]);
    }
    bytes[LOW..LOW + 2].copy_from_slice(&(sum as u16).to_le_bytes());
}

fn mend_hash_tree(bytes: &mut [u8], seed: u32, counts: usize) {
    let (limit, count) = (usize::from(u16_at(bytes, counts)), usize::from(u16_at(bytes, counts + 2)));
    let (tail, covered) = (counts + limit * 8, counts + count * 8);
    if tail + 8 > bytes.len() || covered > bytes.len() {
        return;
    }
    let sum = crc32c(seed, &bytes[..covered]);
    let sum = crc32c(crc32c(sum, &bytes[tail..tail + 4]), &[0; 4]);
    bytes[tail + 4..tail + 8].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
