//! Which groups may have a long run of free blocks, answered without a group's lock.
//!
//! For each power of two there is a bit for each group: set if the group may have a run as long as that. A bit may be
//! set wrongly, never clear wrongly: a search in vain under the group's lock clears it, giving blocks back sets it
//! before they can be had. So a full group costs nothing, and a single block is found if there is one. A second
//! instance, with one order only, says which groups have free inodes.

use undercroft_sync::AppendList;
use undercroft_sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Runs of up to 2^19 blocks: as many as a group of blocks of 64 KiB has.
pub(super) const BLOCK_ORDERS: u32 = 20;

/// Runs of free blocks in all groups, by their order of magnitude.
#[derive(Debug)]
pub(super) struct Orders {
    groups: AtomicU32,
    bits: Box<[AppendList<AtomicU64>]>,
}

impl Orders {
    pub(super) fn new(groups: u32, orders: u32) -> Self {
        let one = || (0..groups.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { groups: AtomicU32::new(groups), bits: (0..orders).map(|_| one()).collect() }
    }

    /// Grows to `groups`, which is more than before. The caller must serialize calls.
    pub(super) fn lengthen(&self, groups: u32) {
        for bits in &self.bits {
            while bits.len() < groups.div_ceil(64) as usize {
                bits.push(AtomicU64::new(0));
            }
        }
        self.groups.store(groups, Ordering::Release);
    }

    /// Notes that a group's longest run, of which `before` was known, is now `longest`. Called under its lock.
    pub(super) fn change(&self, group: u32, before: u32, longest: u32) {
        let (old, new) = (self.orders_of(before), self.orders_of(longest));
        let (word, bit) = (group as usize / 64, 1 << (group % 64));
        for order in old..new {
            self.bits[order as usize][word].fetch_or(bit, Ordering::SeqCst);
        }
        for order in new..old {
            self.bits[order as usize][word].fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// The next group from `from` on, as far as `end`, that may have a run of 2^`order` blocks.
    pub(super) fn next(&self, order: u32, from: u32, end: u32) -> Option<u32> {
        let bits = &self.bits[order.min(self.bits.len() as u32 - 1) as usize];
        let end = end.min(self.groups.load(Ordering::Acquire));
        let mut word = from / 64;
        let mut mask = u64::MAX << (from % 64);
        while word * 64 < end {
            let found = bits[word as usize].load(Ordering::SeqCst) & mask;
            if found != 0 {
                let group = word * 64 + found.trailing_zeros();
                return (group < end).then_some(group);
            }
            mask = u64::MAX;
            word += 1;
        }
        None
    }

    /// All groups that may have such a run, once around from `from`.
    pub(super) fn around(&self, order: u32, from: u32) -> impl Iterator<Item = u32> + '_ {
        let pass = move |start: u32, end: u32| {
            let mut at = start;
            std::iter::from_fn(move || {
                let group = self.next(order, at, end)?;
                at = group + 1;
                Some(group)
            })
        };
        pass(from, u32::MAX).chain(pass(0, from))
    }

    /// How many orders a run of this length has: none for 0, one for 1, two for 2 and 3.
    fn orders_of(&self, len: u32) -> u32 {
        (u32::BITS - len.leading_zeros()).min(self.bits.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_what_they_may_have_once_around() {
        let orders = Orders::new(200, BLOCK_ORDERS);
        for (group, longest) in [(3, 1), (70, 9), (130, 8), (199, 100)] {
            orders.change(group, 0, longest);
        }
        let around = |order, from| orders.around(order, from).collect::<Vec<_>>();
        assert_eq!(around(0, 0), [3, 70, 130, 199]);
        assert_eq!(around(0, 70), [70, 130, 199, 3]);
        assert_eq!(around(3, 71), [130, 199, 70]);
        assert_eq!(around(4, 0), [199]);
        orders.change(130, 8, 3);
        orders.change(3, 1, 4096);
        assert_eq!(around(3, 71), [199, 3, 70]);
        orders.change(70, 9, 0);
        assert_eq!(around(0, 4), [130, 199, 3]);
        assert_eq!(around(19, 0), [0; 0]);
        orders.lengthen(400);
        orders.change(399, 0, 1);
        assert_eq!(orders.around(0, 4).collect::<Vec<_>>(), [130, 199, 399, 3]);
    }
}
