//! The extent size hint: a hole that is written to is filled, before the write, with blocks that
//! were never written, in multiples of the hint.
//!
//! As on Linux, the multiples are those of the file's blocks, cut off where the hole ends. Writers of whole blocks come here
//! at the same time; each looks at the map again with the fields held exclusively, before it enters its blocks.

use undercroft_vfs::{Error, Result};

use super::space::allocate_some;
use super::{Live, block_bits, end_block, post_eof, size};
use crate::format::FileBlock;
use crate::inode::is_extent_size;
use crate::map::{self, Run};
use crate::statfs::FILE_MAX_BYTES;

/// Fills the holes that a write of `len` bytes at `offset` meets, if the file has a hint. Where space is too short for that,
/// the write goes on without it.
///
/// # Errors
/// Corruption; I/O failure; why the filesystem takes no changes any more.
pub(super) fn fill_holes(live: &Live, offset: u64, len: u64) -> Result<()> {
    let unit = unit(live);
    if unit < 2 {
        return Ok(());
    }
    match fill(live, offset >> block_bits(live), end_block(live, offset.saturating_add(len.max(1))), unit) {
        Err(Error::NoSpace) => Ok(()),
        filled => filled,
    }
}

/// Blocks in multiples of which the file's space is allocated; 1 without a hint, or with one that no Linux gives.
pub(super) fn unit(live: &Live) -> u64 {
    let blocks = live.permissions_cache.extent_size();
    if is_extent_size(&live.volume, blocks) { u64::from(blocks) } else { 1 }
}

fn fill(live: &Live, first: u64, end: u64, unit: u64) -> Result<()> {
    let limit = end_block(live, FILE_MAX_BYTES);
    let end = end.min(limit);
    if end > end_block(live, size(live)) {
        post_eof::remove_written(live)?;
    }
    let (start, stop) = (first / unit * unit, end.next_multiple_of(unit).min(limit));
    let mut at = first;
    while at < end {
        let run = map::lookup(&live.volume, live.ino, &live.fields.read().data, FileBlock(at))?;
        at = match run {
            Run::Extent(extent) => extent.end(),
            Run::Hole { start: hole_start, end: hole_end } => {
                let (mut from, to) = (hole_start.max(start), hole_end.min(stop));
                while from < to {
                    from = allocate_some(live, from, to)?;
                }
                hole_end
            }
        };
    }
    Ok(())
}
