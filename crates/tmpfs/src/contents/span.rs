//! Which pages and chunks a range of bytes touches.
//!
//! Pure arithmetic, for any numbers: the last byte that exists is the one before `u64::MAX`, so a page's number has
//! 52 bits and a chunk's has 46, and the start of each in bytes does not overflow.

use std::ops::{Range, RangeInclusive};

/// Bytes of a page: what processors and Linux's own tmpfs have.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Pages of a chunk: a copy within one is long enough to be worth a lock, and a word for each page costs little.
pub(super) const CHUNK_PAGES: u64 = 64;

const CHUNK_BYTES: u64 = CHUNK_PAGES * PAGE_BYTES;

/// The part of a range that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) chunk: u64,
    /// First byte within the chunk.
    pub(super) start: usize,
    /// At least one byte.
    pub(super) len: usize,
}

impl Part {
    /// The places of the pages that it touches.
    pub(super) fn slots(&self) -> Range<usize> {
        self.start / PAGE_BYTES as usize..(self.start + self.len).div_ceil(PAGE_BYTES as usize)
    }
}

/// The parts of a range in order, up to the last byte that exists.
pub(super) fn parts(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        let start = at % CHUNK_BYTES;
        let part = Part {
            chunk: at / CHUNK_BYTES,
            start: start as usize,
            len: (CHUNK_BYTES - start).min(end - at) as usize,
        };
        at += part.len as u64;
        (part.len > 0).then_some(part)
    })
}

/// The pages that a range of bytes touches.
pub(super) fn pages_in(bytes: &Range<u64>) -> Range<u64> {
    let first = bytes.start / PAGE_BYTES;
    first..if bytes.is_empty() { first } else { bytes.end.div_ceil(PAGE_BYTES) }
}

/// The chunks that pages lie in, of which there is at least one.
pub(super) fn chunks_of(pages: Range<u64>) -> RangeInclusive<u64> {
    pages.start / CHUNK_PAGES..=(pages.end - 1) / CHUNK_PAGES
}

/// The places that pages have in a chunk.
pub(super) fn slots_in(chunk: u64, pages: &Range<u64>) -> Range<usize> {
    within(chunk * CHUNK_PAGES, CHUNK_PAGES, pages)
}

/// The bytes of a chunk that lie in a range.
pub(super) fn bytes_in(chunk: u64, bytes: &Range<u64>) -> Range<usize> {
    within(chunk * CHUNK_BYTES, CHUNK_BYTES, bytes)
}

/// What a stretch of `len` from `base` on has of a range, counted from `base`.
fn within(base: u64, len: u64, range: &Range<u64>) -> Range<usize> {
    let inside = |at: u64| at.saturating_sub(base).min(len) as usize;
    inside(range.start)..inside(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_at_chunks_and_at_the_last_byte() {
        let cut: Vec<Part> = parts(CHUNK_BYTES - 10, CHUNK_BYTES + 20).collect();
        let whole = CHUNK_BYTES as usize;
        let expected = [(0, whole - 10, 10), (1, 0, whole), (2, 0, 10)];
        assert_eq!(cut, expected.map(|(chunk, start, len)| Part { chunk, start, len }));

        let last: Vec<Part> = parts(u64::MAX - 5, 100).collect();
        let (chunk, start) = ((1 << 46) - 1, whole - 6);
        assert_eq!(last, [Part { chunk, start, len: 5 }]);
        assert_eq!(last[0].slots(), 63..64);
        assert_eq!(parts(u64::MAX, u64::MAX).count() + parts(7, 0).count(), 0);
    }

    #[test]
    fn every_number_has_an_answer() {
        let last = 1 << 52;
        assert_eq!(pages_in(&(u64::MAX - 1..u64::MAX)), last - 1..last);
        assert_eq!(pages_in(&(5000..5000)), 1..1);
        assert_eq!(chunks_of(last - 1..u64::MAX), (1 << 46) - 1..=u64::MAX / 64);
        assert_eq!(bytes_in((1 << 46) - 1, &(u64::MAX - 9..u64::MAX)), 262_134..262_143);
        assert_eq!(slots_in(3, &(0..200)), 0..8);
        assert_eq!(slots_in(4, &(0..200)), 0..0);
    }
}
