//! A set of the pages of one piece: which are known, changed, to be read.

use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not, Range};

/// What parity, and what is known of a stripe, is counted in; Linux's stripes are this long.
pub(super) const PAGE_BYTES: usize = 4096;

/// Bytes of the longest piece.
pub(super) const MAX_PIECE_BYTES: usize = PAGE_BYTES * u32::BITS as usize;

/// See the module's description. Ranges are in bytes from the beginning of the piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages(u32);

impl Pages {
    pub(super) const NONE: Self = Self(0);

    /// The first `count` pages.
    pub(super) fn first(count: usize) -> Self {
        Self(u32::MAX.checked_shr(u32::BITS - count as u32).unwrap_or(0))
    }

    pub(super) fn one(page: usize) -> Self {
        Self(1 << page)
    }

    /// All of which the range has a byte.
    pub(super) fn touched_by(range: Range<usize>) -> Self {
        Self::between(range.start / PAGE_BYTES, range.end.div_ceil(PAGE_BYTES))
    }

    /// All of which the range has every byte.
    pub(super) fn covered_by(range: Range<usize>) -> Self {
        Self::between(range.start.div_ceil(PAGE_BYTES), range.end / PAGE_BYTES)
    }

    fn between(start: usize, end: usize) -> Self {
        if start >= end { Self::NONE } else { Self::first(end) & !Self::first(start) }
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains(self, page: usize) -> bool {
        self.0 & (1 << page) != 0
    }

    pub(super) fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.count()) * PAGE_BYTES as u64
    }

    /// The pages, rising.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let page = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (page < u32::BITS).then_some(page as usize)
        })
    }

    /// The pages in as few byte ranges as possible, rising.
    pub(super) fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut rest = u64::from(self.0);
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let start = rest.trailing_zeros();
            let end = start + (rest >> start).trailing_ones();
            rest &= u64::MAX << end;
            Some(start as usize * PAGE_BYTES..end as usize * PAGE_BYTES)
        })
    }
}

impl BitAnd for Pages {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Pages {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Not for Pages {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl BitAndAssign for Pages {
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}

impl BitOrAssign for Pages {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_touch_and_cover_pages_as_their_bytes_do() {
        for start in (0..3 * PAGE_BYTES).step_by(512) {
            for end in (start + 1..4 * PAGE_BYTES).step_by(511) {
                for page in 0..4 {
                    let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
                    let inside = bytes.filter(|byte| (start..end).contains(byte)).count();
                    assert_eq!(Pages::touched_by(start..end).contains(page), inside > 0, "{start}..{end}");
                    assert_eq!(Pages::covered_by(start..end).contains(page), inside == PAGE_BYTES);
                }
            }
        }
    }

    #[test]
    fn runs_are_the_pages_and_never_touch() {
        for bits in (0..1 << 16).chain([u32::MAX, 1 << 31, 0xf000_000f]) {
            let pages = Pages(bits);
            let mut again = Pages::NONE;
            let mut end_before = None;
            for run in pages.runs() {
                assert!(end_before.is_none_or(|end| end < run.start), "{bits:#x}");
                end_before = Some(run.end);
                again |= Pages::covered_by(run);
            }
            assert_eq!(again, pages);
            assert_eq!(pages.iter().map(Pages::one).fold(Pages::NONE, |all, one| all | one), pages);
            assert_eq!(pages.iter().count() as u32, pages.count());
        }
    }

    #[test]
    fn the_longest_piece_fits() {
        assert_eq!(Pages::first(32), Pages(u32::MAX));
        assert_eq!(Pages::first(0), Pages::NONE);
        assert_eq!(Pages::covered_by(0..MAX_PIECE_BYTES), Pages(u32::MAX));
    }
}
