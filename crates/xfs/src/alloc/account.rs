//! Counting: what can be reserved, and what is set aside in each group so that its trees can always grow.
//!
//! A group's free blocks are those of its trees of free space. Of these, callers other than the group's own trees may not
//! have
//!
//! - the busy ones, which a transaction freed that is not durable yet: a commit makes them reservable;
//! - those *set aside* in the group: what its free list lacks to be as long as it can have to be, and what the trees of
//!   reference counts, of free inodes and of reverse mappings can still grow by. A deletion reserves nothing, and these
//!   trees may grow in it. The worst case of each is Linux's: a record for each block, or inode chunk, in blocks half full.
//!
//! What can be reserved is one number: the sum over all groups, less what is reserved or held. [`Allocator::reserve`] lowers
//! it. A group's part changes under the group's lock. Taking a reserved block lowers the part and raises the sum, so the
//! block counts once. A tree that grows into what is set aside changes neither. Trees of free space and of inodes grow
//! uncounted, by less than what changes in them frees or reserves: the sum may fall below zero for a moment, and
//! reservations then find their blocks in what is set aside.
//!
//! So a reservation finds its blocks: what the groups have to spare is never less than what is reserved. They may be
//! scattered, and a caller gets them one by one at worst.

use undercroft_sync::atomic::Ordering;

use super::group::{Group, GroupState};
use super::*;

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

    /// Reserves blocks of what is set aside, for a change that must not be refused where others have taken all else: the
    /// sum falls below zero by them until they are let go of or taken.
    pub(crate) fn reserve_set_aside(&self, blocks: u64) {
        self.reservable.fetch_sub(blocks as i64, Ordering::Relaxed);
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

    /// Blocks that one change of one extent in a group changes at most, the trees that go with it included: to be taken,
    /// freed, or given an owner or a user.
    pub(crate) fn extent_credits(&self) -> u32 {
        self.extent_credits
    }
}
