//! Writing: holds blocks before the data is written, and enters them into the map afterwards.
//!
//! What finishing a write needs is there before its bytes are written: the blocks for the data, free blocks for the map,
//! room for its extents in the inode's counter. So a write whose bytes are on the device is finished, unless the
//! filesystem is damaged or stops taking changes.
//!
//! A write to shared blocks is prepared and finished with the inode's state held exclusively, so that no reader and no
//! other writer uses the old blocks while they lose this user and perhaps are freed.

use undercroft_diskfs::in_use;
use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, Extent, Result, WriteKind, clock::Coarse};

use super::look::{in_bytes, lookup};
use super::stretch::{State, Stretch};
use super::window::{FlightSpace, MapReservation, Window};
use super::{Live, block_bits, check_kind, end_block, extsize, post_eof, size, store};
use crate::alloc::Goal;
use crate::error::corrupt_inode;
use crate::format::extent::EXTENT_MAX_BLOCKS;
use crate::format::extent::Extent as Mapped;
use crate::format::{FileBlock, FsBlock};
use crate::inode::{ForkKind, Inode, STORE_CREDITS};
use crate::map::change::{self, Progress};
use crate::map::{self, Run};
use crate::statfs::FILE_MAX_BYTES;
use crate::transaction::Handle;
use crate::writer::Writer;

/// A file that grows has at most so many bytes ahead of what was written.
const AHEAD_MAX_BYTES: u64 = 8 << 20;

/// Records by which the end of one write lets a fork grow at most: an extent that is cut in three.
const RECORDS_PER_WRITE: u64 = 2;

/// Reserves space for a write from `offset` on.
///
/// # Errors
/// As for [`Inode::prepare_write`](undercroft_vfs::Inode::prepare_write).
pub(in super::super) fn prepare_write(live: &Live, offset: u64, len: u64) -> Result<Extent> {
    extsize::fill_holes(live, offset, len)?;
    retry_when_full(live, || try_prepare(live, offset, len))
}

/// Repeats `attempt` while it fails for lack of space and some can be freed. The caller has no handle.
///
/// # Errors
/// Those of the last attempt.
pub(in super::super) fn retry_when_full<T>(live: &Live, attempt: impl FnMut() -> Result<T>) -> Result<T> {
    in_use::retry_when_full(attempt, || free_windows(live), || wait_for_freed(live))
}

fn try_prepare(live: &Live, offset: u64, len: u64) -> Result<Extent> {
    let volume = &live.volume;
    let allocator = &volume.writer()?.allocator;
    let bits = block_bits(live);
    let (block, limit) = (offset >> bits, end_block(live, FILE_MAX_BYTES));
    if block >= limit {
        return Err(Error::FileTooLarge);
    }
    let end = end_block(live, offset.saturating_add(len.max(1))).min(limit);
    check_kind(&live.fields.read())?;
    if end > end_block(live, size(live)) {
        post_eof::remove_written(live)?;
    }
    // With the fields locked no other write comes into the map between the look at it and the reservation.
    let inode = &*live.fields.read();
    change::check_count(volume, inode, ForkKind::Data)?;
    let here = lookup(live, inode, block)?;
    let end = end.min(here.end);
    if here.state == State::Written {
        return in_bytes(&here, live);
    }
    let is_at_end = here.state == State::Hole && here.end >= limit;
    let goal = goal(live, inode, block, is_at_end)?;
    let mut window = live.content.window.lock();
    let mut reserve =
        FlightSpace { spare: MapReservation::new(allocator, spare_blocks(inode, &window))?, copies: None };
    let prepared = match here.state {
        State::Written | State::PostEof => {
            let detail = format!("block {block} is past the end and was written");
            return Err(corrupt_inode("data fork", live.ino, Some(here.home), detail));
        }
        State::Unwritten => {
            window.begin(block..end, reserve);
            return in_bytes(&here, live);
        }
        State::Shared => {
            let held = allocator.hold(volume, goal, end - block)?;
            let prepared = (held.first(), held.len());
            reserve.copies = Some(held);
            prepared
        }
        State::Hole => {
            let hole_end = here.end.min(limit);
            let ahead_max = AHEAD_MAX_BYTES >> bits;
            window.prepare(volume, allocator, block..end, hole_end, goal, ahead_max)?
        }
    };
    let (home, count) = prepared;
    window.begin(block..block + count, reserve);
    let is_new = !window.is_listed && window.has_surplus();
    window.is_listed |= is_new;
    drop(window);
    if is_new {
        volume.writer()?.windows.add(live.listed());
    }
    in_bytes(&Stretch { start: block, end: block + count, state: State::Unwritten, home }, live)
}

