//! Moving what follows a block to another place in the file, a leaf at a time.
//!
//! A move down goes from the first leaf to the last, a move up from the last to the first. So extents that have moved
//! never overlap those that have not, and a crash in between leaves a good tree.

use undercroft_vfs::Result;

use super::change::credits;
use super::raw::RawExtent;
use super::tree::{Outcome, Tree};
use crate::inode::Inode;
use crate::map::run::{FILE_BLOCKS, Progress};
use crate::transaction::Handle;

/// Moves every extent from `from` on down by `by` blocks, into a hole.
pub(in crate::map) fn shift_down(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    by: u64,
) -> Result<Progress> {
    let mut tree = Tree::new(handle, inode);
    let mut from = from;
    while from < FILE_BLOCKS {
        let path = tree.find(from)?;
        let (place, count) = path.first_after(tree.inode, from);
        if place < count {
            let Some(first) = path.extent(tree.inode, place).filter(|extent| extent.first >= by) else {
                return Err(tree.corrupt(&path, format!("cannot move down by {by} blocks")));
            };
            if !handle.has_room(credits(&path)) {
                return Ok(Progress::From(from));
            }
            let hole = place.checked_sub(1).and_then(|at| path.extent(tree.inode, at));
            if hole.is_some_and(|before| before.end() > first.first - by) {
                let detail = format!("file block {} is mapped, where others are to come", first.first - by);
                return Err(tree.corrupt(&path, detail));
            }
            tree.move_extents(&path, place..count, |first| first - by);
        }
        from = path.high;
    }
    Ok(Progress::Done)
}

/// Moves every extent from `from` on, and before `to`, up by `by` blocks. None of them straddles `from`. If not all is
/// done, what is left lies between `from` and a new `to`.
pub(in crate::map) fn shift_up(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
    by: u64,
) -> Result<Progress> {
    let mut tree = Tree::new(handle, inode);
    let mut to = to;
    while to > from {
        let path = tree.find(to - 1)?;
        let (start, end) = path.extents(tree.inode, |extents: &[RawExtent]| {
            let before = |block: u64| extents.partition_point(|extent| extent.first() < block);
            (before(from), before(to))
        });
        if start < end {
            if path.extent(tree.inode, end - 1).is_none_or(|last| last.end() + by > FILE_BLOCKS) {
                return Err(tree.corrupt(&path, format!("cannot move up by {by} blocks")));
            }
            if !handle.has_room(credits(&path)) {
                return Ok(Progress::From(to));
            }
            tree.move_extents(&path, start..end, |first| first + by);
        }
        if start > 0 || path.low <= from || to <= path.low {
            break;
        }
        to = path.low;
    }
    Ok(Progress::Done)
}

/// Cuts the extent in two that straddles `at`.
pub(in crate::map) fn split_at(handle: &Handle<'_>, inode: &mut Inode, at: u64) -> Result<()> {
    let mut tree = Tree::new(handle, inode);
    loop {
        let path = tree.find(at)?;
        let (place, _) = path.first_after(tree.inode, at);
        let Some(extent) = path.extent(tree.inode, place).filter(|extent| extent.first < at) else {
            return Ok(());
        };
        if tree.splice(&path, place..place + 1, &[extent.before(at), extent.from(at)])? == Outcome::Done {
            return Ok(());
        }
    }
}
