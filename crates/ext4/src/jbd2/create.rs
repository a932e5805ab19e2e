//! The superblock of a log that has not been written to yet, for making a filesystem and for moving its log.
//!
//! As mke2fs makes it: version 2, no features. The first writer of the log sets those that it uses.

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;
use zerocopy::{FromZeros, IntoBytes};

use super::format::{BlockType, MAGIC, RawSuperblock};
use super::location::{LogLocation, Volume};
use super::superblock::Superblock;

/// The bytes of the log's first block that are not zero: a log of `blocks` blocks, the last of them for fast commits.
pub(crate) fn empty_superblock(
    block_bytes: u32,
    blocks: u32,
    fast_commit_blocks: u32,
    filesystem: [u8; 16],
) -> Vec<u8> {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_header.h_magic.set(MAGIC);
    raw.s_header.h_blocktype.set(BlockType::SUPERBLOCK_V2.0);
    raw.s_blocksize.set(block_bytes);
    raw.s_maxlen.set(blocks);
    raw.s_first.set(1);
    raw.s_sequence.set(1);
    raw.s_uuid = filesystem;
    raw.s_nr_users.set(1);
    raw.s_num_fc_blks.set(fast_commit_blocks);
    raw.as_bytes().to_vec()
}

/// Writes the superblock of a log to where the log is to lie as well, and says there that it is empty. The blocks behind it
/// must be zero.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Io`.
pub(crate) fn copy_as_empty(
    device: &dyn BlockDevice,
    from: &LogLocation,
    to: &LogLocation,
    volume: &Volume,
) -> Result<()> {
    let mut superblock = Superblock::read(device, from, volume)?;
    superblock.make_empty(superblock.sequence().next());
    superblock.write(device, to)
}
