//! How long operations took: counts in buckets that grow with the value, so that every one is known to three digits.
//!
//! Below 2048 ns a bucket is a nanosecond wide; above, every doubling is cut into 1024 buckets. A value is therefore
//! off by less than a thousandth, and recording costs a shift and an addition in memory that is there beforehand.
//! One worker records; what several recorded is merged afterwards. No locks.

use serde::{Deserialize, Serialize};

/// Bits of a value that are kept: 11, for a precision of 1 in 1024.
const KEPT_BITS: u32 = 11;
/// Values below this have buckets of their own.
const EXACT: u64 = 1 << KEPT_BITS;
/// Buckets for each doubling above.
const PER_DOUBLING: usize = 1 << (KEPT_BITS - 1);
/// Values from here on (18 minutes in nanoseconds) share the last bucket.
const LIMIT: u64 = 1 << 40;
const BUCKETS: usize = index(LIMIT - 1) + 1;

/// A distribution of durations in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    max: u64,
}

/// The buckets that hold anything, for the way from one process to another.
#[derive(Serialize, Deserialize)]
struct Sparse {
    buckets: Vec<(usize, u64)>,
    max: u64,
}

impl Histogram {
    /// An empty one. All its memory is touched, so that recording meets no page fault.
    #[must_use]
    pub fn new() -> Self {
        // A zeroed allocation would be mapped page by page, at the first use of each.
        let mut counts = vec![1; BUCKETS].into_boxed_slice();
        std::hint::black_box(&mut counts).fill(0);
        Self { counts, total: 0, max: 0 }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[index(value.min(LIMIT - 1))] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// Adds what another recorded.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// How many values there are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// The largest value, exactly; 0 if there is none.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The smallest value that at least this share of all values does not exceed, `share` from 0 to 1; 0 if there is
    /// none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest(index).min(self.max);
            }
        }
        self.max
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Sparse> for Histogram {
    fn from(sparse: Sparse) -> Self {
        let mut histogram = Self::new();
        histogram.max = sparse.max;
        for (index, count) in sparse.buckets {
            histogram.counts[index.min(BUCKETS - 1)] += count;
            histogram.total += count;
        }
        histogram
    }
}

impl From<Histogram> for Sparse {
    fn from(histogram: Histogram) -> Self {
        let filled = histogram.counts.iter().copied().enumerate().filter(|&(_, count)| count > 0);
        Self { buckets: filled.collect(), max: histogram.max }
    }
}

/// The bucket of a value below [`LIMIT`].
const fn index(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let doublings = (value.ilog2() - KEPT_BITS + 1) as usize;
    doublings * PER_DOUBLING + (value >> doublings) as usize
}

/// The largest value of a bucket.
const fn highest(index: usize) -> u64 {
    if index < EXACT as usize {
        return index as u64;
    }
    let doublings = index / PER_DOUBLING - 1;
    (((index - doublings * PER_DOUBLING) as u64 + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around every boundary there may be.
    fn values() -> impl Iterator<Item = u64> {
        (0..40).flat_map(|bit| {
            [-1025_i64, -1, 0, 1, 2, 1023, 1024].map(|step| (1_u64 << bit).saturating_add_signed(step))
        })
    }

    #[test]
    fn a_bucket_is_narrower_than_a_thousandth_of_what_is_in_it() {
        for value in values().filter(|&value| value < LIMIT) {
            let highest = highest(index(value));
            assert!(highest >= value, "{value}: {highest}");
            assert!((highest - value) * 1000 < value.max(1), "{value}: {highest}");
            assert_eq!(index(highest), index(value), "{value}");
            if highest + 1 < LIMIT {
                assert_eq!(index(highest + 1), index(value) + 1, "{value}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut histogram = Histogram::new();
        let mut sorted: Vec<u64> = (1..=100_000).map(|n: u64| n * n % 3_000_017).collect();
        sorted.iter().for_each(|&value| histogram.record(value));
        sorted.sort_unstable();
        for share in [0.0, 0.001, 0.5, 0.9, 0.99, 0.9999, 1.0] {
            let exact = sorted[((sorted.len() as f64 * share).ceil() as usize).max(1) - 1];
            let found = histogram.quantile(share);
            assert!(found >= exact && (found - exact) * 1000 <= exact, "{share}: {found}, exactly {exact}");
        }
        assert_eq!(histogram.max(), *sorted.last().unwrap());
    }

    #[test]
    fn what_several_recorded_adds_up_on_the_way_between_processes_too() {
        let (mut whole, mut one, mut other) = (Histogram::new(), Histogram::new(), Histogram::new());
        for (number, value) in values().chain([u64::MAX]).enumerate() {
            whole.record(value);
            if number % 3 == 0 { one.record(value) } else { other.record(value) }
        }
        let sent = serde_json::to_string(&other).unwrap();
        one.merge(&serde_json::from_str(&sent).unwrap());
        assert_eq!(one, whole);
        assert_eq!((one.max(), one.quantile(1.0)), (u64::MAX, LIMIT - 1));
    }

    #[test]
    fn an_empty_one_has_no_values() {
        let empty = Histogram::new();
        assert_eq!((empty.count(), empty.max(), empty.quantile(0.5)), (0, 0, 0));
    }
}
