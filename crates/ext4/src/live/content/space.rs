//! Space under a range: allocated, punched, zeroed, collapsed, inserted.
//!
//! All in steps, each of which leaves a good file. The bytes that a range begins or ends with, in blocks that it does
//! not fill, are cleared where they lie. Collapsing and inserting move extents a leaf at a time; a crash on the way
//! leaves a file of which a part has moved, as it does with Linux.
//!
//! The caller excludes other writers, so the file's reservation window is freed first.

use undercroft_vfs::{Error, FallocateMode, Result};

use super::size::{clear, remove};
use super::write::{INODE_CREDITS, goal, retry_when_full};
use super::{Live, block_bits, check_kind, inline, store, store_keeping_times};
use crate::alloc::Purpose;
use crate::inode::Inode;
use crate::map::{self, Progress, RunState};
use crate::numbers::FileBlock;
use crate::transaction::Handle;

/// Changes what lies under a range.
///
/// # Errors
/// As for [`Inode::fallocate`](undercroft_vfs::Inode::fallocate).
pub(crate) fn fallocate(live: &Live, mode: FallocateMode, offset: u64, len: u64, size: u64) -> Result<()> {
    let Some(end) = offset.checked_add(len) else { return Err(Error::FileTooLarge) };
    {
        let inode = live.fields.read();
        check_kind(&inode)?;
        if !map::has_extents(&inode) && !inode.has_inline_data() && mode != FallocateMode::PunchHole {
            return Err(Error::Unsupported("space that is not written, in a file with a block map".into()));
        }
        let limit = map::limit(&live.volume, &inode) << block_bits(live);
        if end.max(size) > limit && mode != FallocateMode::PunchHole {
            return Err(Error::FileTooLarge);
        }
    }
    live.content.window.lock().clear();
    if live.fields.read().has_inline_data() {
        inline::to_blocks(live, u64::MAX)?;
    }
    match mode {
        FallocateMode::Allocate => {
            let bits = block_bits(live);
            allocate(live, offset >> bits, end.div_ceil(1 << bits))?;
        }
        FallocateMode::PunchHole => {
            let (first, last) = clear_edges(live, offset, end)?;
            in_steps(live, first, |handle, inode, from| remove(live, handle, inode, from, last))?;
        }
        FallocateMode::Zero => {
            let (first, last) = clear_edges(live, offset, end)?;
            in_steps(live, first, |handle, inode, from| map::mark(handle, inode, from, last, false))?;
            let bits = block_bits(live);
            allocate(live, offset >> bits, end.div_ceil(1 << bits))?;
        }
        FallocateMode::Collapse => {
            let (first, by) = aligned(live, offset, len)?;
            in_steps(live, first, |handle, inode, from| remove(live, handle, inode, from, first + by))?;
            in_steps(live, first + by, |handle, inode, from| map::shift_down(handle, inode, from, by))?;
        }
        FallocateMode::Insert => {
            let (first, by) = aligned(live, offset, len)?;
            in_steps(live, u64::MAX, |handle, inode, to| {
                if to == u64::MAX {
                    map::split_at(handle, inode, first)?;
                }
                map::shift_up(handle, inode, first, to, by)
            })?;
        }
    }
    let handle = live.volume.start(INODE_CREDITS + 1)?;
    let mut fields = live.fields.write();
    let size = (fields.size_bytes != size).then_some(size);
    store(live, &handle, &mut fields, size)
}

/// Changes the map under as many handles as it takes.
fn in_steps(
    live: &Live,
    from: u64,
    mut change: impl FnMut(&Handle<'_>, &mut Inode, u64) -> Result<Progress>,
) -> Result<()> {
    let mut from = from;
    loop {
        let credits = map::remove_credits(&live.fields.read()) + INODE_CREDITS;
        let handle = live.volume.start(credits)?;
        let mut fields = live.fields.write();
        live.content.extents.invalidate();
        let progress = change(&handle, &mut fields, from);
        store_keeping_times(live, &handle, &mut fields, None)?;
        match progress? {
            Progress::Done => return Ok(()),
            Progress::From(next) => from = next,
        }
    }
}

/// Clears the parts of a range in blocks that it does not fill, and returns the blocks that it fills.
fn clear_edges(live: &Live, offset: u64, end: u64) -> Result<(u64, u64)> {
    let bits = block_bits(live);
    let block = 1 << bits;
    let (first, last) = (offset.div_ceil(block), end >> bits);
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

/// Fills one hole, or a part of it, and returns where to go on.
fn allocate_some(live: &Live, at: u64, end: u64) -> Result<u64> {
    let (run, goal, credits) = {
        let inode = live.fields.read();
        let run = map::lookup(&live.volume, &inode, FileBlock(at as u32))?;
        (run, goal(live, &inode, at)?, map::credits(&inode) + INODE_CREDITS)
    };
    let next = end.min(at + run.len);
    if run.state != RunState::Hole {
        return Ok(next);
    }
    let handle = live.volume.start(credits)?;
    let mut fields = live.fields.write();
    let allocator = &live.volume.writer()?.allocator;
    let want = (next - at).min(map::max_run(false));
    let (first, count) = allocator.allocate(&handle, goal, want, Purpose::Data)?;
    let inserted = map::insert(&handle, &mut fields, FileBlock(at as u32), first, count, false);
    if inserted.is_err() {
        allocator.free(&handle, first, count)?;
    }
    store_keeping_times(live, &handle, &mut fields, None)?;
    inserted.map(|()| at + count)
}
