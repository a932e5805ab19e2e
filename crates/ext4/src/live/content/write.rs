//! Writing: reserves blocks before the data is written, and enters them into the map afterwards.

use undercroft_diskfs::in_use;
use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, Extent, Mapping, Result, WriteKind, clock::Coarse};

use super::{Live, block_bits, check_kind, in_bytes, inline, lookup, size, store};
use crate::inode::Inode;
use crate::map::{self, Progress, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::transaction::Handle;
use crate::writer::Writer;

/// The inode, beside what the map takes.
pub(super) const INODE_CREDITS: u32 = 1;
/// A file that grows has at most so many bytes ahead of what was written.
const AHEAD_MAX_BYTES: u64 = 8 << 20;

/// Reserves space for a write from `offset` on.
///
/// # Errors
/// As for [`Inode::prepare_write`](undercroft_vfs::Inode::prepare_write).
pub(crate) fn prepare_write(live: &Live, offset: u64, len: u64) -> Result<Extent> {
    retry_when_full(live, || {
        if live.fields.read().has_inline_data() {
            inline::to_blocks(live, u64::MAX)?;
        }
        try_prepare(live, offset, len)
    })
}

/// Repeats `attempt` while it fails for lack of space and some can be freed. The caller has no handle.
///
/// # Errors
/// Those of the last attempt.
pub(crate) fn retry_when_full<T>(live: &Live, attempt: impl FnMut() -> Result<T>) -> Result<T> {
    in_use::retry_when_full(attempt, || free_windows(live), || wait_for_freed(live))
}

fn try_prepare(live: &Live, offset: u64, len: u64) -> Result<Extent> {
    let volume = &live.volume;
    let allocator = &volume.writer()?.allocator;
    let bits = block_bits(live);
    // With the fields locked no other write comes into the map between the look at it and the reservation.
    let inode = &*live.fields.read();
    check_kind(inode)?;
    let (block, limit) = (offset >> bits, map::limit(volume, inode));
    if block >= limit {
        return Err(Error::FileTooLarge);
    }
    let run = lookup(live, inode, block as u32)?;
    if run.state != RunState::Hole {
        return Ok(in_bytes(&run, bits));
    }
    let end = offset.saturating_add(len.max(1)).div_ceil(1 << bits).min(block + run.len).min(limit);
    let goal = goal(live, inode, block)?;
    let (first, count) = {
        let mut window = live.content.window.lock();
        let hole_end = (block + run.len).min(limit);
        let ahead_max = AHEAD_MAX_BYTES >> bits;
        let prepared = window.prepare(volume, allocator, block..end, hole_end, goal, ahead_max)?;
        let is_new = !window.is_listed && window.has_surplus();
        window.is_listed |= is_new;
        drop(window);
        if is_new {
            volume.writer()?.windows.add(live.listed());
        }
        prepared
    };
    let mapping = Mapping::Unwritten { offset: first.0 << bits };
    Ok(Extent { start: block << bits, len: count << bits, mapping })
}

/// Where blocks for a file block are best: after the block before it.
pub(super) fn goal(live: &Live, inode: &Inode, block: u64) -> Result<FsBlock> {
    if let Some(before) = block.checked_sub(1) {
        match map::lookup(&live.volume, inode, FileBlock(before as u32))?.state {
            RunState::Mapped(home) | RunState::Unwritten(home) => return Ok(FsBlock(home.0 + 1)),
            RunState::Hole => {}
        }
    }
    Ok(live.volume.writer()?.allocator.goal_for(&live.volume, inode.number, inode.kind))
}

/// Frees the reservation windows of files, this one's before the others'.
fn free_windows(live: &Live) -> bool {
    let here = live.content.window.lock().free_unused();
    here | live.volume.writer().is_ok_and(|writer| writer.windows.free_all())
}

/// Waits for a commit that makes freed blocks usable, if there are any.
fn wait_for_freed(live: &Live) -> bool {
    let Ok(writer) = live.volume.writer() else { return false };
    writer.allocator.freed_pending() > 0 && writer.transactions.commit(writer.transactions.running()).is_ok()
}

/// Puts what was written into the map.
///
/// # Errors
/// As for [`Inode::finish_write`](undercroft_vfs::Inode::finish_write).
pub(crate) fn finish_write(
    live: &Live,
    offset: u64,
    len: u64,
    new_size: u64,
    written: WriteKind,
) -> Result<()> {
    let bits = block_bits(live);
    let plain = live.volume.writer()?.options.journaled_overwrites;
    if !plain && written == WriteKind::Overwrite && new_size <= size(live) {
        return touch(live);
    }
    let (first, end) = (offset >> bits, offset.saturating_add(len).div_ceil(1 << bits));
    let mut at = first;
    let result = loop {
        match finish_some(live, at, end, new_size) {
            Ok(Progress::From(next)) => at = next,
            Ok(Progress::Done) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    live.content.window.lock().finish(first);
    result
}

/// Whether an overwrite leaves nothing to be done: the file is not longer, and the times are those of this tick of the coarse
/// clock, or a cache's above.
#[inline]
pub(crate) fn is_noted(live: &Live, writer: &Writer, new_size: u64) -> bool {
    let options = &writer.options;
    !(options.journaled_overwrites || options.synchronous)
        && new_size <= size(live)
        && (live.cache_keeps_times_of_content() || has_time_of_now(live))
}

/// Whether the fields have the time of this tick, which was not read since.
#[inline]
fn has_time_of_now(live: &Live) -> bool {
    !live.times.are_seen()
        && live.content.written_at.load(Ordering::Relaxed) == Coarse::now().as_nanoseconds()
}

/// Notes an overwrite: the times move forward in memory, once in a tick of the coarse clock.
fn touch(live: &Live) -> Result<()> {
    if live.cache_keeps_times_of_content() || has_time_of_now(live) {
        return Ok(());
    }
    let mut fields = live.fields.write();
    let now = live.now();
    live.note_modification(&mut fields, now);
    drop(fields);
    live.times_are_late();
    Ok(())
}

/// Finishes as much as one handle has room for.
fn finish_some(live: &Live, from: u64, end: u64, new_size: u64) -> Result<Progress> {
    let credits = map::credits(&live.fields.read()) + INODE_CREDITS;
    let handle = live.volume.start(credits)?;
    let mut fields = live.fields.write();
    let mut at = from;
    let result = loop {
        if at >= end {
            break Ok(Progress::Done);
        }
        if !handle.has_room(map::credits(&fields) + INODE_CREDITS) {
            break Ok(Progress::From(at));
        }
        match finish_run(live, &handle, &mut fields, at, end) {
            Ok(next) => at = next,
            Err(error) => break Err(error),
        }
    };
    // What is in the map is readable, also if the rest failed; a size only with all of it, or as far as it goes.
    let reached = if at >= end { new_size } else { new_size.min(at << block_bits(live)) };
    let grown = (reached > fields.size_bytes && at > from).then_some(reached);
    if at > from || result.is_ok() {
        store(live, &handle, &mut fields, grown)?;
    }
    result
}

/// Puts one run into the map, and returns where the next begins.
fn finish_run(live: &Live, handle: &Handle<'_>, inode: &mut Inode, at: u64, end: u64) -> Result<u64> {
    let run = map::lookup(handle.volume(), inode, FileBlock(at as u32))?;
    let len = run.len.min(end - at);
    match run.state {
        RunState::Mapped(_) => Ok(at + len),
        RunState::Unwritten(_) => match map::mark(handle, inode, at, at + len, true)? {
            Progress::Done => Ok(at + len),
            Progress::From(next) => Ok(next),
        },
        RunState::Hole => {
            let allocator = &handle.writer().allocator;
            let most = len.min(map::max_run(true));
            let (first, count) = live.content.window.lock().take(allocator, handle, at, most)?;
            if let Err(error) = map::insert(handle, inode, FileBlock(at as u32), first, count, true) {
                allocator.free(handle, first, count)?;
                return Err(error);
            }
            Ok(at + count)
        }
    }
}
