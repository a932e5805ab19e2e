//! Reading a map, whichever way the inode keeps it.

use undercroft_vfs::{FileType, Result};

use super::run::{FILE_BLOCKS, Run, RunState};
use super::{extent, indirect};
use crate::error::corrupt_inode;
use crate::fast_commit::Overridden;
use crate::inode::{Inode, InodeFlags};
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;

/// Far more pieces than a file made at one go has. A hostile map can name the same blocks over and over, so
/// the size of the device is no bound.
const MAX_PIECES: usize = 1 << 16;

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
        FileType::Symlink => !inode.has_inline_data() && !inode.is_fast_link(volume),
        _ => false,
    }
}

/// Whether the map can say that a block was never written.
pub(crate) fn has_extents(inode: &Inode) -> bool {
    inode.flags.contains(InodeFlags::EXTENTS)
}
