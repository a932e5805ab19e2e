//! One directory, in whichever form it is.
//!
//! The space of a directory's fork has three parts: entries from the start, the hash index from 32 GiB on, the free
//! index from 64 GiB on. A directory without an index there is one block; otherwise the index's first block shows
//! whether it is the only one.

use undercroft_vfs::{Ino, Result};

use super::data::DataBlock;
use super::leaf::Leaf;
use super::short::{ShortDirectory, dots};
use crate::da::{Block, Content, Fork, ForkBlocks, Layout};
use crate::error::{Verdict, corrupt_inode};
use crate::format::block_header::HeaderKind;
use crate::format::{FsBlock, Superblock};

pub(super) const STRUCTURE: &str = "directory";

/// A directory, and what is needed to read it.
#[derive(Clone, Copy)]
pub(crate) struct Directory<'a> {
    pub(crate) ino: Ino,
    pub(crate) layout: &'a Layout,
    pub(crate) superblock: &'a Superblock,
    /// Its data fork.
    pub(crate) content: Content<'a>,
}

/// The form of a directory that has blocks, with the block that shows it.
pub(super) enum Form {
    /// One block, with its index.
    Single(Block),
    /// Data blocks and one leaf.
    Leaf(Block),
    /// Data blocks and a tree.
    Tree,
}

impl<'a> Directory<'a> {
    /// The content of a directory in its inode.
    pub(super) fn short(&self) -> Result<ShortDirectory<'a>> {
        let bytes = match self.content {
            Content::Inline(bytes) => bytes,
            Content::Blocks(_) => &[],
        };
        self.validated(None, ShortDirectory::validate(bytes, self.layout))
    }

    /// The form of a directory in blocks.
    pub(super) fn form(&self, fork: &Fork<'a>) -> Result<Form> {
        if !self.has_index(fork)? {
            return self.first(fork).map(Form::Single);
        }
        let (block, links) = fork.read_tree_block(self.layout.index_start())?;
        Ok(if Leaf::is_one(&links, self.layout) { Form::Leaf(block) } else { Form::Tree })
    }

    /// Whether a directory in blocks has its hash index in blocks of its own; nothing of them is read.
    pub(super) fn has_index(&self, fork: &Fork<'a>) -> Result<bool> {
        Ok(fork.blocks.next_present(self.layout.index_start(), self.layout.free_start())?.is_some())
    }

    /// The first block of entries, the only one of a directory without such an index.
    pub(super) fn first(&self, fork: &Fork<'a>) -> Result<Block> {
        let first = fork.read(0, HeaderKind::DirBlock)?;
        first.ok_or_else(|| self.corrupt(None, "has no first block"))
    }

    /// The number of `..`, which is the second entry of the first block. The hash index, which leads there too, is not
    /// read: a directory whose index is damaged still has its place and its names.
    pub(super) fn parent(&self, fork: &Fork<'a>) -> Result<u64> {
        let single = !self.has_index(fork)?;
        let block = self.first(fork)?;
        let [_, dot_dot] = dots(self.layout);
        let (_, at) = dot_dot.split(self.layout);
        let entry = self.validated(Some(block.home), self.data(&block, single)?.entry(at))?;
        if entry.name != b".." {
            let name = entry.name.escape_ascii();
            return Err(self.corrupt(Some(block.home), format!("has \"{name}\" in the place of \"..\"")));
        }
        Ok(entry.ino)
    }

    /// Its blocks; only a directory in its inode has none.
    pub(super) fn fork(&self, blocks: &'a dyn ForkBlocks) -> Fork<'a> {
        let (layout, owner, unit) = (self.layout, self.ino, self.layout.dir_block_count());
        Fork { blocks, layout, owner, structure: STRUCTURE, unit }
    }

    /// Validates a block of entries.
    pub(super) fn data<'b>(&self, block: &'b Block, single: bool) -> Result<DataBlock<'b>> {
        let number = u64::from(block.at / self.layout.dir_block_count());
        self.validated(Some(block.home), DataBlock::validate(&block.bytes, self.layout, number, single))
    }

    /// Refuses an entry that leads to what cannot be an inode.
    pub(super) fn check_ino(&self, ino: u64) -> Verdict<()> {
        if ino == 0 || self.superblock.geometry().split_ino(Ino(ino)).is_none() {
            return Err(format!("leads to inode {ino}, which lies outside the filesystem").into());
        }
        if self.superblock.own_inodes().any(|own| own == ino) {
            return Err(format!("leads to inode {ino}, which is the filesystem's own").into());
        }
        Ok(())
    }

    /// What was found wrong, with its place.
    pub(super) fn corrupt(
        &self,
        home: Option<FsBlock>,
        detail: impl Into<std::borrow::Cow<'static, str>>,
    ) -> undercroft_vfs::Error {
        corrupt_inode(STRUCTURE, self.ino, home, detail)
    }

    /// A verdict on a part of the directory, with its place.
    pub(super) fn validated<T>(&self, home: Option<FsBlock>, verdict: Verdict<T>) -> Result<T> {
        verdict.map_err(|detail| self.corrupt(home, detail))
    }
}
