//! From a block of a file to a block of the filesystem, whichever way the inode keeps its map.

mod extent;
mod indirect;

use undercroft_vfs::{InodeFlags, Result};

use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::journal::Overridden;
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;

/// One more than the largest number that a file block can have.
const FILE_BLOCKS: u64 = 1 << 32;

/// Far more pieces than a file made at one go has. A hostile map can name the same blocks over and over, so
/// the size of the device is no bound.
const MAX_PIECES: usize = 1 << 16;

/// A run of file blocks that are mapped alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The block that was asked for.
    pub(crate) start: FileBlock,
    /// Blocks from there on; at least 1. May reach past the end of the file.
    pub(crate) len: u64,
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
        Self { start, len: end - u64::from(start.0), state: RunState::Hole }
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
        Overridden::OnDisk => lookup_on_disk(volume, inode, block)?.at_most(len),
        Overridden::Hole => Run { start: block, len, state: RunState::Hole },
        Overridden::Mapped { pblk, unwritten: true } => {
            Run { start: block, len, state: RunState::Unwritten(pblk) }
        }
        Overridden::Mapped { pblk, unwritten: false } => {
            Run { start: block, len, state: RunState::Mapped(pblk) }
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
