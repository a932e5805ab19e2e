//! Looking up what lies under a block of a file.

use undercroft_diskfs::in_use::CachedExtent;
use undercroft_vfs::{Extent, Mapping, Result};

use super::stretch::{State, Stretch};
use super::{Live, block_bits, end_block};
use crate::ag::Agf;
use crate::error::corrupt_inode;
use crate::format::{FileBlock, FsBlock};
use crate::inode::Inode;
use crate::map::{self, Run, Sharing, sharing_in};
use crate::writer::Mounted;

/// As the vfs has it.
pub(super) fn in_bytes(stretch: &Stretch, live: &Live) -> Result<Extent> {
    let bits = block_bits(live);
    // Past what 64 bits count there is nothing.
    let bytes = |block: u64| block.saturating_mul(1 << bits);
    let offset = || {
        live.volume.geometry().byte(stretch.home).ok_or_else(|| {
            corrupt_inode("data fork", live.ino, Some(stretch.home), "lies outside the filesystem")
        })
    };
    let mapping = match stretch.state {
        State::Hole | State::PostEof => Mapping::Hole,
        State::Unwritten => Mapping::Unwritten { offset: offset()? },
        State::Written => Mapping::Device { offset: offset()? },
        State::Shared => Mapping::Shared { offset: offset()? },
    };
    Ok(Extent { start: bytes(stretch.start), len: bytes(stretch.end) - bytes(stretch.start), mapping })
}

/// Caches a written stretch, in which `block` lies, by where it lies on the device in blocks.
fn keep(live: &Live, written: &Stretch, block: u64, file_end: u64) {
    if let Some(home) = live.volume.geometry().linear(written.home) {
        let extent = CachedExtent { start: written.start, end: written.end, home };
        live.content.extents.keep(extent, block, file_end);
    }
}

/// Looks a block up with the fields held, and caches what was found.
pub(super) fn lookup(live: &Live, inode: &Inode, block: u64) -> Result<Stretch> {
    let extent = match map::lookup(&live.volume, live.ino, &inode.data, FileBlock(block))? {
        Run::Hole { start, end } => {
            return Ok(Stretch { start, end, state: State::Hole, home: FsBlock::NULL });
        }
        Run::Extent(extent) => extent,
    };
    let whole = Stretch {
        start: extent.file.0,
        end: extent.end(),
        state: if extent.unwritten { State::Unwritten } else { State::Written },
        home: extent.block,
    };
    if extent.unwritten {
        return Ok(whole);
    }
    let file_end = end_block(live, inode.core.size_bytes);
    if block >= file_end {
        let start = whole.start.max(file_end);
        return Ok(Stretch { start, state: State::PostEof, home: whole.home_of(start), ..whole });
    }
    let within = Stretch { end: whole.end.min(file_end), ..whole };
    if !inode.core.may_share_blocks() {
        keep(live, &within, block, file_end);
        return Ok(within);
    }
    let left = (within.end - block) as u32;
    // Reading a file does not depend on the tree of reference counts: where that cannot be read, blocks count as
    // shared.
    let sharing = sharing(&live.volume, within.home_of(block), left);
    let (is_shared, count) = sharing.map_or((true, left), |sharing| (sharing.shared, sharing.count));
    let state = if is_shared { State::Shared } else { State::Written };
    let part = Stretch {
        start: block,
        end: block + u64::from(count.clamp(1, left)),
        state,
        home: within.home_of(block),
    };
    if !is_shared {
        keep(live, &part, block, file_end);
    }
    Ok(part)
}

/// Whether `block` is shared, and for how many of the `count` blocks from there on, which lie in one group, the same
/// holds.
fn sharing(volume: &Mounted, block: FsBlock, count: u32) -> Result<Sharing> {
    // While the filesystem takes changes, the allocator knows where the tree begins.
    if let Ok(writer) = volume.writer() {
        return writer.allocator.sharing(volume, block, count);
    }
    let alone = Sharing { shared: false, count };
    let Some((ag, start)) = volume.geometry().split(block) else { return Ok(alone) };
    let Some(tree) = Agf::read(volume, ag)?.reference_counts(volume)? else { return Ok(alone) };
    sharing_in(&tree, start, count)
}
