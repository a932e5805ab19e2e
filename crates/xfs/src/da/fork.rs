//! The blocks of a fork, as directories and attributes read them.

use std::borrow::Cow;

use undercroft_vfs::{Error, Ino, Result};

use super::{Layout, Links};
use crate::error::{Verdict, corrupt_inode};
use crate::format::FsBlock;
use crate::format::block_header::HeaderKind;
use crate::volume::Blocks;

/// Where the bytes of a fork come from.
pub(crate) trait ForkBlocks {
    /// Reads `count` blocks from block `at` of the fork on, which may lie in several extents, as one that has a header of
    /// this kind, and verifies the header; `None` when one of the blocks is not there.
    ///
    /// # Errors
    /// Corruption of the fork's map or of the header; I/O failure.
    fn read(&self, at: u32, count: u32, kind: HeaderKind) -> Result<Option<Block>>;

    /// The first block from `at` on, and before `end`, that is there.
    ///
    /// # Errors
    /// Corruption of the fork's map; I/O failure.
    fn next_present(&self, at: u32, end: u32) -> Result<Option<u32>>;

    /// How many blocks from `at` on are consecutive on the disk, even if the map has them as several extents; 0 when
    /// that block is not there. The number may be less for a long run.
    ///
    /// # Errors
    /// Corruption of the fork's map; I/O failure.
    fn run_length(&self, at: u32) -> Result<u32>;

    /// Blocks from `at` up to `end` are about to be read, `unit` of them as one.
    fn prefetch(&self, _at: u32, _end: u32, _unit: u32) {}
}

/// The content of a fork.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// In the inode.
    Inline(&'a [u8]),
    /// In blocks.
    Blocks(&'a dyn ForkBlocks),
}

/// A block whose header has been verified, in versions in which it can be.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) bytes: Blocks,
    /// Its number in the fork.
    pub(crate) at: u32,
    /// Where its first byte lies.
    pub(crate) home: FsBlock,
}

/// One fork of one inode.
#[derive(Clone, Copy)]
pub(crate) struct Fork<'a> {
    pub(crate) blocks: &'a dyn ForkBlocks,
    pub(crate) layout: &'a Layout,
    pub(crate) owner: Ino,
    /// What corruption reports call it.
    pub(crate) structure: &'static str,
    /// Filesystem blocks that are read as one.
    pub(crate) unit: u32,
}

impl Fork<'_> {
    /// Reads one block; `None` when it is not there.
    pub(crate) fn read(&self, at: u32, kind: HeaderKind) -> Result<Option<Block>> {
        self.blocks.read(at, self.unit, kind)
    }

    /// Reads a block of the tree that something leads to, so that it must be there.
    pub(crate) fn read_tree_block(&self, at: u32) -> Result<(Block, Links)> {
        let Some(block) = self.read(at, HeaderKind::DaBlock)? else {
            return Err(self.corrupt(None, format!("its tree leads to block {at}, which is not there")));
        };
        let links = self.validated(block.home, Links::of(&block.bytes))?;
        Ok((block, links))
    }

    /// What was found wrong, with its place.
    pub(crate) fn corrupt(&self, home: Option<FsBlock>, detail: impl Into<Cow<'static, str>>) -> Error {
        corrupt_inode(self.structure, self.owner, home, detail)
    }

    /// A verdict on a block, with its place.
    pub(crate) fn validated<T>(&self, home: FsBlock, verdict: Verdict<T>) -> Result<T> {
        verdict.map_err(|detail| self.corrupt(Some(home), detail))
    }
}
