//! Space under a range: allocated, punched, zeroed, collapsed, inserted.
//!
//! All in steps, each of which leaves a good file. What would refuse a change is looked at before the first step. The bytes
//! that a range begins or ends with, in blocks that it does not fill, are cleared where they lie, or in a copy where
//! other files have the block too. Collapsing and inserting move extents one by one; a crash on the way leaves a file of
//! which a part has moved, as it does with Linux.
//!
//! The caller excludes readers and other writers, so the file's reservation window is freed first.

use undercroft_vfs::{Error, FallocateMode, Result};

use super::clear::clear;
use super::size::remove;
use super::write::{goal, retry_when_full};
use super::{
    Live, block_bits, check_kind, end_block, extsize, post_eof, size as size_of_file, store,
    store_keeping_times,
};
use crate::format::FileBlock;
use crate::format::dinode::DiFlags;
use crate::format::extent::{EXTENT_MAX_BLOCKS, Extent, FILE_BLOCK_END};
use crate::inode::{ForkKind, Inode, STORE_CREDITS};
use crate::map::change::{self, Progress};
use crate::map::{self, Run};
use crate::statfs::FILE_MAX_BYTES;
use crate::transaction::Handle;

/// Changes what lies under a range.
///
/// # Errors
/// As for [`Inode::fallocate`](undercroft_vfs::Inode::fallocate).
pub(in super::super) fn fallocate(
    live: &Live,
    mode: FallocateMode,
    offset: u64,
    len: u64,
    size: u64,
) -> Result<()> {
    let Some(end) = offset.checked_add(len) else { return Err(Error::FileTooLarge) };
    let shares = {
        let inode = live.fields.read();
        check_kind(&inode)?;
        inode.core.may_share_blocks()
    };
    if end.max(size) > FILE_MAX_BYTES && mode != FallocateMode::PunchHole {
        return Err(Error::FileTooLarge);
    }
    live.content.window.lock().clear();
    let unit = extsize::unit(live);
    let limit = end_block(live, FILE_MAX_BYTES);
    let first_touched = (offset >> block_bits(live)) / unit * unit;
    let end_touched = end_block(live, end).next_multiple_of(unit).min(limit);
    post_eof::remove_written(live)?;
    match mode {
        FallocateMode::Allocate => {
            allocate(live, first_touched, end_touched)?;
        }
        FallocateMode::PunchHole => {
            let (first, last) = clear_edges(live, offset, end)?;
            in_steps(live, first, |handle, inode, from| remove(live, handle, inode, from, last))?;
        }
        FallocateMode::Zero => {
            let (first, last) = clear_edges(live, offset, end)?;
            in_steps(live, first, |handle, inode, from| {
                // Blocks that other files have too stay written for those.
                if shares {
                    remove(live, handle, inode, from, last)
                } else {
                    mark_unwritten(live, handle, inode, from, last)
                }
            })?;
            allocate(live, first_touched, end_touched)?;
        }
        FallocateMode::Collapse => {
            let (first, by) = aligned(live, offset, len)?;
            in_steps(live, first, |handle, inode, from| remove(live, handle, inode, from, first + by))?;
            in_steps(live, first + by, |handle, inode, from| {
                change::shift_down(handle, inode, FileBlock(from), by)
            })?;
        }
        FallocateMode::Insert => {
            let (first, by) = aligned(live, offset, len)?;
            insert(live, first, by, size)?;
        }
    }
    let handle = live.volume.start(STORE_CREDITS)?;
    let mut fields = live.fields.write();
    if matches!(mode, FallocateMode::Allocate | FallocateMode::Zero) {
        // Linux leaves the post-EOF blocks then when the file is closed.
        fields.core.flags |= DiFlags::PREALLOC;
    }
    let size = (fields.core.size_bytes != size).then_some(size);
    store(live, &handle, &mut fields, size)
}

/// Puts a hole of `by` blocks in before the block `first` of a file, which becomes `size` bytes long.
fn insert(live: &Live, first: u64, by: u64, size: u64) -> Result<()> {
    let old = size_of_file(live);
    let end =
        match map::lookup(&live.volume, live.ino, &live.fields.read().data, FileBlock(FILE_BLOCK_END - 1))? {
            Run::Hole { start, .. } => start,
            Run::Extent(extent) => extent.end(),
        };
    if end.checked_add(by).is_none_or(|end| end > end_block(live, FILE_MAX_BYTES)) {
        return Err(Error::FileTooLarge);
    }
    // What is past the end, in its last block, comes to lie within the new size until it has moved.
    let block = 1 << block_bits(live);
    clear(live, old, old.next_multiple_of(block))?;
    retry_when_full(live, || {
        let (credits, space) = needs(live);
        let handle = live.volume.start_with_space(credits, space)?;
        let mut fields = live.fields.write();
        change::split_at(&handle, &mut fields, FileBlock(first))?;
        // First the size: what has moved lies within it.
        store(live, &handle, &mut fields, Some(size))
    })?;
    in_steps(live, FILE_BLOCK_END, |handle, inode, to| {
        change::shift_up(handle, inode, FileBlock(first), to, by)
    })
}

