//! The superblock of a log that has not been written to yet, for making a filesystem.
//!
//! As mke2fs makes it: version 2, no features. The first writer of the log sets those that it uses.

use zerocopy::{FromZeros, IntoBytes};

use super::format::{BlockType, MAGIC, RawSuperblock};

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
