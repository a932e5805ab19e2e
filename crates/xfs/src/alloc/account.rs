//! Counting: what can be reserved, and what is set aside in each group so that its trees can always grow.
//!
//! A group's free blocks are those of its trees of free space. Others than the group's own trees may have what is left of
//! them without
//!
//! - the busy ones, which a transaction freed that is not durable yet: a commit makes them reservable;
//! - those *set aside* in the group: what its free list lacks to be as long as it can have to be, and what the trees of
//!   reference counts, of free inodes and of reverse mappings can still grow by. A deletion reserves nothing, and these
//!   trees may grow in it. The worst case of each is Linux's: a record for each block, or inode chunk, in blocks half full.
//!
//! The sum over the groups, without what is reserved or held already, is one number, [`Allocator::reserve`] lowers it.
//! It changes with a group under the group's lock. Each block that a reserved one is taken for lowers the group's part and
//! returns to the sum, so that it is counted once; a tree that grows into what is set aside changes neither. Trees of free
//! space and of inodes grow without a count, by less than what changes in them frees or reserves: the sum may fall below
//! zero for a while, and reservations then find their blocks in what is set aside.
//!
//! So a reservation finds its blocks: what the groups have to spare is never less than what is reserved. They may be
//! scattered, and a caller gets them one by one at worst.

use undercroft_sync::atomic::Ordering;

use super::group::{Group, GroupState};
use super::*;
use crate::btree::{BySize, BySpace, Finobt, RefcountBt, RmapBt, most_blocks, usual_levels};
use crate::format::AgNumber;
use crate::format::geometry::CHUNK_INODES;

/// Blocks that are set aside in each group for trees of free space that grow while others are taken.
const SPARE_BLOCKS: u32 = 8;

/// What is set aside in a group.
#[derive(Debug)]
pub(super) struct SetAside {
    /// Blocks that the free list may have to have.
    list: u32,
    /// Blocks that trees may have; zero for those that the filesystem lacks.
    refcount: u32,
    rmap: u32,
    finobt: u32,
    /// Blocks of the trees of inodes. Counted here, because not each filesystem counts them in its headers; then from the
    /// fewest that they can be.
    pub(super) agi_iblocks: u32,
    pub(super) agi_fblocks: u32,
}

impl SetAside {
    pub(super) fn new(volume: &Volume, number: AgNumber, agi: &crate::ag::agi::RawAgi) -> Self {
        let (features, geometry) = (volume.superblock().features(), volume.geometry());
        let blocks = u64::from(geometry.ag_len(number));
        let narrow = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX);
        let when = |has: bool, blocks: u64| if has { narrow(blocks) } else { 0 };
        let rmap = most_blocks::<RmapBt>(geometry, blocks).max(blocks / 100);
        let chunks = (blocks << geometry.inodes_per_block_log()) / u64::from(CHUNK_INODES);
        let levels = |levels: u8| 2 * u32::from(levels);
        let list = levels(usual_levels::<BySpace>(geometry, blocks))
            + levels(usual_levels::<BySize>(geometry, blocks))
            + if features.has_rmapbt() { levels(usual_levels::<RmapBt>(geometry, blocks)) } else { 0 };
        let counted = features.has_inode_tree_counts();
        Self {
            list: list + SPARE_BLOCKS,
            refcount: when(features.has_reflink(), most_blocks::<RefcountBt>(geometry, blocks)),
            rmap: when(features.has_rmapbt(), rmap),
            finobt: when(features.has_finobt(), most_blocks::<Finobt>(geometry, chunks)),
            agi_iblocks: if counted { agi.agi_iblocks.get() } else { agi.agi_level.get() },
            agi_fblocks: if counted { agi.agi_fblocks.get() } else { agi.agi_free_level.get() },
        }
    }
}

impl GroupState {
    /// Blocks that others than the group's own trees may have, those that are held included.
    pub(super) fn reservable(&self) -> u64 {
        let (busy, usable) = match &self.blocks {
            Some(blocks) => (blocks.space.busy, blocks.list.usable()),
            None => (0, self.agf.agf_flcount.get()),
        };
        let aside = u64::from(self.aside.list.saturating_sub(usable))
            + u64::from(self.aside.refcount.saturating_sub(self.agf.agf_refcount_blocks.get()))
            + u64::from(self.aside.rmap.saturating_sub(self.agf.agf_rmap_blocks.get()))
            + u64::from(self.aside.finobt.saturating_sub(self.aside.agi_fblocks));
        u64::from(self.agf.agf_freeblks.get()).saturating_sub(busy).saturating_sub(aside)
    }

