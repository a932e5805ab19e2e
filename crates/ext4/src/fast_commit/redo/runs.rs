//! Sets of blocks as runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of the filesystem, as runs of which none overlaps another.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds a run, which is not empty; `false`, and nothing is added, if some of it is there.
    pub(super) fn add(&mut self, run: Range<u64>) -> bool {
        let is_new = self.within(run.clone()).next().is_none();
        if is_new {
            self.0.insert(run.start, run.end);
        }
        is_new
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of `range` that are in the set, in order.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.0.range(..range.start).next_back().filter(|&(_, &end)| end > range.start);
        let inside = self.0.range(range.clone());
        before.into_iter().chain(inside).map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
    }

    /// The parts of this set that are not in another, in order.
    pub(super) fn minus<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Range<u64>> + 'a {
        self.0.iter().flat_map(|(&start, &end)| {
            let mut from = start;
            let mut taken = other.within(start..end).chain(std::iter::once(end..end));
            std::iter::from_fn(move || {
                let next = taken.next()?;
                let left = from..next.start;
                from = next.end;
                Some(left)
            })
            .filter(|left| !left.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_overlap_and_are_taken_from_each_other() {
        let mut runs = Runs::default();
        assert!(runs.add(10..20) && runs.add(20..25) && runs.add(40..50));
        assert!(!runs.add(9..11) && !runs.add(24..26) && !runs.add(0..100) && !runs.add(42..43));
        let within = |range| runs.within(range).collect::<Vec<_>>();
        assert_eq!(within(15..45), [15..20, 20..25, 40..45]);
        assert_eq!(within(25..40), []);
        let mut other = Runs::default();
        assert!(other.add(0..12) && other.add(14..15) && other.add(18..22) && other.add(40..50));
        assert_eq!(runs.minus(&other).collect::<Vec<_>>(), [12..14, 15..18, 22..25]);
        assert_eq!(runs.minus(&Runs::default()).collect::<Vec<_>>(), [10..20, 20..25, 40..50]);
    }
}
