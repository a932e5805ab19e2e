//! Finding a name by its hash.

use undercroft_vfs::{Ino, Result};

use super::directory::{Directory, Form};
use super::entry::Entry;
use super::leaf::{Leaf, RawLeafEntry, with_hash};
use crate::da::{Block, Content, Fork, Leaves, Root, fold_case};
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
        let hash = directory.layout.hash(name);
        Self { directory, name, hash, folded: None }
    }

    /// The number that the name leads to.
    pub(super) fn run(mut self) -> Result<Option<Ino>> {
        let found = match self.directory.content {
            Content::Inline(_) => self.run_short()?,
            Content::Blocks(blocks) => {
                let fork = self.directory.fork(blocks);
                match self.name {
                    b"." => Some(self.directory.ino.0),
                    b".." => Some(self.directory.parent(&fork)?),
                    _ => self.run_indexed(&fork)?,
                }
            }
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
        let mut leaves = Leaves::find(*fork, Root(self.directory.layout.index_start()), self.hash)?;
        while let Some(block) = leaves.next()? {
            let leaf = fork.validated(block.home, Leaf::validate(&block.bytes, self.directory.layout))?;
            if leaf.best.is_some() {
                return Err(
                    fork.corrupt(Some(block.home), "is a directory's only leaf, and was found in a tree")
                );
            }
            if let Some(ino) = self.follow(leaf.entries, fork, None)? {
                return Ok(Some(ino));
            }
            // The next leaf goes on with the hash only if this one ends with it.
            if leaf.entries.last().is_some_and(|last| last.hash() != self.hash) {
                break;
            }
        }
        Ok(None)
    }

    /// Looks at the names to which the entries of the hash lead: all in `single`, where the directory has one block. Entries
    /// that lead to one block one after another have it read once.
    fn follow(
        &mut self,
        entries: &[RawLeafEntry],
        fork: &Fork<'a>,
        single: Option<&Block>,
    ) -> Result<Option<u64>> {
        let layout = self.directory.layout;
        let positions = with_hash(entries, self.hash).iter().filter_map(RawLeafEntry::position);
        let mut places = positions.map(|position| position.split(layout)).peekable();
        while let Some(&(number, _)) = places.peek() {
            let from = number as u32 * fork.unit;
            let read = if single.is_some() { None } else { fork.read(from, HeaderKind::DirBlock)? };
            let block = single.filter(|_| number == 0).or(read.as_ref()).ok_or_else(|| {
                fork.corrupt(None, format!("its index leads to block {from}, which is not there"))
            })?;
            let data = self.directory.data(block, single.is_some())?;
            while let Some((_, at)) = places.next_if(|place| place.0 == number) {
                let entry = fork.validated(block.home, data.entry(at))?;
                if let Some(ino) = self.compare(&entry) {
                    return Ok(Some(ino));
                }
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

#[cfg(test)]
mod tests {
    use super::super::testing::{LAYOUT, data_block};
    use super::*;
    use crate::da::hash_name;
    use crate::da::memory::Memory;
    use crate::format::{Superblock, testing};

    const LEAF: u32 = (32_u64 << 30 >> 12) as u32;

    /// A leaf of the tree, or the only one, whose entries all have one hash.
    fn leaf(magic: u16, hash: u32, positions: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[8..10].copy_from_slice(&magic.to_be_bytes());
        bytes[56..58].copy_from_slice(&(positions.len() as u16).to_be_bytes());
        for (number, position) in positions.iter().enumerate() {
            bytes[64 + number * 8..][..4].copy_from_slice(&hash.to_be_bytes());
            bytes[68 + number * 8..][..4].copy_from_slice(&position.to_be_bytes());
        }
        bytes
    }

    fn found(memory: &Memory, name: &[u8]) -> Result<Option<Ino>> {
        let superblock = Superblock::from_sector(&testing::superblock_sector(|_| {})).unwrap();
        let (superblock, content) = (&superblock, Content::Blocks(memory));
        Search::new(Directory { ino: Ino(128), layout: &LAYOUT, superblock, content }, name).run()
    }

    #[test]
    fn entries_that_lead_to_one_block_have_it_read_once() {
        let mut memory = Memory { unit: 1, ..Memory::default() };
        memory.blocks.insert(0, data_block(&[(b"a", 131, 1), (b"b", 132, 1), (b"c", 133, 1)]));
        memory.blocks.insert(1, data_block(&[(b"d", 134, 1)]));
        let positions = [8, 10, 12, 512 + 8];
        memory.blocks.insert(LEAF, leaf(0x3df1, hash_name(b"x"), &positions));
        assert_eq!(found(&memory, b"x").unwrap(), None);
        assert_eq!(memory.reads.borrow()[..], [LEAF, 0, 1]);
    }

    #[test]
    fn the_parent_is_found_without_the_index() {
        let mut memory = Memory { unit: 1, ..Memory::default() };
        let dots: [(&[u8], u64, u8); 2] = [(b".", 128, 2), (b"..", 140, 2)];
        memory.blocks.insert(0, data_block(&dots));
        memory.blocks.insert(LEAF, vec![0; 4096]);
        assert_eq!(found(&memory, b"..").unwrap(), Some(Ino(140)));
        assert!(!memory.was_read(LEAF));
        memory.blocks.insert(0, data_block(&[dots[0], (b"no", 140, 2)]));
        assert!(found(&memory, b"..").unwrap_err().to_string().contains("in the place of"));
    }

    #[test]
    fn a_search_ends_with_the_leaf_that_the_hash_leads_to() {
        let mut memory = Memory { unit: 1, ..Memory::default() };
        let mut first = leaf(0x3dff, hash_name(b"x") - 1, &[0]);
        (first[3], first[59]) = (1, 1);
        memory.blocks.insert(LEAF, first);
        assert_eq!(found(&memory, b"x").unwrap(), None);
    }

    #[test]
    fn the_only_leaf_of_a_directory_is_none_of_a_tree() {
        let mut memory = Memory { unit: 1, ..Memory::default() };
        let mut first = leaf(0x3dff, hash_name(b"x"), &[0]);
        (first[3], first[59]) = (9, 1);
        memory.blocks.insert(LEAF, first);
        let mut only = leaf(0x3df1, hash_name(b"x"), &[0]);
        (only[4..8]).copy_from_slice(&LEAF.to_be_bytes());
        only[59] = 1;
        memory.blocks.insert(9, only);
        assert!(found(&memory, b"x").unwrap_err().to_string().contains("only leaf"));
    }
}