/// Blocks that the end of a write may need for the map: none, where the records of all writes in flight fit the inode.
fn spare_blocks(inode: &Inode, window: &Window) -> u64 {
    match change::needed_space(inode, ForkKind::Data, RECORDS_PER_WRITE * (window.in_flight() as u64 + 1)) {
        0 => 0,
        // Other writes in flight may make the tree higher by a level.
        blocks => blocks + 1,
    }
}

/// Where blocks for a file block are best: after the block before it, and at a stripe where the file has nothing behind
/// them.
pub(super) fn goal(live: &Live, inode: &Inode, block: u64, is_at_end: bool) -> Result<Goal> {
    let align = if is_at_end { live.volume.superblock().stripe_unit_blocks().max(1) } else { 1 };
    if let Some(before) = block.checked_sub(1)
        && let Run::Extent(extent) = map::lookup(&live.volume, live.ino, &inode.data, FileBlock(before))?
    {
        let next = FsBlock(extent.block_of(before).0 + 1);
        let goes_on = live.volume.geometry().split(next).is_some();
        return Ok(Goal { block: if goes_on { next } else { extent.block }, goes_on, align });
    }
    Ok(Goal { block: map::near_inode(&live.volume, live.ino), goes_on: false, align })
}

/// Frees the reservation windows of files, this one's before the others'.
fn free_windows(live: &Live) -> bool {
    let here = live.content.window.lock().free_unused();
    here | live.volume.writer().is_ok_and(|writer| writer.windows.free_all())
}

/// Waits for a commit that makes freed blocks usable, if there are any.
fn wait_for_freed(live: &Live) -> bool {
    let Ok(writer) = live.volume.writer() else { return false };
    writer.allocator.busy_blocks() > 0 && writer.transactions.commit(writer.transactions.running()).is_ok()
}

/// The write that this thread prepared is not made.
pub(in super::super) fn cancel_write(live: &Live) {
    live.content.window.lock().end();
}

