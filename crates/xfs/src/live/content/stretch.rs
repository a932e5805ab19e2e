//! What lies under a block of a file, as a reader or a writer sees it.

use crate::format::FsBlock;

/// How the blocks of a stretch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Hole,
    /// Behind the end of the file, and written before: no file owns the bytes. Reads as a hole.
    PostEof,
    Unwritten,
    /// Written, and not shared.
    Written,
    /// Other files have them too.
    Shared,
}

/// Blocks of a file of one kind that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) state: State,
    /// Where the first one lies; of no meaning for a hole.
    pub(super) home: FsBlock,
}

impl Stretch {
    /// Where a block of it lies.
    pub(super) fn home_of(&self, block: u64) -> FsBlock {
        FsBlock(self.home.0 + (block - self.start))
    }
}
