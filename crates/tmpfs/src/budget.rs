//! A limited number of things, handed out without one counter that all threads write to.
//!
//! What is left lies in a common pot and in stripes, one for each of a few groups of threads. Taking and giving back
//! touch the thread's own stripe; only when that is empty, or holds a lot, does anything move between it and the
//! pot. A refusal is exact: before it, the pot and every stripe have been looked into.
//!
//! Invariant: pot, stripes and what was handed out add up to the limit. What is unlimited is not counted. No locks.

use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_sync::thread_number;

/// Groups of threads; more than the processors of most machines.
pub(crate) const STRIPES: usize = 16;

/// The limit of what is not counted.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// How much moves from the pot to a stripe at once. A stripe with twice as much gives as much back.
const BATCH: u64 = 64;

/// So many things to be had.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    pot: Stripe,
    stripes: [Stripe; STRIPES],
}

/// Padded to its own cache lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Budget {
    /// A budget of `limit` things, all of them to be had.
    #[must_use]
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, pot: Stripe(AtomicU64::new(limit)), stripes: Default::default() }
    }

    /// How many things there are, handed out or not.
    #[must_use]
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// About how many are left; exact while no thread takes or gives back.
    #[must_use]
    pub(crate) fn left(&self) -> u64 {
        let parts = self.stripes.iter().chain([&self.pot]);
        parts.map(|part| part.0.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    /// Takes `count` things, or none: `false` says that so many are not left.
    #[must_use]
    pub(crate) fn take(&self, count: u64) -> bool {
        if self.limit == UNLIMITED {
            return true;
        }
        let own = &self.stripes[thread_group()];
        if own.take(count) {
            return true;
        }
        if self.pot.take(count.saturating_add(BATCH)) {
            own.give(BATCH);
            return true;
        }
        self.scrape_together(count)
    }

    /// Gives `count` things back that were taken.
    pub(crate) fn give(&self, count: u64) {
        if self.limit == UNLIMITED {
            return;
        }
        let own = &self.stripes[thread_group()];
        if own.give(count) + count >= 2 * BATCH {
            let surplus = own.take_up_to(count.max(BATCH));
            self.pot.give(surplus);
        }
    }

    /// Takes from wherever something is left.
    fn scrape_together(&self, count: u64) -> bool {
        let mut got = 0;
        for part in [&self.pot].into_iter().chain(&self.stripes) {
            got += part.take_up_to(count - got);
            if got == count {
                return true;
            }
        }
        self.pot.give(got);
        false
    }
}

impl Stripe {
    fn take(&self, count: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count)).is_ok()
    }

    fn take_up_to(&self, count: u64) -> u64 {
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(count)))
            .unwrap_or_default();
        before.min(count)
    }

    /// What was there before.
    fn give(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed)
    }
}

/// The calling thread's group.
pub(crate) fn thread_group() -> usize {
    thread_number() % STRIPES
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn exactly_the_limit_can_be_had_wherever_it_lies() {
        let budget = Budget::new(1000);
        // Leaves something in many stripes.
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    assert!(budget.take(5));
                    budget.give(5);
                });
            }
        });
        let mut taken = 0;
        while budget.take(1) {
            taken += 1;
        }
        assert_eq!((taken, budget.left()), (1000, 0));
        assert!(!budget.take(1));
        budget.give(1000);
        assert!(budget.take(1000));
        assert!(!budget.take(1));
        assert!(budget.take(0));
    }

    #[test]
    fn what_is_too_much_takes_nothing() {
        let budget = Budget::new(100);
        assert!(!budget.take(101));
        assert!(!budget.take(u64::MAX));
        assert_eq!(budget.left(), 100);
        assert!(budget.take(100));
    }

    #[test]
    fn threads_never_have_more_than_there_is() {
        let (budget, out) = (Budget::new(300), AtomicU64::new(0));
        thread::scope(|scope| {
            for seed in 0..4_u64 {
                let (budget, out) = (&budget, &out);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let count = (round * 7 + seed * 13) % 90;
                        if budget.take(count) {
                            assert!(out.fetch_add(count, Ordering::SeqCst) + count <= 300);
                            out.fetch_sub(count, Ordering::SeqCst);
                            budget.give(count);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.left(), 300);
    }
}
