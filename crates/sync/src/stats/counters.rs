//! The counters of one class, sharded by processor.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use super::report::{ClassStats, Mode};

/// Shards per class. On a machine with more processors some share one, which costs time but no counts.
const SHARDS: usize = 64;

/// All counters are relaxed: each is right on its own, and a report reads them while they move.
pub(crate) struct ClassCounters {
    shards: [Shard; SHARDS],
}

/// One processor's counters; padded to its own cache lines (two, since they are fetched in pairs).
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    exclusive: Counters,
    shared: Counters,
}

/// What one processor counted for one class in one mode.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) con_bounces: AtomicU64,
    pub(crate) acq_bounces: AtomicU64,
    pub(crate) waits: Durations,
    pub(crate) holds: Durations,
}

/// Durations in nanoseconds: how many, how long together, the shortest and the longest.
pub(crate) struct Durations {
    count: AtomicU64,
    total: AtomicU64,
    /// `u64::MAX` while there are none.
    min: AtomicU64,
    max: AtomicU64,
}

/// The same as plain numbers.
struct Sum {
    count: u64,
    total: u64,
    min: u64,
    max: u64,
}

impl Default for ClassCounters {
    fn default() -> Self {
        Self { shards: array::from_fn(|_| Shard::default()) }
    }
}

impl ClassCounters {
    /// The counters that processor `cpu` should use.
    pub(crate) fn shard(&self, cpu: u32, mode: Mode) -> &Counters {
        self.shards[cpu as usize % SHARDS].mode(mode)
    }

    pub(crate) fn reset(&self) {
        for shard in &self.shards {
            shard.exclusive.reset();
            shard.shared.reset();
        }
    }

    /// Adds the shards up.
    pub(crate) fn sum(&self, class: &'static str, mode: Mode) -> ClassStats {
        let of = |shard: &'_ Shard, pick: fn(&Counters) -> &AtomicU64| {
            pick(shard.mode(mode)).load(Ordering::Relaxed)
        };
        let con_bounces = self.shards.iter().map(|shard| of(shard, |counters| &counters.con_bounces)).sum();
        let acq_bounces = self.shards.iter().map(|shard| of(shard, |counters| &counters.acq_bounces)).sum();
        let waits = Sum::over(self.shards.iter().map(|shard| &shard.mode(mode).waits));
        let holds = Sum::over(self.shards.iter().map(|shard| &shard.mode(mode).holds));
        ClassStats {
            class,
            mode,
            con_bounces,
            contentions: waits.count,
            wait_min_ns: waits.min,
            wait_max_ns: waits.max,
            wait_total_ns: waits.total,
            acq_bounces,
            acquisitions: holds.count,
            hold_min_ns: holds.min,
            hold_max_ns: holds.max,
            hold_total_ns: holds.total,
        }
    }
}

impl Shard {
    fn mode(&self, mode: Mode) -> &Counters {
        match mode {
            Mode::Exclusive => &self.exclusive,
            Mode::Shared => &self.shared,
        }
    }
}

impl Counters {
    fn reset(&self) {
        self.con_bounces.store(0, Ordering::Relaxed);
        self.acq_bounces.store(0, Ordering::Relaxed);
        self.waits.reset();
        self.holds.reset();
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            total: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        }
    }
}

impl Durations {
    pub(crate) fn add(&self, ns: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(ns, Ordering::Relaxed);
        // Looking first saves the locked instruction nearly every time.
        if ns < self.min.load(Ordering::Relaxed) {
            self.min.fetch_min(ns, Ordering::Relaxed);
        }
        if ns > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(ns, Ordering::Relaxed);
        }
    }

    fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.total.store(0, Ordering::Relaxed);
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.max.store(0, Ordering::Relaxed);
    }
}

impl Sum {
    fn over<'a>(shards: impl Iterator<Item = &'a Durations>) -> Self {
        let mut sum = Self { count: 0, total: 0, min: u64::MAX, max: 0 };
        for shard in shards {
            sum.count += shard.count.load(Ordering::Relaxed);
            sum.total += shard.total.load(Ordering::Relaxed);
            sum.min = sum.min.min(shard.min.load(Ordering::Relaxed));
            sum.max = sum.max.max(shard.max.load(Ordering::Relaxed));
        }
        if sum.min == u64::MAX {
            sum.min = 0;
        }
        sum
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn shards_add_up_and_reset_to_zero() {
        let counters = Box::<ClassCounters>::default();
        for (cpu, ns) in [(0, 40), (1, 10), (65, 20), (u32::MAX, 30)] {
            counters.shard(cpu, Mode::Exclusive).holds.add(ns);
        }
        counters.shard(3, Mode::Exclusive).waits.add(7);
        counters.shard(3, Mode::Exclusive).con_bounces.fetch_add(1, Ordering::Relaxed);

        let sum = counters.sum("x", Mode::Exclusive);
        assert_eq!((sum.acquisitions, sum.hold_total_ns), (4, 100));
        assert_eq!((sum.hold_min_ns, sum.hold_max_ns, sum.hold_avg_ns()), (10, 40, 25));
        assert_eq!((sum.contentions, sum.wait_min_ns, sum.wait_max_ns, sum.con_bounces), (1, 7, 7, 1));

        let shared = counters.sum("x", Mode::Shared);
        assert_eq!((shared.acquisitions, shared.hold_min_ns, shared.hold_avg_ns()), (0, 0, 0));

        counters.reset();
        let sum = counters.sum("x", Mode::Exclusive);
        assert_eq!((sum.acquisitions, sum.hold_min_ns, sum.hold_max_ns, sum.con_bounces), (0, 0, 0, 0));
    }

    #[test]
    fn neighbouring_processors_share_no_cache_line() {
        assert_eq!(align_of::<Shard>(), 128);
        assert_eq!(size_of::<Shard>() % 128, 0);
    }
}
