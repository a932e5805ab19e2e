//! Bits: bitmaps as they lie on disk, and the map of what is free in memory.
//!
//! On disk a set bit is something in use, the lowest bit of a byte first. In memory a set bit is something free, in
//! words, so that whatever is in use is skipped 64 at a time.

use std::ops::Range;

/// The first bit of each word that a range of bits touches, with a mask of what it touches there.
fn words(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (first, end) = (range.start, range.end);
    (first / 64..end.div_ceil(64)).filter(move |_| first < end).map(move |word| {
        let low = first.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word as usize, u64::MAX << low & u64::MAX >> (64 - high))
    })
}

/// The bytes that a range of bits touches, each with a mask of what it touches there.
fn bytes(range: Range<u32>) -> impl Iterator<Item = (usize, u8)> {
    let (first, end) = (range.start, range.end);
    (first / 8..end.div_ceil(8)).filter(move |_| first < end).map(move |byte| {
        let low = first.saturating_sub(byte * 8);
        let high = (end - byte * 8).min(8);
        (byte as usize, u8::MAX << low & u8::MAX >> (8 - high))
    })
}

/// Marks a range of a bitmap on disk as in use.
pub(super) fn set(bitmap: &mut [u8], range: Range<u32>) {
    bytes(range).for_each(|(byte, mask)| bitmap[byte] |= mask);
}

/// Marks a range of a bitmap on disk as free.
pub(super) fn clear(bitmap: &mut [u8], range: Range<u32>) {
    bytes(range).for_each(|(byte, mask)| bitmap[byte] &= !mask);
}

/// Whether all of a range is in use.
pub(super) fn all_set(bitmap: &[u8], range: Range<u32>) -> bool {
    bytes(range).all(|(byte, mask)| bitmap[byte] & mask == mask)
}

/// Whether nothing of a range is in use.
pub(super) fn none_set(bitmap: &[u8], range: Range<u32>) -> bool {
    bytes(range).all(|(byte, mask)| bitmap[byte] & mask == 0)
}

/// What is free of `len` things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FreeMap {
    words: Box<[u64]>,
    len: u32,
}

/// What a search has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Search {
    /// The first run that is long enough, or the longest seen; cut to what was wanted.
    pub(super) start: u32,
    pub(super) len: u32,
    /// Whether everything was looked at: then no run is longer, unless this one is as long as was wanted.
    pub(super) complete: bool,
}

