//! Runs of blocks of a group, by place and by size.

use std::collections::{BTreeMap, BTreeSet};

/// A run of blocks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) count: u32,
}

impl Run {
    pub(super) const fn new(start: u32, count: u32) -> Self {
        Self { start, count }
    }

    /// The block behind the last one. Runs lie within a group, whose blocks have numbers below 2^31.
    pub(super) const fn end(self) -> u32 {
        self.start + self.count
    }
}

/// Runs that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Runs {
    by_place: BTreeMap<u32, u32>,
    /// Count and start.
    by_size: BTreeSet<(u32, u32)>,
    blocks: u64,
}

impl Runs {
    /// Blocks in all runs.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks of the longest run.
    pub(super) fn longest(&self) -> u32 {
        self.by_size.last().map_or(0, |&(count, _)| count)
    }

    /// Adds a run as it is: it is not joined with its neighbours.
    pub(super) fn insert(&mut self, run: Run) {
        self.by_place.insert(run.start, run.count);
        self.by_size.insert((run.count, run.start));
        self.blocks += u64::from(run.count);
    }

    /// Removes a run that [`insert`](Self::insert) added.
    pub(super) fn remove(&mut self, run: Run) {
        self.by_place.remove(&run.start);
        self.by_size.remove(&(run.count, run.start));
        self.blocks -= u64::from(run.count);
    }

    /// The run that begins at or before a block, nearest to it.
    pub(super) fn at_or_before(&self, block: u32) -> Option<Run> {
        self.by_place.range(..=block).next_back().map(|(&start, &count)| Run { start, count })
    }

    /// The run that a block is part of.
    pub(super) fn containing(&self, block: u32) -> Option<Run> {
        self.at_or_before(block).filter(|run| block < run.end())
    }

    /// A run that has blocks in common with `run`.
    pub(super) fn overlapping(&self, run: Run) -> Option<Run> {
        let last = self.by_place.range(..run.end()).next_back();
        last.map(|(&start, &count)| Run { start, count }).filter(|other| other.end() > run.start)
    }

    /// The runs that end where `run` begins and begin where it ends.
    pub(super) fn neighbours(&self, run: Run) -> (Option<Run>, Option<Run>) {
        let left = run.start.checked_sub(1).and_then(|block| self.containing(block));
        let right = self.by_place.get(&run.end()).map(|&count| Run { start: run.end(), count });
        (left, right)
    }

    /// Adds blocks, of which none is in a run, and joins them with their neighbours.
    pub(super) fn give(&mut self, run: Run) {
        let (left, right) = self.neighbours(run);
        let mut joined = run;
        for neighbour in [left, right].into_iter().flatten() {
            self.remove(neighbour);
            joined = Run { start: joined.start.min(neighbour.start), count: joined.count + neighbour.count };
        }
        self.insert(joined);
    }

    /// Takes blocks out of the run that has them. `false` if there is no such run.
    pub(super) fn take(&mut self, run: Run) -> bool {
        let Some(whole) = self.containing(run.start).filter(|whole| run.end() <= whole.end()) else {
            return false;
        };
        self.remove(whole);
        if whole.start < run.start {
            self.insert(Run { start: whole.start, count: run.start - whole.start });
        }
        if run.end() < whole.end() {
            self.insert(Run { start: run.end(), count: whole.end() - run.end() });
        }
        true
    }

    /// Whether a run of another size would be at the same place in the order by size: no other run is between the two.
    pub(super) fn keeps_rank(&self, run: Run, new: Run) -> bool {
        let (old, new) = ((run.count, run.start), (new.count, new.start));
        if new < old {
            self.by_size.range(..old).next_back().is_none_or(|&before| before < new)
        } else {
            use std::ops::Bound::{Excluded, Unbounded};
            self.by_size.range((Excluded(old), Unbounded)).next().is_none_or(|&after| after > new)
        }
    }

    /// Runs from `block` on, in order.
    pub(super) fn from(&self, block: u32) -> impl Iterator<Item = Run> + '_ {
        self.by_place.range(block..).map(|(&start, &count)| Run { start, count })
    }

    /// Runs that begin before `block`, the nearest first.
    pub(super) fn before(&self, block: u32) -> impl Iterator<Item = Run> + '_ {
        self.by_place.range(..block).rev().map(|(&start, &count)| Run { start, count })
    }

    /// Runs of at least `count` blocks, the shortest first.
    pub(super) fn at_least(&self, count: u32) -> impl Iterator<Item = Run> + '_ {
        self.by_size.range((count, 0)..).map(|&(count, start)| Run { start, count })
    }

    /// Runs, the longest first.
    pub(super) fn by_falling_size(&self) -> impl Iterator<Item = Run> + '_ {
        self.by_size.iter().rev().map(|&(count, start)| Run { start, count })
    }
}
