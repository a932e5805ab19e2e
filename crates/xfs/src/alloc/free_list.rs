//! The free list (AGFL): blocks for the trees of free space and of reverse mappings.

use undercroft_vfs::Result;

use super::group::ChangingGroup;
use super::*;
use crate::ag::agf::RawAgf;
use crate::format::{AgBlock, AgNumber};

/// The blocks on a group's free list.
#[derive(Debug)]
pub(super) struct FreeList {}

impl FreeList {
    pub(super) fn load(volume: &Volume, number: AgNumber, agf: &RawAgf) -> Result<Self> {
        let _ = (volume, number, agf);
        todo!("space")
    }

    /// Whether it has changed since this was asked last.
    pub(super) fn take_changed(&mut self) -> bool {
        todo!("space")
    }

    /// The blocks, each with the byte of the header's sector where it is named.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, AgBlock)> + '_ {
        std::iter::empty()
    }
}

impl ChangingGroup<'_> {
    /// Makes the free list as long as the trees may need for one change of each. Called before each change of the trees of
    /// free space and of reverse mappings.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn fill_list(&mut self) -> Result<()> {
        todo!("space")
    }

    /// Takes a block from the list for a tree.
    pub(super) fn take_from_list(&mut self) -> Result<AgBlock> {
        todo!("space")
    }

    /// Puts a tree's block on the list.
    pub(super) fn put_on_list(&mut self, block: AgBlock) -> Result<()> {
        let _ = block;
        todo!("space")
    }
}
