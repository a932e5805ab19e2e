//! Ranges of the array that are being written: overlapping ones go one after the other, all others at the same time.
//!
//! Without it two writers of the same bytes could reach two copies in different orders and leave them different for
//! good, and background work could copy what has just become old. Readers take nothing.
//!
//! The array is divided into regions, whose lists of ranges are hashed into buckets. A range that spans regions is
//! taken region by region, by rising number; within a region overlapping ones are served in the order they came, so
//! that neither background work nor a large write starves. A thread that takes several ranges takes all of a region's at
//! once. A range is kept over I/O and is no lock of the lock order, since members may be arrays themselves; no thread that
//! has one takes another. A bucket's own lock (class `ARRAY_RANGES`) is held only to look at its list.

use std::ops::Range;

use undercroft_sync::{Mutex, WaitQueue, order};

/// A power of two: large writes and steps of background work span few.
const REGION_BYTES: u64 = 1 << 20;
const BUCKETS: usize = 64;

/// Which ranges are being written.
#[derive(Debug)]
pub(super) struct Ranges {
    buckets: Box<[Bucket]>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Bucket {
    list: Mutex<List>,
    freed: WaitQueue,
}

/// By rising ticket: an entry that overlaps none of a lower ticket has its range.
#[derive(Debug, Default)]
struct List {
    next_ticket: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    range: Range<u64>,
}

impl List {
    /// Whether all that came with a ticket is free for it.
    fn is_free_for(&self, ticket: u64) -> bool {
        let overlaps = |one: &Entry, other: &Entry| {
            one.range.start < other.range.end && other.range.start < one.range.end
        };
        let earlier = self.entries.partition_point(|entry| entry.ticket < ticket);
        let (earlier, rest) = self.entries.split_at(earlier);
        let ours = rest.iter().take_while(|entry| entry.ticket == ticket);
        ours.into_iter().all(|mine| !earlier.iter().any(|other| overlaps(mine, other)))
    }
}

/// The caller has its ranges, until this is dropped.
#[derive(Debug)]
#[must_use = "the ranges are free again when this is dropped"]
pub(super) struct Taken<'a, R: AsRef<[Range<u64>]>> {
    ranges: &'a Ranges,
    taken: R,
}

impl Ranges {
    pub(super) fn new() -> Self {
        let bucket =
            || Bucket { list: Mutex::new(&order::ARRAY_RANGES, List::default()), freed: WaitQueue::new() };
        Self { buckets: (0..BUCKETS).map(|_| bucket()).collect() }
    }

    /// Takes one range.
    pub(super) fn take(&self, range: Range<u64>) -> Taken<'_, [Range<u64>; 1]> {
        self.take_all([range])
    }

    /// Takes ranges that come by rising offset and do not overlap.
    pub(super) fn take_all<R: AsRef<[Range<u64>]>>(&self, taken: R) -> Taken<'_, R> {
        self.enter(taken.as_ref());
        Taken { ranges: self, taken }
    }

    fn enter(&self, taken: &[Range<u64>]) {
        let mut pieces = pieces(taken).peekable();
        while let Some((region, first)) = pieces.next() {
            let bucket = self.bucket(region);
            let mut list = bucket.list.lock();
            let ticket = list.next_ticket;
            list.next_ticket += 1;
            list.entries.push(Entry { ticket, range: first });
            while let Some((_, range)) = pieces.next_if(|(other, _)| *other == region) {
                list.entries.push(Entry { ticket, range });
            }
            let is_free = list.is_free_for(ticket);
            drop(list);
            if !is_free {
                bucket.freed.wait(|| bucket.list.lock().is_free_for(ticket));
            }
        }
    }

    fn bucket(&self, region: u64) -> &Bucket {
        &self.buckets[(region % BUCKETS as u64) as usize]
    }
}

impl<R: AsRef<[Range<u64>]>> Drop for Taken<'_, R> {
    fn drop(&mut self) {
        for (region, range) in pieces(self.taken.as_ref()) {
            let bucket = self.ranges.bucket(region);
            let mut list = bucket.list.lock();
            // Of equal ranges the first has been taken, and the others wait: it is ours.
            if let Some(at) = list.entries.iter().position(|entry| entry.range == range) {
                list.entries.remove(at);
            }
            drop(list);
            bucket.freed.wake_all();
        }
    }
}

/// Ranges cut at the regions' borders, with the regions' numbers.
fn pieces(ranges: &[Range<u64>]) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
    ranges.iter().filter(|range| !range.is_empty()).flat_map(|range| {
        (range.start / REGION_BYTES..=(range.end - 1) / REGION_BYTES).map(|region| {
            let begin = region * REGION_BYTES;
            (region, range.start.max(begin)..range.end.min(begin + REGION_BYTES))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use undercroft_block::testing::Rng;

    #[test]
    fn ranges_never_overlap_and_every_waiter_gets_one() {
        const CELLS: usize = 96;
        const CELL_BYTES: u64 = REGION_BYTES / 4;
        let ranges = Ranges::new();
        let cells: Vec<AtomicU64> = (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 1..=8_u64 {
                let (ranges, cells) = (&ranges, &cells);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..2000 {
                        let mut wanted = Vec::new();
                        let mut at = rng.below(10);
                        while at < CELLS as u64 && wanted.len() < 3 {
                            let len = 1 + rng.below(9).min(CELLS as u64 - at - 1);
                            wanted.push(at..at + len);
                            at += len + rng.below(40);
                        }
                        let bytes: Vec<Range<u64>> = wanted
                            .iter()
                            .map(|cells| cells.start * CELL_BYTES..cells.end * CELL_BYTES)
                            .collect();
                        let taken = ranges.take_all(bytes);
                        let mine =
                            || wanted.iter().flat_map(|cells| cells.start as usize..cells.end as usize);
                        mine().for_each(|cell| assert_eq!(cells[cell].swap(thread, Ordering::Relaxed), 0));
                        std::thread::yield_now();
                        mine().for_each(|cell| assert_eq!(cells[cell].swap(0, Ordering::Relaxed), thread));
                        drop(taken);
                    }
                });
            }
        });
        assert!(ranges.buckets.iter().all(|bucket| bucket.list.lock().entries.is_empty()));
    }

    #[test]
    fn neighbours_and_empty_ranges_do_not_wait() {
        let ranges = Ranges::new();
        let _first = ranges.take(0..4096);
        let _second = ranges.take(4096..3 * REGION_BYTES);
        let _empty = ranges.take(100..100);
        let _same_bucket = ranges.take(64 * REGION_BYTES..64 * REGION_BYTES + 4096);
    }
}
