//! Finding a name by its hash.

use undercroft_vfs::{Ino, Result};

use super::directory::{Directory, Form};
use super::entry::Entry;
use super::leaf::{Leaf, RawLeafEntry, with_hash};
use crate::da::{Block, Content, Fork, Leaves, Root, fold_case, hash_name, hash_name_folded};
use crate::format::block_header::HeaderKind;

/// One search. Where capital letters are not distinguished, a name that is equal in every byte goes before the first
/// that is equal but for them.
pub(super) struct Search<'a> {
    directory: Directory<'a>,
    name: &'a [u8],
    hash: u32,
    folded: Option<u64>,
}

impl<'a> Search<'a> {
    pub(super) fn new(directory: Directory<'a>, name: &'a [u8]) -> Self {
        let hash = if directory.layout.folds_case { hash_name_folded(name) } else { hash_name(name) };
        Self { directory, name, hash, folded: None }
    }

    /// The number that the name leads to.
    pub(super) fn run(mut self) -> Result<Option<Ino>> {
        let found = match self.directory.content {
            Content::Inline(_) => self.run_short()?,
            Content::Blocks(blocks) => self.run_indexed(&self.directory.fork(blocks))?,
        };
        let Some(ino) = found.or(self.folded) else { return Ok(None) };
        self.directory.validated(None, self.directory.check_ino(ino))?;
        Ok(Some(Ino(ino)))
    }

    fn run_short(&mut self) -> Result<Option<u64>> {
        let short = self.directory.short()?;
        Ok(match self.name {
            b"." => Some(self.directory.ino.0),
            b".." => Some(short.parent),
            _ => short.entries().find_map(|entry| self.compare(&entry)),
        })
    }

    fn run_indexed(&mut self, fork: &Fork<'a>) -> Result<Option<u64>> {
        match self.directory.form(fork)? {
            Form::Single(block) => {
                let data = self.directory.data(&block, true)?;
                self.follow(data.index.unwrap_or(&[]), fork, Some(&block))
            }
            Form::Leaf(block) => {
                let leaf = fork.validated(block.home, Leaf::validate(&block.bytes, self.directory.layout))?;
                self.follow(leaf.entries, fork, None)
            }
            Form::Tree => self.run_tree(fork),
        }
    }

    fn run_tree(&mut self, fork: &Fork<'a>) -> Result<Option<u64>> {
        let mut leaves = Leaves::find(*fork, Root(self.directory.leaf_block()), self.hash)?;
        while let Some(block) = leaves.next()? {
            let leaf = fork.validated(block.home, Leaf::validate(&block.bytes, self.directory.layout))?;
            if let Some(ino) = self.follow(leaf.entries, fork, None)? {
                return Ok(Some(ino));
            }
            // The next leaf may go on with the hash with which this one ends.
            if leaf.entries.last().is_some_and(|last| last.hash() > self.hash) {
                break;
            }
        }
        Ok(None)
    }

    /// Looks at the names to which the entries of the hash lead: all in `single`, where the directory has one block.
    fn follow(
        &mut self,
        entries: &[RawLeafEntry],
        fork: &Fork<'a>,
        single: Option<&Block>,
    ) -> Result<Option<u64>> {
        for position in with_hash(entries, self.hash).iter().filter_map(RawLeafEntry::position) {
            let (number, at) = position.split(self.directory.layout);
            let read;
            let block = match single {
                Some(block) if number == 0 => block,
                _ => {
                    let from = number as u32 * fork.unit;
                    let found = if single.is_some() { None } else { fork.read(from, HeaderKind::DirBlock)? };
                    read = found.ok_or_else(|| {
                        fork.corrupt(None, format!("its index leads to block {from}, which is not there"))
                    })?;
                    &read
                }
            };
            let data = self.directory.data(block, single.is_some())?;
            let entry = fork.validated(block.home, data.entry(at))?;
            if let Some(ino) = self.compare(&entry) {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    fn compare(&mut self, entry: &Entry<'_>) -> Option<u64> {
        if entry.name == self.name {
            return Some(entry.ino);
        }
        let folds = self.directory.layout.folds_case && self.folded.is_none();
        let fold = |name: &[u8]| name.iter().map(|&byte| fold_case(byte)).collect::<Vec<_>>();
        if folds && entry.name.len() == self.name.len() && fold(entry.name) == fold(self.name) {
            self.folded = Some(entry.ino);
        }
        None
    }
}
