//! From a block of a file to a block of the filesystem, whichever way the inode keeps its map.
//!
//! What changes the map gets a handle and the inode's fields, held alone, and keeps the count of the file's blocks; the
//! caller stores the inode, also after an error, since what was changed before it stays changed. Long changes stop
//! where the handle has no room left, with the map good, and say [where](Progress) they go on.

mod extent;
mod indirect;
mod space;
#[cfg(test)]
mod tests;

use undercroft_vfs::{Error, FileType, Result};

use crate::alloc::ALLOCATE_CREDITS;
use crate::error::corrupt_inode;
use crate::fast_commit::Overridden;
use crate::inode::{Inode, InodeFlags};
use crate::numbers::{FileBlock, FsBlock};
use crate::symlink;
use crate::transaction::Handle;
use crate::volume::Volume;
pub(crate) use extent::seal_extent_node;

/// One more than the largest number that a file block can have.
const FILE_BLOCKS: u64 = 1 << 32;

/// Far more pieces than a file made at one go has. A hostile map can name the same blocks over and over, so
/// the size of the device is no bound.
const MAX_PIECES: usize = 1 << 16;

/// Runs of blocks that are removed between two questions for room, and groups that they lie in.
const BATCH: usize = 8;

/// How far a change has come that may take more than one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is not done goes on under another handle"]
pub(crate) enum Progress {
    Done,
    /// The handle had no room left before this file block.
    From(u64),
}

/// What becomes of blocks that are taken out of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// They are freed, and have never been in the log.
    Data,
    /// They are freed, and may be in the log.
    Metadata,
    /// They stay in use: the caller knows whose they are.
    Kept,
}

impl Removed {
    /// For the blocks of an inode of this kind, which are freed.
    pub(crate) fn of(kind: FileType) -> Self {
        if kind == FileType::Regular { Self::Data } else { Self::Metadata }
    }
}

/// A run of file blocks that are mapped alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The block that was asked for.
    pub(crate) start: FileBlock,
    /// Blocks from there on; at least 1. May reach past the end of the file.
    pub(crate) len: u64,
    /// Blocks before it that are known to be mapped alike, and so to lie before it on the device too.
    pub(crate) before: u64,
    pub(crate) state: RunState,
}

/// What lies under a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    /// Nothing.
    Hole,
    /// Allocated, reads as zeroes.
    Unwritten(FsBlock),
    /// Data, in consecutive blocks from this one on.
    Mapped(FsBlock),
}

impl Run {
    fn hole(start: FileBlock, end: u64) -> Self {
        Self { start, len: end - u64::from(start.0), before: 0, state: RunState::Hole }
    }

    /// The same run cut to `len` blocks, if it is longer.
    fn at_most(self, len: u64) -> Self {
        Self { len: self.len.min(len), ..self }
    }
}

/// What lies under `block`, and for how many blocks the same goes on. Inline data is not mapped: the caller
/// asks [`crate::inline`] first.
///
/// # Errors
/// Corruption of the map, naming inode and block; I/O failure.
pub(crate) fn lookup(volume: &Volume, inode: &Inode, block: FileBlock) -> Result<Run> {
    let Some(change) = volume.fast_commits().inode(inode.number).filter(|change| change.remaps()) else {
        return lookup_on_disk(volume, inode, block);
    };
    let (change, len) = change.lookup(block);
    let len = u64::from(len);
    Ok(match change {
        // What lies before it may have been changed.
        Overridden::OnDisk => Run { before: 0, ..lookup_on_disk(volume, inode, block)?.at_most(len) },
        Overridden::Hole => Run { start: block, len, before: 0, state: RunState::Hole },
        Overridden::Mapped { pblk, unwritten: true } => {
            Run { start: block, len, before: 0, state: RunState::Unwritten(pblk) }
        }
        Overridden::Mapped { pblk, unwritten: false } => {
            Run { start: block, len, before: 0, state: RunState::Mapped(pblk) }
        }
    })
}

fn lookup_on_disk(volume: &Volume, inode: &Inode, block: FileBlock) -> Result<Run> {
    if inode.flags.contains(InodeFlags::EXTENTS) {
        extent::lookup(volume, inode, block)
    } else {
        indirect::lookup(volume, inode, block)
    }
}

/// The pieces of a file that must have every block, like the journal and the orphan file, in order.
///
/// # Errors
/// Corruption of the map; a hole; more than [`MAX_PIECES`] pieces.
pub(crate) fn collect_whole(
    volume: &Volume,
    inode: &Inode,
    blocks: u64,
) -> Result<Vec<(FileBlock, FsBlock, u64)>> {
    let wrong = |detail: String| Err(corrupt_inode("block map", inode.number, None, detail));
    let mut pieces = Vec::new();
    let mut next = 0;
    while next < blocks.min(FILE_BLOCKS) {
        let run = lookup(volume, inode, FileBlock(next as u32))?.at_most(blocks - next);
        let RunState::Mapped(first) = run.state else {
            return wrong(format!("block {next} of the file is missing or was never written"));
        };
        if pieces.len() == MAX_PIECES {
            return wrong(format!("the file is in more than {MAX_PIECES} pieces"));
        }
        pieces.push((run.start, first, run.len));
        next += run.len;
    }
    Ok(pieces)
}

/// The map of a file without blocks, as `i_block` has it; `extents` says which kind.
pub(crate) fn empty(extents: bool) -> [u8; 60] {
    if extents { extent::empty_root() } else { [0; 60] }
}

/// One more than the largest number that a block of this file can have.
pub(crate) fn limit(volume: &Volume, inode: &Inode) -> u64 {
    limit_of_maps(volume, has_extents(inode))
}

/// The same of all maps with or without extents.
pub(crate) fn limit_of_maps(volume: &Volume, extents: bool) -> u64 {
    if extents { FILE_BLOCKS - 1 } else { indirect::limit(u64::from(volume.block_bytes() / 4)) }
}

/// Whether an inode has a map: `i_block` may hold something else.
pub(crate) fn is_mapped(volume: &Volume, inode: &Inode) -> bool {
    match inode.kind {
        FileType::Regular | FileType::Directory => !inode.has_inline_data(),
        FileType::Symlink => !inode.has_inline_data() && !symlink::is_fast(volume, inode),
        _ => false,
    }
}

/// Whether the map can say that a block was never written.
pub(crate) fn has_extents(inode: &Inode) -> bool {
    inode.flags.contains(InodeFlags::EXTENTS)
}

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

/// Blocks that taking everything out of the file changes at most, if that is certain to be one step: few pieces, of which
/// the inode itself knows. `None` where it may be more.
pub(crate) fn remove_all_credits(volume: &Volume, inode: &Inode) -> Option<u32> {
    (has_extents(inode) && extent::goes_at_once(volume, inode)).then(|| remove_credits(inode))
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

/// Moves what lies from `from` on and before `to` up by `by` blocks. If it is not done, the rest lies between `from`
/// and the block that it says. No extent may [straddle](split_at) `from`.
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

/// Gives a file another block, whose content the journal has: of a directory, or a symbolic link's target.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace): nothing has changed then. Corruption; I/O failure.
pub(crate) fn grow(handle: &Handle<'_>, inode: &mut Inode, at: FileBlock) -> Result<FsBlock> {
    let volume = handle.volume();
    let goal = match at.0.checked_sub(1).map(|before| lookup(volume, inode, FileBlock(before))).transpose()? {
        Some(Run { state: RunState::Mapped(before), .. }) => FsBlock(before.0 + 1),
        _ => space::goal(volume, inode)?,
    };
    let allocator = &volume.writer()?.allocator;
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
