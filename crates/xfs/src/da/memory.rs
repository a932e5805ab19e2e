//! For tests: blocks of a fork in memory, whose headers are not verified.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use undercroft_vfs::Result;

use super::fork::{Block, ForkBlocks};
use crate::format::FsBlock;
use crate::format::block_header::HeaderKind;
use crate::volume::Blocks;

/// The blocks.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) unit: u32,
    pub(crate) blocks: HashMap<u32, Vec<u8>>,
    /// Which were read, in order.
    pub(crate) reads: RefCell<Vec<u32>>,
}

impl Memory {
    pub(crate) fn was_read(&self, at: u32) -> bool {
        self.reads.borrow().contains(&at)
    }
}

impl ForkBlocks for Memory {
    fn read(&self, at: u32, _: u32, _: HeaderKind) -> Result<Option<Block>> {
        self.reads.borrow_mut().push(at);
        Ok(self.blocks.get(&at).map(|bytes| Block {
            bytes: Blocks::Several(Arc::from(&bytes[..])),
            at,
            home: FsBlock(u64::from(at)),
        }))
    }

    fn next_present(&self, at: u32, end: u32) -> Result<Option<u32>> {
        Ok(self.blocks.keys().copied().filter(|present| (at..end).contains(present)).min())
    }

    fn run_length(&self, at: u32) -> Result<u32> {
        Ok(if self.blocks.contains_key(&at) { self.unit } else { 0 })
    }
}
