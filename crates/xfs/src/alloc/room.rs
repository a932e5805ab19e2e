//! Whether a group's trees can grow as a change may need. Asked before the first change of an operation.
//!
//! What is set aside in a group is enough for that as a rule. It is not in a group that was filled by others, or whose
//! headers were damaged.
//!
//! Locks: that of the group, which is released before the change. Until then other threads may use up what was found;
//! each of them sees to the free list first, as the change itself does.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Error;

use super::changing::ChangingGroup;
use super::runs::Run;
use super::trees::GroupTree;
use super::*;
use crate::error::corrupt_block;

/// A group with so many blocks to spare has enough for any change of its trees.
const PLENTY: u32 = 128;

impl Allocator {
    /// Refuses when the blocks, which lie in one group, cannot be freed or given another owner for want of blocks for the
    /// group's trees. `may_share` as for [`remove_user`](Self::remove_user).
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace); corruption; I/O failure.
    pub(crate) fn check_room(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        may_share: bool,
    ) -> Result<()> {
        let Some((ag, start)) = handle.volume().geometry().check_run(first, count) else {
            return Err(corrupt_block("allocation group", first, format!("{count} blocks lie in no group")));
        };
        if self.group(ag)?.hints.available.load(Ordering::Relaxed) >= PLENTY {
            return Ok(());
        }
        let mut group = self.change_group(handle, ag)?;
        group.fill_list()?;
        let suffices = group.list_suffices_to_free(Run::new(start.0, count as u32))?
            && (!may_share || group.can_remove_user(start, count as u32)?);
        if suffices { Ok(()) } else { Err(Error::NoSpace) }
    }
}

impl ChangingGroup<'_> {
    /// Whether a tree that does not grow into the free list can get the blocks that it takes for up to two records at `key`.
    /// Each block is taken out of the trees of free space, for which the list must suffice: one that is short and
    /// cannot be filled is trusted with one block.
    pub(super) fn can_grow<K: GroupTree>(&mut self, key: &K::Key, records: usize) -> Result<bool> {
        let growth = self.tree::<K>()?.growth_at(key, records)?;
        if growth == 0 {
            return Ok(true);
        }
        self.fill_list()?;
        if !self.loaded()?.blocks().space.has_for_trees(growth.into()) {
            return Ok(false);
        }
        Ok(self.short_list()?.is_none() || growth == 1 && self.run_for_tree(None)?.is_some())
    }
}