    /// Of these, blocks that are not held.
    pub(super) fn spare(&self) -> u64 {
        let held = self.blocks.as_ref().map_or(0, |blocks| blocks.space.held);
        self.reservable().saturating_sub(held)
    }
}

impl Allocator {
    /// Blocks that can be reserved.
    pub(crate) fn free_blocks(&self) -> u64 {
        u64::try_from(self.reservable.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Blocks that can be reserved after a commit, besides [`free_blocks`](Self::free_blocks).
    pub(crate) fn busy_blocks(&self) -> u64 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Reserves free blocks, wherever they lie: a handle that has them reserved finds them. `false` if there are too few.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        blocks == 0 || self.reserve_some(blocks, blocks) > 0
    }

    /// Reserves up to `most` blocks, at least `least`, which is not zero; returns how many, or zero.
    pub(super) fn reserve_some(&self, least: u64, most: u64) -> u64 {
        let mut left = self.reservable.load(Ordering::Relaxed);
        loop {
            let reserved = u64::try_from(left).unwrap_or(0).min(most);
            if reserved < least {
                return 0;
            }
            let after = left - reserved as i64;
            match self.reservable.compare_exchange_weak(left, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return reserved,
                Err(now) => left = now,
            }
        }
    }

    /// Lets go of reserved blocks.
    pub(crate) fn unreserve(&self, blocks: u64) {
        self.reservable.fetch_add(blocks as i64, Ordering::Relaxed);
    }

    /// Brings the sum over all groups up to date after a change of a group, which used up `taken` reserved blocks.
    pub(super) fn recount(&self, group: &Group, state: &mut GroupState, taken: u64) {
        let now = state.reservable();
        let before = std::mem::replace(&mut state.counted, now);
        let more = now as i64 - before as i64 + taken as i64;
        let busy = state.blocks.as_ref().map_or(0, |blocks| blocks.space.busy);
        let more_busy = busy as i64 - std::mem::replace(&mut state.counted_busy, busy) as i64;
        if more_busy != 0 {
            // Wraps around for what is taken off.
            self.busy.fetch_add(more_busy as u64, Ordering::Relaxed);
        }
        if more != 0 {
            self.reservable.fetch_add(more, Ordering::Relaxed);
        }
        group.publish(state);
    }

    /// Blocks that are free as the superblock counts them: on the free lists and in the trees of free space too.
    pub(crate) fn counted_free_blocks(&self) -> u64 {
        let count = |group: &Group| {
            let agf = &group.state.lock().agf;
            [agf.agf_freeblks, agf.agf_flcount, agf.agf_btreeblks]
                .iter()
                .map(|n| u64::from(n.get()))
                .sum::<u64>()
        };
        self.groups.iter().map(count).sum()
    }

    /// Blocks that one change of one extent in a group changes at most, the trees that go with it included: to be taken,
    /// freed, or given an owner or a user.
    pub(crate) fn extent_credits(&self) -> u32 {
        self.extent_credits
    }
}

/// What [`Allocator::extent_credits`] says for a volume: three headers, and for each tree the way down, a block beside each
/// one on it, and a new root.
pub(super) fn extent_credits(volume: &Volume) -> u32 {
    let (features, geometry) = (volume.superblock().features(), volume.geometry());
    let blocks = u64::from(geometry.ag_blocks());
    let tree = |levels: u8| 2 * u32::from(levels) + 1;
    let when = |has: bool, levels: u8| if has { tree(levels) } else { 0 };
    3 + tree(usual_levels::<BySpace>(geometry, blocks))
        + tree(usual_levels::<BySize>(geometry, blocks))
        + when(features.has_rmapbt(), usual_levels::<RmapBt>(geometry, blocks))
        + when(features.has_reflink(), usual_levels::<RefcountBt>(geometry, blocks))
}
