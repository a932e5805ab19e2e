//! Measures one acquisition and one hold. Called by the locks only while the statistics are switched on.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::sched_getcpu;
use rustix::time::{ClockId, clock_gettime};

use super::counters::Counters;
use super::{Mode, counters_of};
use crate::LockClass;

/// The processor on which a lock was last taken while measured; tells whether its cache line had to move.
pub(crate) struct LastCpu(AtomicU32);

/// A wait that is being measured.
pub(crate) struct Wait {
    since_ns: u64,
    bounced: bool,
}

/// A hold that is being measured. The guard calls [`end`](Self::end) before it unlocks and drops this after,
/// so that counting prolongs neither the hold nor what is counted.
pub(crate) struct Hold {
    counters: &'static Counters,
    /// When it began; once ended, how long it was.
    ns: u64,
}

impl LastCpu {
    const UNKNOWN: u32 = u32::MAX;

    pub(crate) const fn unknown() -> Self {
        Self(AtomicU32::new(Self::UNKNOWN))
    }

    fn is_other_than(&self, cpu: u32) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last != Self::UNKNOWN && last != cpu
    }
}

impl Wait {
    /// The lock was not free.
    pub(crate) fn begin(last: &LastCpu) -> Self {
        Self { since_ns: now_ns(), bounced: last.is_other_than(cpu()) }
    }
}

impl Hold {
    /// The lock is ours, after `wait` if there was one.
    pub(crate) fn begin(class: &'static LockClass, mode: Mode, last: &LastCpu, wait: Option<&Wait>) -> Self {
        let now_ns = now_ns();
        let cpu = cpu();
        let counters = counters_of(class).shard(cpu, mode);
        if let Some(wait) = wait {
            counters.waits.add(now_ns.saturating_sub(wait.since_ns));
            if wait.bounced {
                counters.con_bounces.fetch_add(1, Ordering::Relaxed);
            }
        }
        if last.is_other_than(cpu) {
            counters.acq_bounces.fetch_add(1, Ordering::Relaxed);
        }
        last.0.store(cpu, Ordering::Relaxed);
        Self { counters, ns: now_ns }
    }

    /// Takes a lock and measures it: without a wait if `try_take` gets it, otherwise by `take`.
    #[cold]
    pub(crate) fn acquire<G>(
        class: &'static LockClass,
        mode: Mode,
        last: &LastCpu,
        try_take: impl FnOnce() -> Option<G>,
        take: impl FnOnce() -> G,
    ) -> (G, Self) {
        if let Some(guard) = try_take() {
            return (guard, Self::begin(class, mode, last, None));
        }
        let wait = Wait::begin(last);
        let guard = take();
        (guard, Self::begin(class, mode, last, Some(&wait)))
    }

    /// The lock is about to be released.
    pub(crate) fn end(&mut self) {
        self.ns = now_ns().saturating_sub(self.ns);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.counters.holds.add(self.ns);
    }
}

fn cpu() -> u32 {
    // Never fails on Linux; a wrong number would cost a bounce, not a lock.
    u32::try_from(sched_getcpu()).unwrap_or(0)
}

/// Nanoseconds of the monotonic clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
