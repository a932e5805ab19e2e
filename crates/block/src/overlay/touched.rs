//! Which parts of an overlay may have been written to: a bitmap that is asked before the store is.
//!
//! One bit stands for a granule, a power of two of bytes such that even the largest device has no more than
//! [`MAX_BITS`]. Bits are set and never cleared. A clear bit means that no write to the granule has begun before
//! the question was asked; a set bit means nothing.
//!
//! No locks. The bits need no ordering of their own: a reader that must see a write has learned of its return in some
//! way that orders the two threads, and with them the bit; the content behind it is guarded by the store's locks.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// 128 KiB of bitmap at most. A gigabyte is then watched in granules of one block, a terabyte in those of a megabyte.
const MAX_BITS: u64 = 1 << 20;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Touched {
    words: Box<[AtomicU64]>,
    granule_bytes: u64,
}

impl Touched {
    /// Nothing written yet on a device of `size_bytes`; granules are of `least_bytes` or a power of two times that.
    pub(super) fn new(size_bytes: u64, least_bytes: u64) -> Self {
        let mut granule_bytes = least_bytes;
        while size_bytes.div_ceil(granule_bytes) > MAX_BITS {
            granule_bytes *= 2;
        }
        let words = size_bytes.div_ceil(granule_bytes).div_ceil(64);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), granule_bytes }
    }

    /// The granules of a range, which must lie within the device.
    fn granules(&self, offset: u64, len: u64) -> Range<u64> {
        if len == 0 { 0..0 } else { offset / self.granule_bytes..(offset + len).div_ceil(self.granule_bytes) }
    }

    /// The words of a range of granules, each with those of its bits that belong to the range.
    fn masks(granules: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
        let words = granules.start / 64..granules.end.div_ceil(64);
        words.map(move |word| {
            let first = granules.start.saturating_sub(word * 64).min(63);
            let last = (granules.end - 1 - word * 64).min(63);
            (word as usize, (u64::MAX << first) & (u64::MAX >> (63 - last)))
        })
    }

    /// Says that a write to the range begins.
    pub(super) fn mark(&self, offset: u64, len: u64) {
        for (word, mask) in Self::masks(self.granules(offset, len)) {
            // Most writes go where something has been written: then the cache line stays shared.
            if self.words[word].load(Ordering::Relaxed) & mask != mask {
                self.words[word].fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// Whether something in the range may have been written to.
    pub(super) fn is_marked(&self, offset: u64, len: u64) -> bool {
        Self::masks(self.granules(offset, len))
            .any(|(word, mask)| self.words[word].load(Ordering::Relaxed) & mask != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_cover_exactly_their_granules() {
        let touched = Touched::new(1 << 20, 4096);
        for (offset, len, first, last) in
            [(0, 1, 0, 0), (4095, 2, 0, 1), (4096 * 60, 4096 * 70, 60, 129), (5, 0, 1, 0)]
        {
            let touched_now = Touched::new(1 << 20, 4096);
            touched_now.mark(offset, len);
            for granule in 0..256 {
                let marked = touched_now.is_marked(granule * 4096 + 100, 1);
                assert_eq!(marked, (first..=last).contains(&granule), "granule {granule} of {offset}+{len}");
            }
            touched.mark(offset, len);
        }
        assert!(touched.is_marked(0, 1 << 20));
        assert!(!touched.is_marked(4096 * 130, 4096 * 100));
    }

    #[test]
    fn huge_devices_have_small_bitmaps() {
        let touched = Touched::new(u64::MAX / 4096 * 4096, 4096);
        assert!(touched.words.len() as u64 * 64 <= MAX_BITS);
        touched.mark(u64::MAX - 10_000, 1);
        assert!(touched.is_marked(u64::MAX - 10_000, 1));
        assert!(!touched.is_marked(0, 1 << 40));
        assert!(Touched::new(0, 4096).words.is_empty());
    }
}
