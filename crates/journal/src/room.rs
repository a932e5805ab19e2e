//! The room of the running transaction: units that its handles may reserve.
//!
//! Slots take room in pools, and handles reserve from their slot's pool, so that joining writes to the slot's own cache
//! lines only. The fewer slots a transaction has had handles in, the larger are their pools.

use undercroft_sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A pool takes this part of a transaction's room at a time, shared among the pools that are in use by then.
const PART_IN_POOLS: u32 = 8;

/// Units that are reserved in the running transaction. Padded to its own cache lines: it is written often.
#[repr(align(128))]
pub(crate) struct Room {
    reserved: AtomicU32,
    size: u32,
    /// Pools that have been used in the running transaction. Written once for each.
    pools: AtomicU32,
    /// Threads that wait to reserve more than the room: they get it in an empty transaction, which others leave to them.
    large: AtomicU32,
}

/// A thread that waits to reserve more than the room.
pub(crate) struct WaitsForAll<'a>(&'a Room);

impl Drop for WaitsForAll<'_> {
    fn drop(&mut self) {
        self.0.large.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reserved units that no handle has.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    units: AtomicU32,
    /// It has been used in the running transaction.
    is_used: AtomicBool,
}

impl Pool {
    /// The next transaction begins: its units belonged to the last one.
    pub(crate) fn empty(&self) {
        self.units.store(0, Ordering::Relaxed);
        self.is_used.store(false, Ordering::Relaxed);
    }
}

impl Room {
    /// A transaction's handles reserve `size` units at most.
    pub(crate) fn new(size: u32) -> Self {
        Self { reserved: AtomicU32::new(0), size, pools: AtomicU32::new(0), large: AtomicU32::new(0) }
    }

    /// From here on no other thread begins to reserve in an empty transaction, until what this returns is dropped. `None`
    /// for a reservation that is no larger than the room.
    pub(crate) fn wait_for_all(&self, units: u32) -> Option<WaitsForAll<'_>> {
        (units > self.size).then(|| {
            self.large.fetch_add(1, Ordering::Relaxed);
            WaitsForAll(self)
        })
    }

    /// Units that a transaction's handles reserve at most.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Reserves units from a slot's pool, which is filled first where it has too few. A reservation that is larger than
    /// the room succeeds in an empty transaction.
    #[inline]
    pub(crate) fn reserve(&self, pool: &Pool, units: u32) -> bool {
        let from_pool = |in_pool: u32| in_pool.checked_sub(units);
        if pool.units.fetch_update(Ordering::Relaxed, Ordering::Relaxed, from_pool).is_ok() {
            return true;
        }
        if !pool.is_used.swap(true, Ordering::Relaxed) {
            self.pools.fetch_add(1, Ordering::Relaxed);
        }
        let more = self.in_pool();
        if more > 0 && self.take(units.saturating_add(more)) {
            pool.units.fetch_add(more, Ordering::Relaxed);
            return true;
        }
        self.take(units)
    }

    /// Returns units that a handle reserved and did not use: to the slot's pool, or to the room if the pool has enough.
    #[inline]
    pub(crate) fn release(&self, pool: &Pool, units: u32) {
        if units == 0 {
            return;
        }
        if pool.units.load(Ordering::Relaxed).saturating_add(units) <= 2 * self.in_pool() {
            pool.units.fetch_add(units, Ordering::Relaxed);
        } else {
            self.reserved.fetch_sub(units, Ordering::Relaxed);
        }
    }

    /// A unit that no handle reserved is used.
    #[inline]
    pub(crate) fn use_one(&self) {
        self.reserved.fetch_add(1, Ordering::Relaxed);
    }

    /// The next transaction begins, and the pools are empty.
    #[inline]
    pub(crate) fn reset(&self) {
        self.reserved.store(0, Ordering::Relaxed);
        self.pools.store(0, Ordering::Relaxed);
    }

    /// What a pool takes at a time.
    fn in_pool(&self) -> u32 {
        self.size / PART_IN_POOLS / self.pools.load(Ordering::Relaxed).max(1)
    }

    fn take(&self, units: u32) -> bool {
        if units <= self.size && self.large.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let before = self.reserved.fetch_add(units, Ordering::Relaxed);
        let fits = before == 0 || before.saturating_add(units) <= self.size;
        if !fits {
            self.reserved.fetch_sub(units, Ordering::Relaxed);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_fits_or_the_transaction_is_empty() {
        let (room, pool) = (Room::new(7), Pool::default());
        assert!(room.reserve(&pool, 4) && room.reserve(&pool, 3));
        assert!(!room.reserve(&pool, 1));
        room.release(&pool, 3);
        assert!(room.reserve(&pool, 2) && !room.reserve(&pool, 2));
        room.reset();
        assert!(room.reserve(&pool, 1000) && !room.reserve(&pool, 1));
    }

    #[test]
    fn an_empty_transaction_is_left_to_a_reservation_larger_than_the_room() {
        let (room, pool) = (Room::new(100), Pool::default());
        assert!(room.reserve(&pool, 1) && !room.reserve(&pool, 200));
        assert!(room.wait_for_all(100).is_none());
        let waits = room.wait_for_all(200);
        let reset = || {
            room.reset();
            pool.empty();
        };
        reset();
        assert!(!room.reserve(&pool, 1) && room.reserve(&pool, 200));
        drop(waits);
        reset();
        assert!(room.reserve(&pool, 1));
    }

    #[test]
    fn pools_never_hand_out_more_than_the_room() {
        let size = 8 * 100;
        let room = Room::new(size);
        let pools: Vec<_> = (0..4).map(|_| Pool::default()).collect();
        for _ in 0..2 {
            let (mut reserved, mut at) = (0, 0);
            while room.reserve(&pools[at % 4], 3) {
                reserved += 3;
                at += 1;
            }
            assert!(reserved <= size, "{reserved}");
            let in_pools: u32 = pools.iter().map(|pool| pool.units.load(Ordering::Relaxed)).sum();
            assert!(reserved + in_pools > size - 3 && in_pools <= 4 * 100, "{reserved} and {in_pools}");
            room.reset();
            pools.iter().for_each(Pool::empty);
        }
    }

    #[test]
    fn a_pool_that_has_the_units_asks_for_no_room() {
        let (room, pool) = (Room::new(8000), Pool::default());
        for _ in 0..100 {
            assert!(room.reserve(&pool, 500));
            room.release(&pool, 499);
        }
        assert_eq!(
            room.reserved.load(Ordering::Relaxed),
            1500,
            "units that a pool had were returned to the room"
        );
    }
}
