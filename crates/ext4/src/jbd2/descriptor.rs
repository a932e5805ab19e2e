//! Descriptor blocks: the list of where the copied blocks that follow belong.

use undercroft_vfs::Result;
use zerocopy::FromBytes;

use super::features::{Checksums, Incompat};
use super::format::{
    RawHeader, RawTag, RawTag3, TAG_ESCAPED, TAG_LAST, TAG_SAME_UUID, TAG_UUID_BYTES, TAIL_BYTES, word,
};
use super::location::LogBlock;
use super::sequence::Sequence;
use super::superblock::Superblock;
use crate::checksum::{crc32c, crc32c_around};
use crate::error::corrupt;
use crate::numbers::FsBlock;

/// One copied block that a descriptor announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// Where the block belongs.
    pub(super) home: FsBlock,
    /// The block began with jbd2's magic, and the copy begins with zeroes instead.
    pub(super) escaped: bool,
    /// CRC-32C of transaction number and copy, as far as the tag keeps it; 0 without such checksums.
    pub(super) checksum: u32,
}

/// A copied block of a committed transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedBlock {
    pub(super) tag: Tag,
    /// Where the copy lies.
    pub(super) log: LogBlock,
    pub(super) sequence: Sequence,
}

impl LoggedBlock {
    /// Compares the copy with its tag's checksum, where there is one.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn check(&self, superblock: &Superblock, copy: &[u8]) -> Result<()> {
        if !superblock.checksums.per_block() {
            return Ok(());
        }
        let seed = crc32c(superblock.checksum_seed, &self.sequence.0.to_be_bytes());
        let full = crc32c(seed, copy);
        let computed = if superblock.checksums == Checksums::V3 { full } else { full & 0xffff };
        if computed == self.tag.checksum {
            return Ok(());
        }
        Err(corrupt(
            "journal",
            format!(
                "the copy of block {} that transaction {} left in log block {} has checksum {computed:#x}, its \
                 tag says {:#x}; let e2fsck recover what it can",
                self.tag.home, self.sequence, self.log, self.tag.checksum
            ),
        ))
    }
}

/// Whether a descriptor or revoke block's own checksum is right; true where there are none.
pub(super) fn tail_is_right(superblock: &Superblock, block: &[u8]) -> bool {
    if !superblock.checksums.per_block() {
        return true;
    }
    let tail = block.len() - TAIL_BYTES;
    crc32c_around(superblock.checksum_seed, block, tail..block.len()) == word(block, tail)
}

/// Bytes of a descriptor or revoke block that come before its checksum.
pub(super) fn bytes_before_tail(superblock: &Superblock) -> usize {
    let tail = if superblock.checksums.per_block() { TAIL_BYTES } else { 0 };
    superblock.block_bytes as usize - tail
}

/// The tags of a descriptor block, in the order of the copies that follow it.
///
/// Ends after the tag that says it is the last, or where no further tag fits.
pub(super) fn tags<'a>(superblock: &'a Superblock, block: &'a [u8]) -> impl Iterator<Item = Tag> + 'a {
    let wide = superblock.has(Incompat::SIXTY_FOUR_BIT);
    // Checksum version 2 was meant to lengthen tags by 16 bits. The field went into the old padding instead,
    // but the two bytes stayed in the length; readers and writers agree on it since.
    let narrow_or_wide = size_of::<RawTag>() - if wide { 0 } else { 4 };
    let tag_bytes = match superblock.checksums {
        Checksums::V3 => size_of::<RawTag3>(),
        Checksums::V2 => narrow_or_wide + 2,
        Checksums::None | Checksums::V1 => narrow_or_wide,
    };
    let end = bytes_before_tail(superblock);
    let mut at = size_of::<RawHeader>();
    let mut last = false;
    std::iter::from_fn(move || {
        if last || at + tag_bytes > end {
            return None;
        }
        let (tag, flags) = read_tag(superblock.checksums, wide, &block[at..at + tag_bytes]);
        at += tag_bytes + if flags & TAG_SAME_UUID == 0 { TAG_UUID_BYTES } else { 0 };
        last = flags & TAG_LAST != 0;
        Some(tag)
    })
}

fn read_tag(checksums: Checksums, wide: bool, bytes: &[u8]) -> (Tag, u32) {
    let (low, high, flags, checksum) = if checksums == Checksums::V3 {
        let tag = RawTag3::read_from_bytes(bytes).expect("a tag of version 3 has 16 bytes");
        (tag.t_blocknr.get(), tag.t_blocknr_high.get(), tag.t_flags.get(), tag.t_checksum.get())
    } else {
        // Narrow tags lack the last field, so it reads as zero; tags of version 2 may have bytes beyond.
        let mut whole = [0; size_of::<RawTag>()];
        let used = bytes.len().min(if wide { whole.len() } else { whole.len() - 4 });
        whole[..used].copy_from_slice(&bytes[..used]);
        let tag = RawTag::read_from_bytes(&whole).expect("the size is the structure's");
        let checksum = if checksums == Checksums::V2 { u32::from(tag.t_checksum.get()) } else { 0 };
        (tag.t_blocknr.get(), tag.t_blocknr_high.get(), u32::from(tag.t_flags.get()), checksum)
    };
    let high = if wide { u64::from(high) << 32 } else { 0 };
    let home = FsBlock(high | u64::from(low));
    (Tag { home, escaped: flags & TAG_ESCAPED != 0, checksum }, flags)
}
