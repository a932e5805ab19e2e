//! The blocks of a directory in order, brought in ahead of their use.

use undercroft_vfs::Result;

use super::directory::{Block, Directory};
use crate::map::{self, Run, RunState};
use crate::numbers::{FileBlock, FsBlock};

/// Blocks are fetched in windows of this many bytes: large enough that a cold directory costs few reads, small
/// enough that a look at its beginning does not cost the whole.
const WINDOW_BYTES: u64 = 256 << 10;

/// A walk through a directory's blocks. Where the directory has a hole, which it never should, it has no names;
/// Linux passes over holes as well.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    directory: Directory<'a>,
    next: u64,
    run: Option<Run>,
}

impl<'a> Walk<'a> {
    /// Begins at file block `first`.
    pub(super) fn new(directory: Directory<'a>, first: u64) -> Self {
        Self { directory, next: first, run: None }
    }

    pub(super) fn next(&mut self) -> Result<Option<Block>> {
        while self.next < self.directory.blocks {
            let at = FileBlock(self.next as u32);
            self.prefetch()?;
            let run = match self.run {
                Some(run) if end_of(run) > self.next => run,
                _ => map::lookup(self.directory.volume, self.directory.inode, at)?,
            };
            self.run = Some(run);
            let RunState::Mapped(first) = run.state else {
                self.next = end_of(run);
                continue;
            };
            let home = FsBlock(first.0 + (self.next - u64::from(run.start.0)));
            self.next += 1;
            return Block::read(&self.directory, at, home).map(Some);
        }
        Ok(None)
    }

    /// Fetches the window that begins here. A walk that resumes within a window finds what an earlier one
    /// fetched.
    fn prefetch(&self) -> Result<()> {
        let window = (WINDOW_BYTES / u64::from(self.directory.volume.block_bytes())).max(1);
        let end = (self.next + window).min(self.directory.blocks);
        if !self.next.is_multiple_of(window) || end - self.next < 2 {
            return Ok(());
        }
        let mut homes = Vec::with_capacity((end - self.next) as usize);
        let mut at = self.next;
        while at < end {
            let run = map::lookup(self.directory.volume, self.directory.inode, FileBlock(at as u32))?;
            let stop = end_of(run).min(end);
            if let RunState::Mapped(first) = run.state {
                homes.extend(first.0..first.0 + (stop - at));
            }
            at = stop;
        }
        self.directory.volume.buffers().prefetch_scattered(&homes);
        Ok(())
    }
}

fn end_of(run: Run) -> u64 {
    u64::from(run.start.0) + run.len
}
