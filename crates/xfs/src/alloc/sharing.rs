//! Whether blocks are shared, as the running transaction has it.

use super::*;
use crate::btree::{Btree, RefcountBt};
use crate::format::AgBlock;
use crate::map::{Sharing, sharing_in};

/// Blocks that a group has to have to spare when its trees have outgrown what is set aside for them.
const FEW_BLOCKS: u64 = 1024;

impl Allocator {
    /// Whether the group of a block can note more users of its blocks: the trees of reference counts and of reverse mappings
    /// grow with them, beyond what is set aside where blocks have many users. As with Linux, a group that is nearly full
    /// takes no more users. The answer is of the moment; several callers at once find what the reserve leaves.
    ///
    /// # Errors
    /// Corruption: there is no such group.
    pub(crate) fn has_room_for_users(&self, volume: &Volume, block: FsBlock) -> Result<bool> {
        let Some((ag, _)) = volume.geometry().split(block) else { return Ok(false) };
        let group = self.group(ag)?;
        let mut state = group.lock_blocks(volume)?;
        let aside = &state.aside;
        let part_left = |most: u32, used: u32| most == 0 || most.saturating_sub(used) >= most / 10;
        let is_within = part_left(aside.refcount, state.agf.agf_refcount_blocks.get())
            && part_left(aside.rmap, state.agf.agf_rmap_blocks.get());
        let free = state.blocks().space.available.blocks();
        Ok(free > u64::from(self.extent_credits) * 2 && (is_within || state.spare() > FEW_BLOCKS))
    }

    /// Whether `block` is shared, and for how many of the `count` blocks from there on, which lie in one group, the same
    /// holds. The group is locked meanwhile, so that its tree does not change.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn sharing(&self, volume: &Volume, block: FsBlock, count: u32) -> Result<Sharing> {
        let alone = Sharing { shared: false, count };
        if !volume.superblock().features().has_reflink() {
            return Ok(alone);
        }
        let Some((ag, start)) = volume.geometry().split(block) else { return Ok(alone) };
        let state = self.group(ag)?.state.lock();
        let (root, levels) = (state.agf.agf_refcount_root.get(), state.agf.agf_refcount_level.get());
        let tree = Btree::<RefcountBt>::in_ag(volume, ag, AgBlock(root), levels)?;
        sharing_in(&tree, start, count)
    }
}
