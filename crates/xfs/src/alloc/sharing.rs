//! Whether blocks are shared, as the running transaction has it.

use super::*;
use crate::btree::{Btree, RefcountBt};
use crate::format::AgBlock;
use crate::map::{Sharing, sharing_in};

impl Allocator {
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
