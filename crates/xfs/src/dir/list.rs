//! Reading a directory from end to end.
//!
//! The positions of the stream are the places of entries ([`Position`]), which Linux shows too: a name keeps its place
//! while it is there, also when the directory moves out of its inode. A position need not be the beginning of an entry:
//! its block is read from the start, and what begins before the position is left out.

use std::ops::ControlFlow;

use undercroft_vfs::{DirEntry, DirOffset, Ino, Result};

use super::data::{DataBlock, Item};
use super::directory::Directory;
use super::entry::{Entry, Position, check_name, kind_of};
use super::short::{dots, dots_end};
use crate::da::{Content, Fork};
use crate::error::Verdict;
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
    /// Blocks before this one have been announced to the cache.
    pub(super) announced: u32,
    pub(super) sink: &'s mut Sink<'s>,
}

impl Listing<'_, '_> {
    /// Returns before which block all have been announced.
    pub(super) fn run(mut self) -> Result<u32> {
        // Whether the sink broke off no longer matters: nothing follows.
        let _ = match self.directory.content {
            Content::Inline(_) => self.give_short()?,
            Content::Blocks(blocks) => self.give_blocks(&self.directory.fork(blocks))?,
        };
        Ok(self.announced)
    }

    fn give_short(&mut self) -> Result<ControlFlow<()>> {
        for entry in short_entries(&self.directory)? {
            if self.give(&entry, None)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn give_blocks(&mut self, fork: &Fork<'_>) -> Result<ControlFlow<()>> {
        if !self.directory.has_index(fork)? {
            let block = self.directory.first(fork)?;
            let data = self.directory.data(&block, true)?;
            return self.give_data(&data, block.home);
        }
        let end = self.directory.layout.index_start();
        let window = (WINDOW_BYTES / self.directory.layout.block_bytes) as u32;
        let (first, _) = self.from.split(self.directory.layout);
        let mut at = u32::try_from(first * u64::from(fork.unit)).unwrap_or(end).min(end);
        while let Some(present) = fork.blocks.next_present(at, end)? {
            at = present - present % fork.unit;
            if at >= self.announced {
                self.announced = at.saturating_add(window).min(end);
                fork.blocks.prefetch(at, self.announced, fork.unit);
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
        self.directory.validated(home, check_entry(&self.directory, entry))?;
        Ok((self.sink)(DirEntry {
            name: entry.name,
            ino: Ino(entry.ino),
            kind: kind_of(entry.kind),
            next: DirOffset(entry.next.0),
        }))
    }
}

/// Where a listing goes on that failed after the entries before `from`: behind the entry, where it is one that leads
/// nowhere or has a name that no file can have, otherwise behind the block. `None` where that is unknown.
pub(super) fn behind(directory: Directory<'_>, from: Position) -> Option<Position> {
    let is_wrong = |entry: &Entry<'_>| entry.position >= from && check_entry(&directory, entry).is_err();
    let blocks = match directory.content {
        Content::Inline(_) => {
            return short_entries(&directory).ok()?.find(is_wrong).map(|entry| entry.next);
        }
        Content::Blocks(blocks) => blocks,
    };
    let (fork, layout) = (directory.fork(blocks), directory.layout);
    let is_single = !directory.has_index(&fork).ok()?;
    let (number, _) = from.split(layout);
    let at = u32::try_from(number.checked_mul(u64::from(fork.unit))?).ok()?;
    if let Ok(Some(block)) = fork.read(at, HeaderKind::DirBlock)
        && let Ok(data) = directory.data(&block, is_single)
    {
        for item in data.items().map_while(Verdict::ok) {
            if let Item::Entry(entry) = item
                && is_wrong(&entry)
            {
                return Some(entry.next);
            }
        }
    }
    let is_last = is_single || at.checked_add(fork.unit)? >= directory.layout.index_start();
    (!is_last).then(|| Position::of(layout, number + 1, 0))
}

/// The entries of a directory in its inode, with those that it does not store.
fn short_entries<'a>(directory: &Directory<'a>) -> Result<impl Iterator<Item = Entry<'a>> + use<'a>> {
    let short = directory.short()?;
    let layout = directory.layout;
    let [dot, dot_dot] = dots(layout);
    let after = Position::of(layout, 0, dots_end(layout));
    let entries = [
        Entry { name: b".", ino: directory.ino.0, kind: DIRECTORY, position: dot, next: dot_dot },
        Entry { name: b"..", ino: short.parent, kind: DIRECTORY, position: dot_dot, next: after },
    ];
    Ok(entries.into_iter().chain(short.entries()))
}

/// Refuses an entry that cannot be one of a file, and `.` and `..` outside of their own places.
fn check_entry(directory: &Directory<'_>, entry: &Entry<'_>) -> Verdict<()> {
    check_name(entry.name)?;
    if matches!(entry.name, b"." | b"..") {
        let [dot, dot_dot] = dots(directory.layout);
        if entry.position != if entry.name == b"." { dot } else { dot_dot } {
            let name = entry.name.escape_ascii();
            return Err(format!("has an entry {name} among those of files, at {}", entry.position.0).into());
        }
    }
    directory.check_ino(entry.ino)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{LAYOUT, data_block, single_block};
    use super::*;
    use crate::da::memory::Memory;
    use crate::format::{Superblock, testing};

    /// Where the hash index begins.
    const LEAF: u32 = (32_u64 << 30 >> 12) as u32;

    fn superblock() -> Superblock {
        Superblock::from_sector(&testing::superblock_sector(|_| {})).unwrap()
    }

    fn directory<'a>(superblock: &'a Superblock, content: Content<'a>) -> Directory<'a> {
        Directory { ino: Ino(128), layout: &LAYOUT, superblock, content }
    }

    /// The names that a listing gives which goes on behind each failure, and the failures.
    fn rescued(directory: Directory<'_>) -> (Vec<String>, Vec<String>) {
        let (mut names, mut failures) = (Vec::new(), Vec::new());
        let mut from = Position(0);
        loop {
            let start = from;
            let mut sink = |entry: DirEntry<'_>| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                from = Position(entry.next.0);
                ControlFlow::Continue(())
            };
            match (Listing { directory, from: start, announced: 0, sink: &mut sink }).run() {
                Ok(_) => return (names, failures),
                Err(error) => failures.push(error.to_string()),
            }
            match behind(directory, from) {
                Some(next) => from = next,
                None => return (names, failures),
            }
        }
    }

    /// Three data blocks with a name each, and a leaf.
    fn three_blocks() -> Memory {
        let mut memory = Memory { unit: 1, ..Memory::default() };
        for (at, name) in [b"a", b"b", b"c"].into_iter().enumerate() {
            memory.blocks.insert(at as u32, data_block(&[(name, 131 + at as u64, 1)]));
        }
        memory.blocks.insert(LEAF, vec![0; 4096]);
        memory
    }

    #[test]
    fn a_listing_does_not_read_the_hash_index() {
        let (superblock, memory) = (superblock(), three_blocks());
        let (names, failures) = rescued(directory(&superblock, Content::Blocks(&memory)));
        assert_eq!((names, failures.len()), (vec!["a".into(), "b".into(), "c".into()], 0));
        assert!(!memory.was_read(LEAF));
    }

    #[test]
    fn a_listing_goes_on_behind_a_bad_block() {
        let superblock = superblock();
        for (word, zeroed) in [("begins with", 0), ("name of 0 bytes", 72)] {
            let mut memory = three_blocks();
            memory.blocks.get_mut(&1).unwrap()[zeroed] = 0;
            let (names, failures) = rescued(directory(&superblock, Content::Blocks(&memory)));
            assert_eq!(names, ["a", "c"]);
            assert!(failures.iter().all(|failure| failure.contains(word)), "{failures:?}");
        }
        // The last place that a data block can have.
        let mut memory = three_blocks();
        memory.blocks.insert(LEAF - 1, vec![0; 4096]);
        let (names, failures) = rescued(directory(&superblock, Content::Blocks(&memory)));
        assert_eq!((names.len(), failures.is_empty()), (3, false));
    }

    #[test]
    fn a_listing_goes_on_behind_an_entry_that_cannot_be_one() {
        let superblock = superblock();
        let bytes = single_block(
            128,
            128,
            &[
                (b"a", 131, 1),
                (b"b", u64::MAX >> 8, 1),
                (b"x/y", 132, 1),
                (b"..", 134, 2),
                (b"own", 129, 1),
                (b"c", 133, 1),
            ],
        );
        let mut memory = Memory { unit: 1, ..Memory::default() };
        memory.blocks.insert(0, bytes);
        let (names, failures) = rescued(directory(&superblock, Content::Blocks(&memory)));
        assert_eq!(names, [".", "..", "a", "c"]);
        assert_eq!(failures.len(), 4, "{failures:?}");
        // In the inode: `..` and one name lead nowhere.
        let short =
            [&[2, 0, 0, 0, 0, 0][..], b"\x01\0\x60a\x01\0\0\0\0", b"\x01\0\x70b\x01\0\0\0\x83"].concat();
        let (names, failures) = rescued(directory(&superblock, Content::Inline(&short)));
        assert_eq!((names, failures.len()), (vec![".".into(), "b".into()], 2));
    }
}
