//! Sets and counts over all blocks or all inodes, with memory for the parts that are in use.

use std::ops::Range;

/// Members in one piece of a set.
const PIECE: u64 = 1 << 15;
const WORDS: usize = (PIECE / 64) as usize;
/// Inodes in one piece of the counts.
const COUNTS: usize = 1 << 10;

/// A set of numbers below a bound.
#[derive(Debug)]
pub(super) struct BitSet {
    pieces: Vec<Option<Box<[u64; WORDS]>>>,
    len: u64,
}

impl BitSet {
    pub(super) fn new(bound: u64) -> Self {
        let mut pieces = Vec::new();
        pieces.resize_with(bound.div_ceil(PIECE) as usize, || None);
        Self { pieces, len: 0 }
    }

    /// Adds a number; `false` if it was there, or lies past the bound.
    pub(super) fn insert(&mut self, n: u64) -> bool {
        let Some(piece) = self.pieces.get_mut((n / PIECE) as usize) else { return false };
        let words = piece.get_or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = ((n % PIECE / 64) as usize, n % 64);
        let is_new = words[word] >> bit & 1 == 0;
        words[word] |= 1 << bit;
        self.len += u64::from(is_new);
        is_new
    }

    pub(super) fn contains(&self, n: u64) -> bool {
        let piece = self.pieces.get((n / PIECE) as usize).and_then(Option::as_ref);
        piece.is_some_and(|words| words[(n % PIECE / 64) as usize] >> (n % 64) & 1 == 1)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The first member from `from` on: walks the set while its owner changes other things.
    pub(super) fn next_from(&self, from: u64) -> Option<u64> {
        let mut mask = !0 << (from % 64);
        let mut word = (from % PIECE / 64) as usize;
        for n in (from / PIECE) as usize..self.pieces.len() {
            if let Some(words) = &self.pieces[n] {
                for (at, bits) in words.iter().enumerate().skip(word) {
                    let left = bits & mask;
                    mask = !0;
                    if left != 0 {
                        return Some(n as u64 * PIECE + at as u64 * 64 + u64::from(left.trailing_zeros()));
                    }
                }
            }
            (word, mask) = (0, !0);
        }
        None
    }

    /// How many members a range has.
    pub(super) fn count_in(&self, range: Range<u64>) -> u64 {
        let mut count = 0;
        let mut from = range.start;
        while let Some(n) = self.next_from(from).filter(|n| range.contains(n)) {
            count += 1;
            from = n + 1;
        }
        count
    }
}

/// What an inode says of its links, and what was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    pub(super) stored: u16,
    pub(super) found: u32,
}

/// The links of all inodes.
#[derive(Debug)]
pub(super) struct LinkCounts {
    pieces: Vec<Option<Box<[Links; COUNTS]>>>,
}

impl LinkCounts {
    pub(super) fn new(inodes: u32) -> Self {
        let mut pieces = Vec::new();
        pieces.resize_with(inodes as usize / COUNTS + 1, || None);
        Self { pieces }
    }

    /// For an inode that exists.
    pub(super) fn of(&mut self, inode: u32) -> &mut Links {
        let piece =
            self.pieces[inode as usize / COUNTS].get_or_insert_with(|| Box::new([Links::default(); COUNTS]));
        &mut piece[inode as usize % COUNTS]
    }
}

/// The kind of each inode in use, as directory entries say it; 0 for none.
#[derive(Debug)]
pub(super) struct Kinds {
    pieces: Vec<Option<Box<[u8; COUNTS]>>>,
}

impl Kinds {
    pub(super) fn new(inodes: u32) -> Self {
        let mut pieces = Vec::new();
        pieces.resize_with(inodes as usize / COUNTS + 1, || None);
        Self { pieces }
    }

    /// For an inode that exists.
    pub(super) fn set(&mut self, inode: u32, kind: u8) {
        let piece = self.pieces[inode as usize / COUNTS].get_or_insert_with(|| Box::new([0; COUNTS]));
        piece[inode as usize % COUNTS] = kind;
    }

    pub(super) fn get(&self, inode: u32) -> u8 {
        let piece = self.pieces.get(inode as usize / COUNTS).and_then(Option::as_ref);
        piece.map_or(0, |kinds| kinds[inode as usize % COUNTS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order_and_once() {
        let mut set = BitSet::new(100_000);
        for n in [70_000, 3, 64, 3] {
            set.insert(n);
        }
        let walk =
            |from| std::iter::successors(set.next_from(from), |n| set.next_from(n + 1)).collect::<Vec<_>>();
        assert_eq!(walk(0), [3, 64, 70_000]);
        assert_eq!(walk(64), [64, 70_000]);
        assert_eq!(walk(70_001), []);
        assert_eq!((set.count_in(3..64), set.count_in(4..70_001), set.count_in(0..3)), (1, 2, 0));
        assert_eq!(set.len(), 3);
        assert!(set.contains(64) && !set.contains(65));
        assert!(!set.insert(10_000_000) && !set.contains(10_000_000));
    }
}
