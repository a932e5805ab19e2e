//! The time that a change of an in-memory inode gets.
//!
//! Times come from the coarse clock, which is cheap and ticks every few milliseconds. A change after the times were read
//! must show, even within a tick: it gets the exact time then, as multigrain timestamps of Linux have it. Where a cache
//! above sets the times of changes, changes set none.

use undercroft_sync::atomic::{AtomicBool, Ordering};
use undercroft_vfs::{Timestamp, clock};

/// How an in-memory inode gets the times of its changes.
#[derive(Debug, Default)]
pub struct ChangeTimes {
    /// The times were read since they changed last: the next change must show.
    seen: AtomicBool,
    /// A cache above sets the times of changes, and nothing else moves them.
    left_to_cache: AtomicBool,
}

/// A time as the vfs's coarse clock counts it; 0 for what it does not reach.
#[must_use]
pub fn coarse_nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.seconds)
        .ok()
        .and_then(|seconds| seconds.checked_mul(1_000_000_000))
        .map_or(0, |whole| whole.saturating_add(time.nanoseconds.into()))
}

impl ChangeTimes {
    /// Notes that the times are read.
    #[inline]
    pub fn note_seen(&self) {
        // Readers share the word until a change clears it.
        if !self.are_seen() {
            self.seen.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the times were read since the last change.
    #[inline]
    #[must_use]
    pub fn are_seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// The time for a change that is made now: coarse, unless the times were read since the last change.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Timestamp {
        if self.are_seen() && self.seen.swap(false, Ordering::Relaxed) {
            return clock::now();
        }
        clock::Coarse::now().timestamp()
    }

    /// From now on a cache above sets the times of changes.
    #[inline]
    pub fn leave_to_cache(&self) {
        if !self.are_left_to_cache() {
            self.left_to_cache.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a cache above sets the times of changes.
    #[inline]
    #[must_use]
    pub fn are_left_to_cache(&self) -> bool {
        self.left_to_cache.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_after_the_times_were_read_gets_a_time_of_its_own() {
        let times = ChangeTimes::default();
        let mut last = times.now();
        for _ in 0..100 {
            times.note_seen();
            let next = times.now();
            assert!(next > last, "{next:?} after {last:?}");
            assert!(!times.are_seen());
            last = next;
        }
    }

    #[test]
    fn times_are_left_to_a_cache_for_good() {
        let times = ChangeTimes::default();
        assert!(!times.are_left_to_cache());
        times.leave_to_cache();
        times.leave_to_cache();
        assert!(times.are_left_to_cache());
    }
}
