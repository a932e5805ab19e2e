//! Sharing: a file gets the blocks of another one, or of another place in itself.
//!
//! The range is done in steps, from its begin on. A step takes blocks of the source that follow each other and have as many
//! users, to a place where the target has a hole or blocks of one kind, and does all of it under one handle: the blocks get
//! one user more, those of the target lose one, the target's map changes, and the size grows over what is done. So a crash
//! leaves in each block the old bytes or the new ones, and every block is counted once for each of its users. Where the
//! source has a hole, or blocks that were never written, the target gets a hole.
//!
//! Both inodes are marked as having shared blocks before the first step, each under a handle of its own: a mark without
//! shared blocks is allowed, the reverse is not.
//!
//! The caller holds the target's state exclusively and the source's shared, and keeps writers of the source out. So nothing is
//! written to the source's blocks meanwhile, no write is in flight, and neither map changes but by this. What is reserved
//! for the target and not in its map is freed first. A reader may still cache a block of the source as unshared: its
//! cache is invalidated once more at the end, before writers are let in.

use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use super::size::remove;
use super::write::retry_when_full;
use super::{Live, block_bits, check_kind, end_block, post_eof, store, store_keeping_times};
use crate::format::dinode::DiFlags2;
use crate::format::extent::Extent;
use crate::format::{FileBlock, FsBlock};
use crate::inode::{ForkKind, STORE_CREDITS, is_extent_size};
use crate::map::change::{self, Progress};
use crate::map::{self, Run};
use crate::statfs::FILE_MAX_BYTES;

/// Lets the `len` bytes of `target` from `offset` on be those that `source` has from `from` on.
///
/// # Errors
/// As for [`Inode::clone_range`](undercroft_vfs::Inode::clone_range).
pub(in super::super) fn clone_range(
    target: &Live,
    source: &Live,
    from: u64,
    offset: u64,
    len: u64,
) -> Result<u64> {
    if !Arc::ptr_eq(&source.volume, &target.volume) {
        return Err(Error::CrossDevice);
    }
    if !shares_blocks(target) {
        return Err(Error::Unsupported(
            "files with blocks in common, for want of the feature `reflink`".into(),
        ));
    }
    check(target, source, from, offset, len)?;
    target.content.window.lock().clear();
    post_eof::remove_written(target)?;
    mark(source)?;
    mark(target)?;
    let bits = block_bits(target);
    let copy = Copy { first: from >> bits, to: offset >> bits, size: offset + len };
    let (mut at, end) = (copy.first, end_block(source, from + len));
    let result = loop {
        if at >= end {
            break Ok(());
        }
        match retry_when_full(target, || share_some(target, source, &copy, at..end)) {
            Ok(Some(next)) => at = next,
            // Commits free nothing that would change that.
            Ok(None) => break Err(Error::NoSpace),
            Err(error) => break Err(error),
        }
    };
    {
        let _fields = source.fields.write();
        source.content.extents.invalidate();
    }
    match result {
        Ok(()) => {
            let hint = cow_hint(source).filter(|_| offset == 0 && len >= super::size(target));
            finish(target, copy.size, hint)?;
            Ok(len)
        }
        Err(error) if at == copy.first => Err(error),
        Err(_) => {
            let done = (at - copy.first) << bits;
            finish(target, offset + done, None)?;
            Ok(done)
        }
    }
}

/// Whether a file of this volume can share blocks.
pub(in super::super) fn shares_blocks(live: &Live) -> bool {
    live.volume.superblock().features().has_reflink()
}

/// What is shared.
struct Copy {
    /// The first block of it in the source.
    first: u64,
    /// And in the target.
    to: u64,
    /// The size that the target must have at the end.
    size: u64,
}

impl Copy {
    /// Where a block of the source goes.
    fn place(&self, at: u64) -> u64 {
        self.to + (at - self.first)
    }
}

/// Refuses what Linux refuses.
fn check(target: &Live, source: &Live, from: u64, offset: u64, len: u64) -> Result<()> {
    check_kind(&source.fields.read())?;
    check_kind(&target.fields.read())?;
    let (source_end, target_end) = (from.checked_add(len), offset.checked_add(len));
    let (Some(source_end), Some(target_end)) = (source_end, target_end) else {
        return Err(Error::FileTooLarge);
    };
    if target_end > FILE_MAX_BYTES {
        return Err(Error::FileTooLarge);
    }
    let block = 1 << block_bits(target);
    if !(from | offset).is_multiple_of(block) {
        return Err(Error::InvalidArgument("blocks can be shared only from the begin of one on"));
    }
    let ends = source_end == super::size(source) && target_end >= super::size(target);
    if !ends && !len.is_multiple_of(block) {
        return Err(Error::InvalidArgument("the end of the range lies within a block that cannot be shared"));
    }
    if std::ptr::eq(target, source) && from.abs_diff(offset) < len.next_multiple_of(block) {
        return Err(Error::InvalidArgument("the ranges to be shared within a file overlap"));
    }
    Ok(())
}

/// Marks an inode as one whose blocks may be shared: from now on each change of its blocks asks whether they are.
fn mark(live: &Live) -> Result<()> {
    if live.fields.read().core.may_share_blocks() {
        return Ok(());
    }
    let handle = live.volume.start(STORE_CREDITS)?;
    let mut fields = live.fields.write();
    live.content.extents.invalidate();
    fields.core.flags2 |= DiFlags2::REFLINK;
    store_keeping_times(live, &handle, &mut fields, None)?;
    live.permissions_cache.update(&fields);
    Ok(())
}

