//! What a map says of a run of blocks, and how a change of it goes on.

use undercroft_vfs::FileType;

use crate::numbers::{FileBlock, FsBlock};

/// One more than the largest number that a file block can have.
pub(super) const FILE_BLOCKS: u64 = 1 << 32;

/// Runs of blocks that are removed between two checks for room, and groups that they lie in.
pub(super) const BATCH: usize = 8;

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
    /// They stay in use: the caller has another owner for them.
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
    pub(super) fn hole(start: FileBlock, end: u64) -> Self {
        Self { start, len: end - u64::from(start.0), before: 0, state: RunState::Hole }
    }

    /// The same run cut to `len` blocks, if it is longer.
    pub(super) fn at_most(self, len: u64) -> Self {
        Self { len: self.len.min(len), ..self }
    }
}
