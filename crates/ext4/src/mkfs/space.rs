//! Which blocks of the new filesystem are taken: runs of them, so that 16 TiB take no more memory than 1 GiB.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;

/// Taken blocks, as runs that neither overlap nor touch.
#[derive(Debug)]
pub(crate) struct Space {
    /// End of each run, by its first block.
    runs: BTreeMap<u64, u64>,
    /// Blocks there are: past the last.
    end: u64,
    /// Blocks that are taken together when a file takes one: 1 without `bigalloc`.
    cluster: u64,
}

impl Space {
    /// `end` blocks, all free.
    pub(crate) fn new(end: u64, cluster: u64) -> Self {
        Self { runs: BTreeMap::new(), end, cluster }
    }

    /// Takes blocks that are free.
    pub(super) fn take(&mut self, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        let (mut start, mut end) = (first, first + count);
        if let Some((&before, &before_end)) = self.runs.range(..=start).next_back() {
            assert!(before_end <= start, "block {start} is taken twice");
            if before_end == start {
                start = before;
            }
        }
        if let Some(after_end) = self.runs.remove(&end) {
            end = after_end;
        }
        self.runs.insert(start, end);
    }

    /// The first block from `from` on at which `count` free ones begin and end before `limit`.
    pub(super) fn find(&self, from: u64, limit: u64, count: u64) -> Option<u64> {
        self.find_aligned(from, limit, count, 1)
    }

    fn find_aligned(&self, from: u64, limit: u64, count: u64, align: u64) -> Option<u64> {
        let mut at = from.next_multiple_of(align);
        if let Some((_, &end)) = self.runs.range(..=at).next_back() {
            at = at.max(end.next_multiple_of(align));
        }
        for (&start, &end) in self.runs.range(at..) {
            if start >= at + count {
                break;
            }
            at = end.next_multiple_of(align);
        }
        (at + count <= limit.min(self.end)).then_some(at)
    }

    /// Takes `count` blocks for a file, whole clusters at a time: in one piece if one is free, else in as many
    /// pieces as it takes. `None` when there are not enough.
    pub(super) fn allocate(&mut self, from: u64, count: u64) -> Option<Vec<Range<u64>>> {
        let wanted = count.next_multiple_of(self.cluster);
        let whole = |space: &Self, from| space.find_aligned(from, space.end, wanted, space.cluster);
        if let Some(first) = whole(self, from).or_else(|| whole(self, 0)) {
            self.take(first, wanted);
            return Some(iter::once(first..first + count).collect());
        }
        let mut pieces = Vec::new();
        let mut left = count;
        let mut at = 0;
        while left > 0 {
            let start = self.find_aligned(at, self.end, self.cluster, self.cluster)?;
            let free_end = self.runs.range(start..).next().map_or(self.end, |(&next, _)| next);
            let room = (free_end - start) / self.cluster * self.cluster;
            let len = left.min(room);
            self.take(start, len.next_multiple_of(self.cluster));
            pieces.push(start..start + len);
            left -= len;
            at = start + len;
        }
        Some(pieces)
    }

    /// Clusters of which any block is taken, where clusters count from block `origin`.
    pub(super) fn clusters_taken(&self, origin: u64) -> u64 {
        let (mut taken, mut next) = (0, 0);
        for run in self.taken_in(origin..self.end) {
            let first = ((run.start - origin) / self.cluster).max(next);
            next = (run.end - origin).div_ceil(self.cluster);
            taken += next - first;
        }
        taken
    }

    /// Taken runs that reach into a range, cut to it, in rising order.
    pub(super) fn taken_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.runs.range(..range.start).next_back();
        let within = self.runs.range(range.clone());
        before
            .into_iter()
            .chain(within)
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|run| run.start < run.end)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of runs, some of which have one")]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_become_one() {
        let mut space = Space::new(100, 1);
        space.take(10, 5);
        space.take(20, 5);
        space.take(15, 5);
        assert_eq!(space.runs, BTreeMap::from([(10, 25)]));
        assert_eq!(space.taken_in(0..100).collect::<Vec<_>>(), [10..25]);
        assert_eq!(space.taken_in(12..20).collect::<Vec<_>>(), [12..20]);
        assert_eq!(space.taken_in(25..100).count(), 0);
    }

    #[test]
    fn the_first_place_that_fits_is_found() {
        let mut space = Space::new(100, 1);
        space.take(0, 10);
        space.take(13, 7);
        assert_eq!(space.find(0, 100, 3), Some(10));
        assert_eq!(space.find(0, 100, 4), Some(20));
        assert_eq!(space.find(11, 100, 2), Some(11));
        assert_eq!(space.find(0, 100, 81), None);
        assert_eq!(space.find(0, 25, 6), None);
    }

    #[test]
    fn a_file_takes_one_piece_where_it_can_and_several_where_it_must() {
        let mut space = Space::new(100, 1);
        space.take(0, 40);
        space.take(60, 10);
        assert_eq!(space.allocate(50, 25), Some(vec![70..95]));
        assert_eq!(space.allocate(0, 22), Some(vec![40..60, 95..97]));
        assert_eq!(space.allocate(0, 4), None);
    }

    #[test]
    fn whole_clusters_are_taken() {
        let mut space = Space::new(64, 16);
        space.take(0, 3);
        assert_eq!(space.allocate(0, 5), Some(vec![16..21]));
        assert_eq!(space.allocate(0, 1), Some(vec![32..33]));
        assert_eq!(space.taken_in(0..64).collect::<Vec<_>>(), [0..3, 16..48]);
        assert_eq!(space.clusters_taken(0), 3);
    }
}
