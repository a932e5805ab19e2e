//! The reverse map: what each block belongs to. Nothing is done on a volume without one.

use super::group::ChangingGroup;
use super::*;
use crate::error::corrupt_block;
use crate::format::AgBlock;

impl Allocator {
    /// Notes that blocks, which lie in one group, belong to `owner` now; joins neighbours.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn note_owner(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        owner: Owner,
    ) -> Result<()> {
        if !handle.volume().superblock().features().has_rmapbt() {
            return Ok(());
        }
        let Some((ag, within)) = handle.volume().geometry().check_run(first, count) else {
            return Err(corrupt_block("reverse mapping", first, format!("{count} blocks lie in no group")));
        };
        self.change_group(handle, ag)?.note_owner(within, count as u32, owner)
    }

    /// Notes that they belong to it no more.
    ///
    /// # Errors
    /// As for [`note_owner`](Self::note_owner).
    pub(crate) fn note_no_owner(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        owner: Owner,
    ) -> Result<()> {
        if !handle.volume().superblock().features().has_rmapbt() {
            return Ok(());
        }
        let Some((ag, within)) = handle.volume().geometry().check_run(first, count) else {
            return Err(corrupt_block("reverse mapping", first, format!("{count} blocks lie in no group")));
        };
        self.change_group(handle, ag)?.note_no_owner(within, count as u32, owner)
    }
}

impl ChangingGroup<'_> {
    /// The same with the group's lock held. Fills the free list first ([`fill_list`](Self::fill_list)), unless it is
    /// called while the list is being filled.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn note_owner(&mut self, first: AgBlock, count: u32, owner: Owner) -> Result<()> {
        if !self.volume().superblock().features().has_rmapbt() {
            return Ok(());
        }
        self.fill_list()?;
        let _ = (first, count, owner);
        todo!("rmap")
    }

    /// The same with the group's lock held.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn note_no_owner(&mut self, first: AgBlock, count: u32, owner: Owner) -> Result<()> {
        if !self.volume().superblock().features().has_rmapbt() {
            return Ok(());
        }
        self.fill_list()?;
        let _ = (first, count, owner);
        todo!("rmap")
    }
}
