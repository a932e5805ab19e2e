//! Counts of the whole filesystem that many threads change: each adds to a shard, and a shard that has gathered enough
//! hands it on. The total that all threads read is therefore seldom written, and behind by a known amount at most.

use undercroft_sync::atomic::{AtomicI64, Ordering};
use undercroft_sync::thread_number;

/// A shard whose change reaches this adds it to the total.
const BATCH: i64 = 512;

/// Shards; a power of two.
pub(super) const SHARDS: usize = 16;

/// Padded to its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicI64);

/// A count in shards.
#[derive(Debug)]
pub(super) struct Counter {
    total: Line,
    shards: [Line; SHARDS],
}

impl Counter {
    pub(super) fn new(count: u64) -> Self {
        Self { total: Line(AtomicI64::new(count as i64)), shards: Default::default() }
    }

    /// Adds `change` on behalf of the calling thread.
    pub(super) fn add(&self, change: i64) {
        let shard = &self.shards[thread_number() % SHARDS].0;
        let gathered = shard.fetch_add(change, Ordering::Relaxed) + change;
        if gathered.abs() >= BATCH {
            self.total.0.fetch_add(shard.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The count.
    pub(super) fn sum(&self) -> u64 {
        let gathered: i64 = self.shards.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum();
        (self.total.0.load(Ordering::Relaxed) + gathered).max(0) as u64
    }

    /// The approximate count, from a cache line that is seldom written.
    pub(super) fn about(&self) -> u64 {
        self.total.0.load(Ordering::Relaxed).max(0) as u64
    }

    /// Whether the count is at least `least`. Reads all shards unless the approximate count is well above `least`.
    pub(super) fn is_at_least(&self, least: u64) -> bool {
        self.about() >= least.saturating_add(SHARDS as u64 * BATCH as u64) || self.sum() >= least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_lose_nothing() {
        let counter = Counter::new(1_000_000);
        std::thread::scope(|scope| {
            for thread in 0..8_i64 {
                let counter = &counter;
                scope.spawn(move || {
                    for step in 0..1000 {
                        counter.add(-(thread * step));
                        counter.add(thread);
                    }
                });
            }
        });
        let taken: u64 = (0..8).map(|thread| thread * 499_500 - thread * 1000).sum();
        assert_eq!(counter.sum(), 1_000_000_u64.saturating_sub(taken));
        let counter = Counter::new(100);
        counter.add(-7);
        assert!(counter.is_at_least(93) && !counter.is_at_least(94));
        assert_eq!(counter.about(), 100, "a small change stays in its shard");
    }
}
