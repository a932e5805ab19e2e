//! Reading a directory from end to end.
//!
//! The positions of the stream are the places of entries ([`Position`]), which Linux shows too: a name keeps its place
//! while it is there, also when the directory moves out of its inode. A position need not be the beginning of an entry:
//! its block is read from the start, and what begins before the position is left out.

use std::ops::ControlFlow;

use undercroft_vfs::{DirEntry, DirOffset, Ino, Result};

use super::data::{DataBlock, Item};
use super::directory::{Directory, Form};
use super::entry::{Entry, Position, check_name, kind_of};
use super::short::{dots, dots_end};
use crate::da::{Content, Fork};
use crate::format::FsBlock;
use crate::format::block_header::HeaderKind;

type Sink<'s> = dyn FnMut(DirEntry<'_>) -> ControlFlow<()> + 's;

/// The code for a directory, for `.` and `..` where there are no entries for them.
const DIRECTORY: u8 = 2;

/// Data blocks are announced in windows of this many bytes.
const WINDOW_BYTES: usize = 256 << 10;

/// One listing.
pub(super) struct Listing<'a, 's> {
    pub(super) directory: Directory<'a>,
    pub(super) from: Position,
    pub(super) sink: &'s mut Sink<'s>,
}

impl Listing<'_, '_> {
    pub(super) fn run(mut self) -> Result<()> {
        // Whether the sink broke off no longer matters: nothing follows.
        match self.directory.content {
            Content::Inline(_) => self.give_short().map(drop),
            Content::Blocks(blocks) => self.give_blocks(&self.directory.fork(blocks)).map(drop),
        }
    }

    fn give_short(&mut self) -> Result<ControlFlow<()>> {
        let short = self.directory.short()?;
        let layout = self.directory.layout;
        let [dot, dot_dot] = dots(layout);
        let after = Position::of(layout, 0, dots_end(layout));
        let entries = [
            Entry { name: b".", ino: self.directory.ino.0, kind: DIRECTORY, position: dot, next: dot_dot },
            Entry { name: b"..", ino: short.parent, kind: DIRECTORY, position: dot_dot, next: after },
        ];
        for entry in entries.into_iter().chain(short.entries()) {
            if self.give(&entry, None)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn give_blocks(&mut self, fork: &Fork<'_>) -> Result<ControlFlow<()>> {
        if let Form::Single(block) = self.directory.form(fork)? {
            let data = self.directory.data(&block, true)?;
            return self.give_data(&data, block.home);
        }
        let end = self.directory.leaf_block();
        let window = (WINDOW_BYTES / self.directory.layout.block_bytes) as u32;
        let mut announced = 0;
        let (first, _) = self.from.split(self.directory.layout);
        let mut at = u32::try_from(first * u64::from(fork.unit)).unwrap_or(end).min(end);
        while let Some(present) = fork.blocks.next_present(at, end)? {
            at = present - present % fork.unit;
            if at >= announced {
                announced = at.saturating_add(window).min(end);
                fork.blocks.prefetch(at, announced);
            }
            let Some(block) = fork.read(at, HeaderKind::DirBlock)? else {
                return Err(fork.corrupt(None, format!("a part of its block {at} is not there")));
            };
            let data = self.directory.data(&block, false)?;
            if self.give_data(&data, block.home)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            at += fork.unit;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn give_data(&mut self, data: &DataBlock<'_>, home: FsBlock) -> Result<ControlFlow<()>> {
        for item in data.items() {
            let Item::Entry(entry) = self.directory.validated(Some(home), item)? else { continue };
            if self.give(&entry, Some(home))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn give(&mut self, entry: &Entry<'_>, home: Option<FsBlock>) -> Result<ControlFlow<()>> {
        if entry.position < self.from {
            return Ok(ControlFlow::Continue(()));
        }
        self.directory.validated(home, check_name(entry.name))?;
        self.directory.validated(home, self.directory.check_ino(entry.ino))?;
        Ok((self.sink)(DirEntry {
            name: entry.name,
            ino: Ino(entry.ino),
            kind: kind_of(entry.kind),
            next: DirOffset(entry.next.0),
        }))
    }
}
