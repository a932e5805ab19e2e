//! Orphans: inodes that a crash must not forget, because they are in use without a name or are being truncated.
//!
//! Source: kernel documentation, sections "Orphan list" and "Orphan file". Two homes: a list that begins in the
//! superblock and goes on in each inode's deletion time, and a file of inode numbers with a checksum a block. An inode
//! is entered under the handle that takes its last name or makes its truncation visible, and leaves under the handle
//! that frees it or ends the truncation, so whatever a crash leaves is found by [recovery](recover).
//!
//! Each in-memory inode records whether it is an orphan, so that query takes no lock. In the file no thread waits for
//! another: threads are distributed over its blocks. When the file is full, the list is used.
//!
//! If an inode has lost its last name during its truncation, it stays an orphan when the truncation ends.
//!
//! Locks: `list` (class `orphan`) for the list's links.

mod change;
mod file;
mod list;
mod orphans;
mod read;
mod recover;
#[cfg(test)]
mod tests;

use crate::checksum::crc32c;
use crate::numbers::FsBlock;
#[cfg(test)]
pub(crate) use change::is_member;
pub(crate) use change::{add, add_to_list, remove};
pub(crate) use orphans::{Membership, Orphans};
pub(crate) use read::{blocks_of, collect};
pub(crate) use recover::{finish_list, recover};

/// Blocks that entering or removing an orphan changes: a block of the file, and the superblock for the first; or a
/// neighbour in the list and the inode's own place in its table.
pub(crate) const CREDITS: u32 = 3;

/// Makes a block of the orphan file without entries; its checksum is missing.
pub(crate) fn make_block(bytes: &mut [u8]) {
    bytes.fill(0);
    if let Some(at) = bytes.len().checked_sub(read::TAIL_BYTES) {
        bytes[at..at + 4].copy_from_slice(&read::TAIL_MAGIC.to_le_bytes());
    }
}

/// Leaves a block of the orphan file without a checksum, as e2fsck wants it where metadata has none.
pub(crate) fn remove_checksum(bytes: &mut [u8]) {
    let end = bytes.len();
    bytes[end - 4..].fill(0);
}

/// Puts the checksum of a block of the orphan file, which lies at `home`, into its end.
pub(crate) fn seal_block(seed: u32, home: FsBlock, bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(read::TAIL_BYTES) else { return };
    let sum = crc32c(crc32c(seed, &home.0.to_le_bytes()), &bytes[..end]);
    bytes[end + 4..].copy_from_slice(&sum.to_le_bytes());
}