/// Credits and space that a change of one extent needs.
fn needs(live: &Live) -> (u32, u64) {
    let inode = live.fields.read();
    let space = change::needed_space(&inode, ForkKind::Data, 2);
    (change::credits(&live.volume, &inode, ForkKind::Data) + STORE_CREDITS, space)
}

/// Changes the map under as many handles as it takes.
fn in_steps(
    live: &Live,
    from: u64,
    mut change: impl FnMut(&Handle<'_>, &mut Inode, u64) -> Result<Progress>,
) -> Result<()> {
    let mut from = from;
    loop {
        let progress = retry_when_full(live, || {
            let (credits, space) = needs(live);
            let handle = live.volume.start_with_space(credits, space)?;
            let mut fields = live.fields.write();
            live.content.extents.invalidate();
            let progress = change(&handle, &mut fields, from);
            // What was changed before an error stays.
            store_keeping_times(live, &handle, &mut fields, None)?;
            progress
        })?;
        match progress {
            Progress::Done => return Ok(()),
            Progress::From(next) => from = next,
        }
    }
}

/// Marks what was written in a range as never written.
fn mark_unwritten(
    live: &Live,
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
) -> Result<Progress> {
    let (mut at, mut is_first) = (from, true);
    while at < to {
        let extent = match map::lookup(handle.volume(), live.ino, &inode.data, FileBlock(at))? {
            Run::Hole { end, .. } => {
                at = end;
                continue;
            }
            Run::Extent(extent) => extent,
        };
        let end = extent.end().min(to);
        if !extent.unwritten {
            let has_room = handle
                .has_room(change::credits(&live.volume, inode, ForkKind::Data) + STORE_CREDITS)
                && handle.space() >= change::needed_space(inode, ForkKind::Data, 2);
            if !is_first && !has_room {
                return Ok(Progress::From(at));
            }
            change::mark(handle, inode, FileBlock(at), FileBlock(end), true)?;
            is_first = false;
        }
        at = end;
    }
    Ok(Progress::Done)
}

/// Clears the parts of a range in blocks that it does not fill, and returns the blocks that it fills.
fn clear_edges(live: &Live, offset: u64, end: u64) -> Result<(u64, u64)> {
    let bits = block_bits(live);
    let (first, last) = (end_block(live, offset), end >> bits);
    if first > last {
        clear(live, offset, end)?;
        return Ok((first, first));
    }
    clear(live, offset, first << bits)?;
    clear(live, last << bits, end)?;
    Ok((first, last))
}

/// A range in blocks, where it must begin and end with one.
fn aligned(live: &Live, offset: u64, len: u64) -> Result<(u64, u64)> {
    let bits = block_bits(live);
    if !(offset | len).is_multiple_of(1 << bits) {
        return Err(Error::InvalidArgument("the range does not begin and end with a block of the file"));
    }
    Ok((offset >> bits, len >> bits))
}

/// Fills the holes of a range with blocks that were never written.
fn allocate(live: &Live, first: u64, end: u64) -> Result<()> {
    let mut at = first;
    while at < end {
        at = retry_when_full(live, || allocate_some(live, at, end))?;
    }
    Ok(())
}

/// Fills one hole, or a part of it, and returns where to go on. Other writers may do the same at the same time. Blocks for
/// which a write in flight has others in the file's window are left out: the end of that write enters those.
pub(super) fn allocate_some(live: &Live, at: u64, end: u64) -> Result<u64> {
    let (hole_end, goal) = {
        let inode = live.fields.read();
        match map::lookup(&live.volume, live.ino, &inode.data, FileBlock(at))? {
            Run::Extent(extent) => return Ok(end.min(extent.end())),
            Run::Hole { end, .. } => {
                change::check_count(&live.volume, &inode, ForkKind::Data)?;
                (end, goal(live, &inode, at, end >= FILE_BLOCK_END)?)
            }
        }
    };
    let want = (end.min(hole_end) - at).min(u64::from(EXTENT_MAX_BLOCKS));
    let allocator = &live.volume.writer()?.allocator;
    let (credits, space) = needs(live);
    let mut held = allocator.hold(&live.volume, goal, want)?;
    let handle = live.volume.start_with_space(credits, space)?;
    let mut fields = live.fields.write();
    let Run::Hole { end: hole_end, .. } = map::lookup(&live.volume, live.ino, &fields.data, FileBlock(at))?
    else {
        return Ok(at);
    };
    change::check_count(&live.volume, &fields, ForkKind::Data)?;
    // With the fields held exclusively no write is prepared before the blocks are in the map.
    let free_end = match live.content.window.lock().before_flights(at) {
        Ok(free_end) => free_end,
        Err(flight_end) => return Ok(end.min(flight_end)),
    };
    let count = held.len().min(hole_end.min(free_end) - at);
    // Nothing has changed if this fails.
    let block = allocator.take_held(&handle, &mut held, count)?;
    let extent = Extent { file: FileBlock(at), block, count: count as u32, unwritten: true };
    handle.or_abort(change::insert(&handle, &mut fields, ForkKind::Data, extent))?;
    store_keeping_times(live, &handle, &mut fields, None)?;
    Ok(at + count)
}
