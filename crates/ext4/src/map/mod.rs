//! From a block of a file to a block of the filesystem, whichever way the inode keeps its map.

mod extent;
mod indirect;

use undercroft_vfs::{InodeFlags, Result};

use crate::inode::Inode;
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;

/// One more than the largest number that a file block can have.
const FILE_BLOCKS: u64 = 1 << 32;

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
    let change = volume.fast_commits().run(inode.number, block);
    if let Some(run) = change.and_then(|c| c.over(block)) {
        return Ok(run);
    }
    let on_disk = if inode.flags.contains(InodeFlags::EXTENTS) {
        extent::lookup(volume, inode, block)?
    } else {
        indirect::lookup(volume, inode, block)?
    };
    Ok(match change {
        Some(change) => on_disk.at_most(change.len()),
        None => on_disk,
    })
}

/// Runs of a whole file in order, holes left out, up to `blocks` file blocks: for the journal and the orphan
/// file, whose every block must be there.
pub(crate) fn collect_runs(volume: &Volume, inode: &Inode, blocks: u64) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut next = 0;
    while next < blocks.min(FILE_BLOCKS) {
        let run = lookup(volume, inode, FileBlock(next as u32))?.at_most(blocks - next);
        next += run.len;
        if run.state != RunState::Hole {
            runs.push(run);
        }
    }
    Ok(runs)
}