/// Puts what was written into the map.
///
/// # Errors
/// As for [`Inode::finish_write`](undercroft_vfs::Inode::finish_write).
pub(in super::super) fn finish_write(
    live: &Live,
    offset: u64,
    len: u64,
    new_size: u64,
    written: WriteKind,
) -> Result<()> {
    let bits = block_bits(live);
    if written == WriteKind::Overwrite {
        let plain = live.volume.writer()?.options.journaled_overwrites;
        if !plain && new_size <= size(live) {
            return touch(live);
        }
        // Within the last block.
        let handle = live.volume.start(STORE_CREDITS)?;
        let mut fields = live.fields.write();
        let grown = (new_size > fields.core.size_bytes).then_some(new_size);
        return store(live, &handle, &mut fields, grown);
    }
    let (first, end) = (offset >> bits, end_block(live, offset.saturating_add(len)));
    let prepared = live.content.window.lock().take_space(first);
    let mut reserve = prepared.unwrap_or_default();
    let mut at = first;
    let result = loop {
        match finish_some(live, at, end, new_size, &mut reserve) {
            Ok(Progress::From(next)) => at = next,
            Ok(Progress::Done) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    live.content.window.lock().end();
    result
}

/// Whether an overwrite leaves nothing to be done: the file is not longer, and the times are those of this tick of the coarse
/// clock, or a cache's above.
#[inline]
pub(in super::super) fn is_noted(live: &Live, writer: &Writer, new_size: u64) -> bool {
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
fn finish_some(
    live: &Live,
    from: u64,
    end: u64,
    new_size: u64,
    reserve: &mut FlightSpace,
) -> Result<Progress> {
    let credits = |inode: &Inode| change::credits(&live.volume, inode, ForkKind::Data) + STORE_CREDITS;
    let first_credits = credits(&live.fields.read());
    let handle = live.volume.start(first_credits)?;
    reserve.spare.lend(&handle);
    let mut fields = live.fields.write();
    let mut at = from;
    let result = loop {
        if at >= end {
            break Ok(Progress::Done);
        }
        if at > from && !handle.has_room(credits(&fields)) {
            break Ok(Progress::From(at));
        }
        match finish_run(live, &handle, &mut fields, at, end, reserve) {
            Ok(next) => at = next,
            Err(error) => break Err(error),
        }
    };
    // What is in the map is readable, also if the rest failed; a size only with all of it, or as far as it goes.
    let reached = if at >= end { new_size } else { new_size.min(at << block_bits(live)) };
    let grown = (reached > fields.core.size_bytes).then_some(reached).filter(|_| at > from);
    if at > from || result.is_ok() {
        store(live, &handle, &mut fields, grown)?;
    }
    drop(fields);
    if matches!(result, Ok(Progress::From(_))) {
        reserve.spare.take_back(&handle.writer().allocator, &handle);
    }
    result
}

/// Puts one run into the map, and returns where the next begins.
fn finish_run(
    live: &Live,
    handle: &Handle<'_>,
    inode: &mut Inode,
    at: u64,
    end: u64,
    reserve: &mut FlightSpace,
) -> Result<u64> {
    let allocator = &handle.writer().allocator;
    match map::lookup(handle.volume(), live.ino, &inode.data, FileBlock(at))? {
        Run::Extent(extent) => {
            let to = extent.end().min(end);
            if let Some(copies) = &mut reserve.copies {
                let most = (to - at).min(copies.len()) as u32;
                if most == 0 {
                    return Err(Error::InvalidArgument("the end of a write that was not prepared"));
                }
                ensure_space(handle, inode)?;
                let count =
                    allocator.sharing(handle.volume(), extent.block_of(at), most)?.count.clamp(1, most);
                live.content.extents.invalidate();
                change::check_replace(handle, inode, FileBlock(at), count)?;
                // Nothing has changed if this fails.
                let block = allocator.take_held(handle, copies, count.into())?;
                let new = Mapped { file: FileBlock(at), block, count, unwritten: false };
                handle.or_abort(change::replace(handle, inode, new))?;
                return Ok(new.end());
            }
            if extent.unwritten {
                ensure_space(handle, inode)?;
                change::mark(handle, inode, FileBlock(at), FileBlock(to), false)?;
            }
            Ok(to)
        }
        Run::Hole { end: hole_end, .. } => {
            ensure_space(handle, inode)?;
            let most = (hole_end.min(end) - at).min(u64::from(EXTENT_MAX_BLOCKS));
            let (block, count) = live.content.window.lock().take(allocator, handle, at, most)?;
            let new = Mapped { file: FileBlock(at), block, count: count as u32, unwritten: false };
            handle.or_abort(change::insert(handle, inode, ForkKind::Data, new))?;
            Ok(new.end())
        }
    }
}

/// Checks that a handle has the space that one change of the map may need. What was reserved when the write was prepared
/// is enough; if the map has grown by more since, free blocks are reserved now.
fn ensure_space(handle: &Handle<'_>, inode: &Inode) -> Result<()> {
    let needed = change::needed_space(inode, ForkKind::Data, RECORDS_PER_WRITE);
    handle.ensure_space(needed)
}
