//! The room of the running transaction: units that its handles may reserve.
//!
//! Slots take room in small pools, and handles reserve from their slot's pool, so that joining writes to the slot's own
//! cache lines only.

use undercroft_sync::atomic::{AtomicU32, Ordering};

use crate::slots::SLOTS;

/// All pools together hold this part of a transaction's room at most.
const PART_IN_POOLS: u32 = 8;
/// A pool takes this much at a time at most, so that its units fit the handles of a moment.
const POOL_MAX: u32 = 256;

/// Units that are reserved in the running transaction. Padded to its own cache lines: it is written often.
#[repr(align(128))]
pub(crate) struct Room {
    reserved: AtomicU32,
    size: u32,
    /// What a pool takes at a time.
    pool: u32,
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

impl Room {
    /// A transaction's handles reserve `size` units at most.
    pub(crate) fn new(size: u32) -> Self {
        let pool = (size / PART_IN_POOLS / SLOTS as u32).min(POOL_MAX);
        Self { reserved: AtomicU32::new(0), size, pool, large: AtomicU32::new(0) }
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
    pub(crate) fn reserve(&self, pool: &AtomicU32, units: u32) -> bool {
        let from_pool = |in_pool: u32| in_pool.checked_sub(units);
        if pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, from_pool).is_ok() {
            return true;
        }
        if self.pool > 0 && self.take(units.saturating_add(self.pool)) {
            pool.fetch_add(self.pool, Ordering::Relaxed);
            return true;
        }
        self.take(units)
    }

    /// Returns units that a handle reserved and did not use: to the slot's pool, or to the room if the pool has enough.
    #[inline]
    pub(crate) fn release(&self, pool: &AtomicU32, units: u32) {
        if units == 0 {
            return;
        }
        if pool.load(Ordering::Relaxed).saturating_add(units) <= 2 * self.pool {
            pool.fetch_add(units, Ordering::Relaxed);
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
        let (room, pool) = (Room::new(100), AtomicU32::new(0));
        assert!(room.reserve(&pool, 60) && room.reserve(&pool, 40));
        assert!(!room.reserve(&pool, 1));
        room.release(&pool, 40);
        assert!(room.reserve(&pool, 30) && !room.reserve(&pool, 30));
        room.reset();
        assert!(room.reserve(&pool, 1000) && !room.reserve(&pool, 1));
    }

    #[test]
    fn an_empty_transaction_is_left_to_a_reservation_larger_than_the_room() {
        let (room, pool) = (Room::new(100), AtomicU32::new(0));
        assert!(room.reserve(&pool, 1) && !room.reserve(&pool, 200));
        assert!(room.wait_for_all(100).is_none());
        let waits = room.wait_for_all(200);
        room.reset();
        assert!(!room.reserve(&pool, 1) && room.reserve(&pool, 200));
        drop(waits);
        room.reset();
        assert!(room.reserve(&pool, 1));
    }

    #[test]
    fn pools_never_hand_out_more_than_the_room() {
        let room = Room::new(8 * 32 * 10);
        let pools: Vec<_> = (0..4).map(|_| AtomicU32::new(0)).collect();
        let mut reserved = 0;
        let mut at = 0;
        while room.reserve(&pools[at % 4], 3) {
            reserved += 3;
            at += 1;
        }
        assert!(reserved <= 8 * 32 * 10, "{reserved}");
        assert!(reserved > 8 * 32 * 10 - 4 * 20, "{reserved}");
    }
}