/// Does some of the blocks of the source, and returns where to go on; `None` if their group takes no more users.
fn share_some(
    target: &Live,
    source: &Live,
    copy: &Copy,
    blocks: std::ops::Range<u64>,
) -> Result<Option<u64>> {
    let (at, end) = (blocks.start, blocks.end);
    let from = map::lookup(&source.volume, source.ino, &source.fields.read().data, FileBlock(at))?;
    let progress = match from {
        Run::Extent(extent) if !extent.unwritten => {
            return share_run(target, copy, at, extent.block_of(at), extent.end().min(end) - at);
        }
        Run::Extent(extent) => make_hole(target, copy, at, extent.end().min(end)),
        Run::Hole { end: hole_end, .. } => make_hole(target, copy, at, hole_end.min(end)),
    }?;
    Ok(Some(match progress {
        Progress::Done => from_end(&from).min(end),
        Progress::From(next) => at + (next - copy.place(at)),
    }))
}

fn from_end(run: &Run) -> u64 {
    match run {
        Run::Extent(extent) => extent.end(),
        Run::Hole { end, .. } => *end,
    }
}

/// Removes what the target has where the source has nothing from block `at` to before `end`.
fn make_hole(target: &Live, copy: &Copy, at: u64, end: u64) -> Result<Progress> {
    let (first, last) = (copy.place(at), copy.place(end));
    let (credits, space) = needs(target);
    let handle = target.volume.start_with_space(credits, space)?;
    let mut fields = target.fields.write();
    let progress = remove(target, &handle, &mut fields, first, last);
    // What was removed before an error stays removed, and lets the file grow by nothing.
    let reached = match progress {
        Ok(Progress::Done) => last,
        Ok(Progress::From(next)) => next,
        Err(_) => first,
    };
    let size = fields.core.size_bytes;
    let grown = if reached > first { grown(target, copy, size, reached) } else { None };
    store_keeping_times(target, &handle, &mut fields, grown)?;
    progress
}

/// Shares blocks of the source from `at` on, up to `most` of them, which lie from `home` on.
fn share_run(target: &Live, copy: &Copy, at: u64, home: FsBlock, most: u64) -> Result<Option<u64>> {
    let volume = &target.volume;
    let allocator = &volume.writer()?.allocator;
    let to = copy.place(at);
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let (there, count) = {
        let fields = target.fields.read();
        change::check_count(volume, &fields, ForkKind::Data)?;
        match map::lookup(volume, target.ino, &fields.data, FileBlock(to))? {
            Run::Hole { end, .. } => (None, most.min(end - to)),
            Run::Extent(there) => {
                let count = most.min(there.end() - to);
                let place = there.block_of(to);
                if place == home && !there.unwritten {
                    // It has them already.
                    return Ok(Some(at + count));
                }
                (Some(there), u64::from(allocator.sharing(volume, place, narrow(count))?.count.max(1)))
            }
        }
    };
    if !allocator.has_room_for_users(volume, home)? {
        return Ok(None);
    }
    let count = allocator.sharing(volume, home, narrow(count))?.count.clamp(1, narrow(count));
    let (credits, space) = needs(target);
    let handle = volume.start_with_space(credits, space)?;
    let mut fields = target.fields.write();
    target.content.extents.invalidate();
    if there.is_some() {
        change::check_replace(&handle, &mut fields, FileBlock(to), count)?;
    }
    allocator.add_user(&handle, home, count.into())?;
    let new = Extent { file: FileBlock(to), block: home, count, unwritten: false };
    let entered = match there {
        None => change::insert(&handle, &mut fields, ForkKind::Data, new),
        Some(_) => change::replace(&handle, &mut fields, new),
    };
    handle.or_abort(entered)?;
    let grown = grown(target, copy, fields.core.size_bytes, new.end());
    store_keeping_times(target, &handle, &mut fields, grown)?;
    Ok(Some(at + u64::from(count)))
}

/// The size of the target with all before block `reached` done, if that is more than `size`.
fn grown(target: &Live, copy: &Copy, size: u64, reached: u64) -> Option<u64> {
    let reached = reached.saturating_mul(1 << block_bits(target)).min(copy.size);
    (reached > size).then_some(reached)
}

/// The hint for the size of copied extents, which a file takes over that is replaced as a whole, as on Linux.
fn cow_hint(source: &Live) -> Option<u32> {
    let fields = source.fields.read();
    let hint = fields.core.cow_extent_size;
    let has_hint = fields.core.flags2.contains(DiFlags2::COW_EXTENT_SIZE);
    (has_hint && is_extent_size(&source.volume, hint)).then_some(hint)
}

/// Sets the times, the size, if the file is shorter, and a hint.
fn finish(target: &Live, end: u64, hint: Option<u32>) -> Result<()> {
    let handle = target.volume.start(STORE_CREDITS)?;
    let mut fields = target.fields.write();
    let size = fields.core.size_bytes;
    if let Some(hint) = hint {
        fields.core.flags2 |= DiFlags2::COW_EXTENT_SIZE;
        fields.core.cow_extent_size = hint;
    }
    store(target, &handle, &mut fields, (end > size).then_some(end))?;
    target.permissions_cache.update(&fields);
    Ok(())
}

/// Credits and space of a step: the blocks of the source and those that they replace lie in two groups.
fn needs(target: &Live) -> (u32, u64) {
    let inode = target.fields.read();
    let space = change::needed_space(&inode, ForkKind::Data, 2);
    let volume = &target.volume;
    (change::credits(volume, &inode, ForkKind::Data) + change::group_credits(volume) + STORE_CREDITS, space)
}
