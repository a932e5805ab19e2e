//! The superblock of a log that has not been written to yet, for making a filesystem and for moving its log.
//!
//! As mke2fs makes it: version 2, no features. The first writer of the log sets those that it uses.

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;
use zerocopy::{FromZeros, IntoBytes};

use super::format::{BlockType, MAGIC, RawSuperblock};
use super::location::{LogLocation, Volume};
use super::sequence::Sequence;
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

/// Numbers of transactions that a moved log leaves out, so that blocks of older ones are not taken for its own.
const LEFT_OUT: u32 = 1 << 16;

/// Writes the superblock of a log to where it is to lie, and says there that the log is empty.
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
    superblock.make_empty(Sequence(superblock.sequence().0.wrapping_add(LEFT_OUT)));
    superblock.write(device, to)
}