impl FreeMap {
    /// Nothing is free.
    pub(super) fn full(len: u32) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize].into(), len }
    }

    /// Everything is free.
    pub(super) fn empty(len: u32) -> Self {
        let mut map = Self::full(len);
        map.give(0..len);
        map
    }

    /// What the first `len` bits of a bitmap on disk leave free.
    pub(super) fn of_bitmap(bitmap: &[u8], len: u32) -> Self {
        let mut map = Self::full(len);
        for (word, bytes) in map.words.iter_mut().zip(bitmap.chunks(8)) {
            let mut whole = [0xff; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = !u64::from_le_bytes(whole);
        }
        if let Some(last) = map.words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last &= u64::MAX >> (64 - len % 64);
        }
        map
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Adds what lies from the present length up to `len`, all of it free.
    pub(super) fn lengthen(&mut self, len: u32) {
        let mut words = std::mem::take(&mut self.words).into_vec();
        words.resize(len.div_ceil(64) as usize, 0);
        self.words = words.into();
        let added = std::mem::replace(&mut self.len, len)..len;
        self.give(added);
    }

    pub(super) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn is_free(&self, bit: u32) -> bool {
        bit < self.len && self.words[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    pub(super) fn all_free(&self, range: Range<u32>) -> bool {
        words(range).all(|(word, mask)| self.words[word] & mask == mask)
    }

    pub(super) fn none_free(&self, range: Range<u32>) -> bool {
        words(range).all(|(word, mask)| self.words[word] & mask == 0)
    }

    /// Takes a range, which is free.
    pub(super) fn take(&mut self, range: Range<u32>) {
        debug_assert!(self.all_free(range.clone()), "{range:?} is not free");
        words(range).for_each(|(word, mask)| self.words[word] &= !mask);
    }

    /// Gives a range, which is not free.
    pub(super) fn give(&mut self, range: Range<u32>) {
        debug_assert!(self.none_free(range.clone()), "{range:?} is free already");
        words(range).for_each(|(word, mask)| self.words[word] |= mask);
    }

    /// The first free bit in a range.
    pub(super) fn first_free(&self, range: Range<u32>) -> Option<u32> {
        let end = range.end.min(self.len);
        words(range.start.min(end)..end).find_map(|(word, mask)| {
            let found = self.words[word] & mask;
            (found != 0).then(|| word as u32 * 64 + found.trailing_zeros())
        })
    }

    /// How many bits from `from` on are free, as far as `most`.
    pub(super) fn run_from(&self, from: u32, most: u32) -> u32 {
        let end = self.len.min(from.saturating_add(most));
        let used = words(from.min(end)..end).find_map(|(word, mask)| {
            let found = !self.words[word] & mask;
            (found != 0).then(|| word as u32 * 64 + found.trailing_zeros())
        });
        used.unwrap_or(end).saturating_sub(from)
    }

    /// How many bits before `to` are free, as far as `most`.
    pub(super) fn run_before(&self, to: u32, most: u32) -> u32 {
        let least = to.saturating_sub(most);
        let mut at = to;
        while at > least {
            let (word, bits) = ((at - 1) / 64, (at - 1) % 64 + 1);
            // The bits before `at`, moved to the top of the word.
            let free = (self.words[word as usize] << (64 - bits)).leading_ones().min(bits);
            at -= free;
            if free < bits {
                break;
            }
        }
        to - at.max(least)
    }

    /// The length of the run that a free range is part of, as far as `most` on either side.
    pub(super) fn run_around(&self, range: Range<u32>, most: u32) -> u32 {
        self.run_before(range.start, most)
            + (range.end - range.start)
            + self.run_from(range.end.min(self.len), most)
    }

    /// The runs that begin in a range, each cut to `most`.
    fn runs(&self, range: Range<u32>, most: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = self.first_free(at..range.end)?;
            let len = self.run_from(start, most);
            at = start + len;
            Some((start, len))
        })
    }

    /// The free runs of at least `min` bits in a range.
    pub(super) fn runs_of(&self, range: Range<u32>, min: u32) -> impl Iterator<Item = Range<u32>> {
        let end = range.end;
        self.runs(range, self.len)
            .map(move |(start, len)| start..(start + len).min(end))
            .filter(move |run| run.end - run.start >= min)
    }

    /// Looks for a run of `want` bits from `from` on and then from the beginning; `None` when nothing is free. After
    /// `looks` runs one of `least` bits will do.
    pub(super) fn search(&self, from: u32, want: u32, least: u32, looks: u32) -> Option<Search> {
        let mut best: Option<Search> = None;
        let from = from.min(self.len);
        let around = self.runs(from..self.len, want).chain(self.runs(0..from, want));
        for (looked, (start, len)) in around.enumerate() {
            if best.is_none_or(|best| len > best.len) {
                best = Some(Search { start, len, complete: false });
            }
            let enough = if looked as u32 >= looks { least } else { want };
            if best.is_some_and(|best| best.len >= enough) {
                return best;
            }
        }
        best.map(|best| Search { complete: true, ..best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> FreeMap {
        let mut map = FreeMap::full(text.len() as u32);
        for (bit, _) in text.bytes().enumerate().filter(|(_, c)| *c == b'.') {
            map.give(bit as u32..bit as u32 + 1);
        }
        map
    }

    #[test]
    fn ranges_are_marked_and_asked_for_bit_by_bit() {
        for (start, end) in [(0, 0), (0, 1), (3, 61), (3, 64), (63, 65), (64, 128), (5, 200), (199, 200)] {
            let mut disk = [0; 25];
            set(&mut disk, start..end);
            let expected = |bit: u32| (start..end).contains(&bit);
            assert!((0..200).all(|bit| all_set(&disk, bit..bit + 1) == expected(bit)), "{start}..{end}");
            assert!(all_set(&disk, start..end) && none_set(&disk, 0..start) && none_set(&disk, end..200));
            let mut memory = FreeMap::of_bitmap(&disk, 200);
            assert_eq!(memory.count(), 200 - (end - start));
            assert!((0..200).all(|bit| memory.is_free(bit) != expected(bit)));
            assert!(memory.none_free(start..end));
            memory.give(start..end);
            assert_eq!(memory, FreeMap::empty(200));
            memory.take(start..end);
            assert_eq!(memory, FreeMap::of_bitmap(&disk, 200));
            clear(&mut disk, start..end);
            assert_eq!(disk, [0; 25]);
        }
    }

    #[test]
    fn what_lies_past_the_end_is_never_free() {
        let map = FreeMap::of_bitmap(&[0; 16], 70);
        assert_eq!((map.count(), map.run_from(0, 1000), map.first_free(70..128)), (70, 70, None));
        assert!(!map.is_free(70) && !map.is_free(5000));
        assert_eq!(map.search(500, 3, 3, 9).unwrap().start, 0);
    }

    #[test]
    fn a_longer_map_has_what_was_added_free() {
        for (before, after) in [(0, 1), (5, 64), (63, 65), (64, 200), (70, 71)] {
            let mut map = FreeMap::full(before);
            map.lengthen(after);
            assert_eq!((map.count(), map.run_from(before, 999)), (after - before, after - before));
            assert!(map.none_free(0..before));
        }
    }

    #[test]
    fn runs_are_measured_over_the_ends_of_words() {
        let map = map(&format!("##{}#{}", ".".repeat(130), ".".repeat(7)));
        assert_eq!((map.run_from(2, 1000), map.run_from(2, 100), map.run_from(60, 1000)), (130, 100, 72));
        assert_eq!(
            (map.run_before(132, 999), map.run_before(2, 9), map.run_before(64, 62), map.run_before(65, 63)),
            (130, 0, 62, 63)
        );
        assert_eq!((map.run_before(132, 129), map.run_before(132, 5), map.run_before(64, 0)), (129, 5, 0));
        assert_eq!((map.run_around(50..51, 999), map.run_around(133..140, 9)), (130, 7));
        assert_eq!((map.run_around(50..60, 20), map.run_around(50..60, 0)), (50, 10));
        assert!(map.runs_of(0..140, 8).eq(std::iter::once(2..132)));
        assert_eq!(map.runs_of(100..136, 1).collect::<Vec<_>>(), [100..132, 133..136]);
    }

    #[test]
    fn a_search_begins_at_the_goal_and_takes_the_longest_where_none_is_long_enough() {
        let map = map("..#...#.#....#");
        let found =
            |from, want, looks| map.search(from, want, 1, looks).map(|s| (s.start, s.len, s.complete));
        assert_eq!(found(0, 3, 9), Some((3, 3, false)));
        assert_eq!(found(4, 3, 9), Some((9, 3, false)));
        assert_eq!(
            found(10, 4, 9),
            Some((9, 4, false)),
            "a run that begins before the goal is found from its start"
        );
        assert_eq!(found(0, 5, 9), Some((9, 4, true)));
        assert_eq!(found(0, 5, 1), Some((3, 3, false)));
        assert_eq!(
            map.search(0, 9, 4, 0).map(|s| (s.start, s.len)),
            Some((9, 4)),
            "the least that will do is looked for"
        );
        assert_eq!(FreeMap::full(99).search(7, 1, 1, 9), None);
    }
}
