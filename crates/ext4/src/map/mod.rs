//! From a block of a file to a block of the filesystem, whichever way the inode keeps its map.
//!
//! Functions that change the map get a handle and the inode's fields, held exclusively, and keep the count of the
//! file's blocks. The caller stores the inode, also after an error, since changes made before it stay. Long changes
//! stop where the handle has no room left, with the map good, and say [where](Progress) they go on.

mod extent;
mod indirect;
mod lookup;
mod run;
mod space;
#[cfg(test)]
mod tests;

use undercroft_vfs::{Error, Result};

use crate::alloc::ALLOCATE_CREDITS;
use crate::inode::Inode;
use crate::numbers::{FileBlock, FsBlock};
use crate::transaction::Handle;
use crate::volume::Volume;
pub(crate) use extent::seal_extent_node;
pub(crate) use lookup::{collect_whole, empty, has_extents, is_mapped, limit, limit_of_maps, lookup};
use run::{BATCH, FILE_BLOCKS};
pub(crate) use run::{Progress, Removed, Run, RunState};

/// How many blocks one insertion, or the first step of another change, may change, those of the allocator included, and
/// the inode not.
pub(crate) fn credits(inode: &Inode) -> u32 {
    ALLOCATE_CREDITS
        + if has_extents(inode) { extent::credits(extent::depth(inode)) } else { indirect::CREDITS }
}

/// The same for the first step of a removal.
pub(crate) fn remove_credits(inode: &Inode) -> u32 {
    credits(inode) + BATCH as u32 * ALLOCATE_CREDITS
}

/// Nodes that the map needs at most when `count` consecutive blocks of the file are removed and others inserted in their
/// place.
pub(crate) fn nodes_most(volume: &Volume, inode: &Inode, count: u64) -> u64 {
    if has_extents(inode) {
        // Either may split a node of each level.
        2 * (u64::from(extent::depth(inode)) + 1)
    } else {
        let in_a_leaf = u64::from(volume.block_bytes() / 4);
        3 + count / in_a_leaf
    }
}

/// Blocks that taking everything out of the file changes at most, if that is certain to be one step: few pieces, of which
/// the inode itself knows. `None` where it may be more.
pub(crate) fn remove_all_credits(volume: &Volume, inode: &Inode) -> Option<u32> {
    (has_extents(inode) && extent::is_removed_in_one_step(volume, inode)).then(|| remove_credits(inode))
}

/// Inserts `count` blocks from `first` on, which are the caller's, where the file has a hole.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace) for the map itself, [`FileTooLarge`](Error::FileTooLarge): nothing has changed then, if
/// there were no more than fit [one entry](max_run). Corruption; I/O failure.
pub(crate) fn insert(
    handle: &Handle<'_>,
    inode: &mut Inode,
    at: FileBlock,
    first: FsBlock,
    count: u64,
    written: bool,
) -> Result<()> {
    let at = u64::from(at.0);
    if at + count > limit(handle.volume(), inode) {
        return Err(Error::FileTooLarge);
    }
    if has_extents(inode) {
        extent::insert(handle, inode, at, first, count, written)
    } else if written {
        indirect::insert(handle, inode, at, first, count)
    } else {
        Err(unsupported("space that was never written"))
    }
}

/// The most blocks that are inserted all at once or not at all.
pub(crate) fn max_run(written: bool) -> u64 {
    extent::max_len(written)
}

/// Takes the blocks of the file from `from` on and before `to` out of it. The map's own, where none is left, are freed.
///
/// # Errors
/// No space to cut an extent in two; corruption; I/O failure.
pub(crate) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
    removed: Removed,
) -> Result<Progress> {
    let to = to.min(FILE_BLOCKS);
    if has_extents(inode) {
        extent::remove(handle, inode, from, to, removed)
    } else {
        indirect::remove(handle, inode, from, to, removed)
    }
}

/// Marks what is mapped from `from` on and before `to` as written or as never written. Holes stay holes.
///
/// # Errors
/// No space to cut an extent in two; corruption; I/O failure.
pub(crate) fn mark(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
    written: bool,
) -> Result<Progress> {
    match has_extents(inode) {
        true => extent::mark(handle, inode, from, to.min(FILE_BLOCKS), written),
        // All there is was written.
        false if written => Ok(Progress::Done),
        false => Err(unsupported("space that was never written")),
    }
}

/// Moves what lies from `from` on down by `by` blocks, into a hole.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn shift_down(handle: &Handle<'_>, inode: &mut Inode, from: u64, by: u64) -> Result<Progress> {
    if !has_extents(inode) {
        return Err(unsupported("moving what is in a file"));
    }
    extent::shift_down(handle, inode, from, by)
}

/// Moves what lies from `from` on and before `to` up by `by` blocks. If it returns unfinished, the rest lies between
/// `from` and the block that it returns. No extent may [straddle](split_at) `from`.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn shift_up(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
    by: u64,
) -> Result<Progress> {
    if !has_extents(inode) {
        return Err(unsupported("moving what is in a file"));
    }
    extent::shift_up(handle, inode, from, to.min(FILE_BLOCKS), by)
}

/// Cuts the extent in two in which the file block lies, unless one begins with it.
///
/// # Errors
/// No space for it; corruption; I/O failure.
pub(crate) fn split_at(handle: &Handle<'_>, inode: &mut Inode, at: u64) -> Result<()> {
    if has_extents(inode) { extent::split_at(handle, inode, at) } else { Ok(()) }
}

/// Calls `visit` with each block of the map itself; with some of them several times.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn for_each_node(volume: &Volume, inode: &Inode, visit: &mut dyn FnMut(FsBlock)) -> Result<()> {
    if has_extents(inode) {
        extent::nodes(volume, inode, visit)
    } else {
        indirect::nodes(volume, inode, visit)
    }
}

/// Blocks that [`relocate_nodes`] changes at most.
pub(crate) fn relocate_credits(inode: &Inode) -> u32 {
    // For each: it, the block that leads to it, and blocks of the allocator for both places.
    let levels = if has_extents(inode) { extent::depth(inode) } else { 3 };
    levels * (2 + 2 * ALLOCATE_CREDITS)
}

/// Moves blocks of the map on the way to a file block that lie at or past `end` to where the allocator has room. Returns
/// the file block from which on another way leads.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace): the map is good, and some blocks may have moved. Corruption; I/O failure.
pub(crate) fn relocate_nodes(handle: &Handle<'_>, inode: &mut Inode, at: u64, end: FsBlock) -> Result<u64> {
    if has_extents(inode) {
        extent::relocate(handle, inode, at, end)
    } else {
        indirect::relocate(handle, inode, at, end)
    }
}

/// Gives a file another block, whose content the journal has: of a directory, or a symbolic link's target.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace): nothing has changed then. Corruption; I/O failure.
pub(crate) fn grow(handle: &Handle<'_>, inode: &mut Inode, at: FileBlock) -> Result<FsBlock> {
    let volume = handle.volume();
    let goal = match at.0.checked_sub(1).map(|before| lookup(volume, inode, FileBlock(before))).transpose()? {
        Some(Run { state: RunState::Mapped(before), .. }) => FsBlock(before.0 + 1),
        _ => space::goal(handle, inode),
    };
    let allocator = &handle.writer().allocator;
    let (block, _) = allocator.allocate(handle, goal, 1, allocator.purpose_for(inode))?;
    match insert(handle, inode, at, block, 1, true) {
        Ok(()) => Ok(block),
        Err(error) => {
            allocator.free(handle, block, 1)?;
            Err(error)
        }
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported(format!("{what}, in a file with a block map").into())
}
