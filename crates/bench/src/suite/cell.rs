//! A cell while it is measured: how many operations come next, and what came out so far.

use std::time::Duration;

use super::results::{CellResult, Spread};
use crate::Outcome;

/// A contender with so many workers.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) threads: u32,
    /// Operations of each worker, next time.
    pub(super) ops: u64,
    /// What the next measurement takes, about, with all that it prepares and removes.
    pub(super) cost: Duration,
    outcomes: Vec<Outcome>,
    gap: Option<String>,
}

impl Cell {
    /// One whose workers do `rate` operations a second each, as far as is known, beside preparations that take so long.
    pub(super) fn new(threads: u32, rate: f64, prepared: Duration, slice: Duration) -> Self {
        let ops = ops_in(rate, slice);
        Self { threads, ops, cost: prepared + slice, outcomes: Vec::new(), gap: None }
    }

    /// One that will not be measured.
    pub(super) const fn missing(threads: u32, why: String) -> Self {
        Self { threads, ops: 1, cost: Duration::ZERO, outcomes: Vec::new(), gap: Some(why) }
    }

    pub(super) const fn is_missing(&self) -> bool {
        self.gap.is_some()
    }

    /// Takes what a measurement came to, which took `wall` with everything around it, and sizes the next by it.
    pub(super) fn take(&mut self, outcome: Outcome, wall: Duration, slice: Duration) {
        self.ops = ops_in(outcome.ops_per_second / f64::from(self.threads), slice);
        self.cost = wall;
        self.outcomes.push(outcome);
    }

    /// It cannot be measured, or not once more.
    pub(super) fn fail(&mut self, why: String) {
        self.gap = Some(why);
    }

    /// Says why there is nothing, where there is nothing.
    pub(super) fn excuse(&mut self, why: &str) {
        if self.outcomes.is_empty() && self.gap.is_none() {
            self.gap = Some(why.to_owned());
        }
    }

    pub(super) fn into_result(self) -> CellResult {
        let ops_per_second = Spread::of(self.outcomes.iter().map(|outcome| outcome.ops_per_second));
        CellResult { threads: self.threads, ops_per_second, gap: self.gap, rounds: self.outcomes }
    }
}

/// Operations that take so long at this rate, at least one.
fn ops_in(rate: f64, slice: Duration) -> u64 {
    // Saturates: neither is a rate ever negative, nor is there a number for one that is none.
    ((rate * slice.as_secs_f64()) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;
    use crate::outcome::tests::outcome;

    const SLICE: Duration = Duration::from_millis(10);

    #[test]
    fn the_next_measurement_is_as_long_as_its_slice() {
        let mut cell = Cell::new(2, 5000.0, Duration::from_millis(3), SLICE);
        assert_eq!((cell.ops, cell.cost), (50, Duration::from_millis(13)));
        // 40 operations of two workers in 30 microseconds.
        cell.take(outcome(Workload::Rename, 1000), Duration::from_millis(7), SLICE);
        assert_eq!((cell.ops, cell.cost), (6666, Duration::from_millis(7)));
        assert_eq!(ops_in(0.0, SLICE), 1);
        assert_eq!(ops_in(f64::INFINITY, SLICE), u64::MAX);
    }

    #[test]
    fn a_cell_that_fails_keeps_what_it_has_and_says_why() {
        let mut cell = Cell::new(2, 5000.0, Duration::ZERO, SLICE);
        cell.take(outcome(Workload::Rename, 1000), SLICE, SLICE);
        cell.excuse("no time was left");
        assert!(!cell.is_missing(), "it has something");
        cell.fail("No space left on device".to_owned());
        let result = cell.into_result();
        assert_eq!((result.rounds.len(), result.gap.as_deref()), (1, Some("No space left on device")));
        assert!(result.ops_per_second.is_some());

        let mut empty = Cell::new(1, 1.0, Duration::ZERO, SLICE);
        empty.excuse("no time was left");
        let result = empty.into_result();
        assert_eq!((result.ops_per_second, result.gap.as_deref()), (None, Some("no time was left")));
    }
}
