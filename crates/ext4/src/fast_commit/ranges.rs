//! Changes to one file's mapping, laid over what the disk says.

use std::collections::BTreeMap;

use crate::numbers::{FileBlock, FsBlock};

/// What fast commits say of a run of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overridden {
    /// Nothing: the mapping on disk holds.
    OnDisk,
    /// A hole, whatever the disk says.
    Hole,
    /// Mapped here, whatever the disk says.
    Mapped {
        /// Where the first block of the run lies.
        pblk: FsBlock,
        /// Whether the run reads as zeroes.
        unwritten: bool,
    },
}

/// Runs of file blocks with something to say, none overlapping another.
///
/// Each change replaces what it covers, so the number of runs is at most twice the number of changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// First file block to one past the last, and what is there; never `OnDisk`.
    runs: BTreeMap<u32, (u32, Overridden)>,
}

impl Ranges {
    /// Replaces `len` blocks from `first` on, which end at 2^32 - 1 at most.
    pub(super) fn set(&mut self, first: FileBlock, len: u32, what: Overridden) {
        let (first, end) = (first.0, first.0 + len);
        // Whatever reaches across either end of the change keeps its part outside.
        for cut in [first, end] {
            if let Some((&start, &(stop, old))) = self.runs.range(..cut).next_back()
                && stop > cut
            {
                self.runs.insert(start, (cut, old));
                self.runs.insert(cut, (stop, advanced(old, cut - start)));
            }
        }
        let covered: Vec<u32> = self.runs.range(first..end).map(|(&start, _)| start).collect();
        for start in covered {
            self.runs.remove(&start);
        }
        self.runs.insert(first, (end, what));
    }

    /// What holds at `at`, and for how many blocks from there on. A run without end goes to 2^32 - 1.
    pub(super) fn lookup(&self, at: FileBlock) -> (Overridden, u32) {
        let at = at.0;
        if let Some((&start, &(stop, what))) = self.runs.range(..=at).next_back()
            && stop > at
        {
            return (advanced(what, at - start), stop - at);
        }
        let next = self.runs.range(at..).next().map_or(u32::MAX, |(&start, _)| start);
        (Overridden::OnDisk, next - at)
    }

    /// Every run with something to say: first block, count, and what.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FileBlock, u32, Overridden)> {
        self.runs.iter().map(|(&start, &(end, what))| (FileBlock(start), end - start, what))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

/// What a run says `blocks` after its start.
fn advanced(what: Overridden, blocks: u32) -> Overridden {
    match what {
        Overridden::Mapped { pblk, unwritten } => {
            Overridden::Mapped { pblk: FsBlock(pblk.0 + u64::from(blocks)), unwritten }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(pblk: u64) -> Overridden {
        Overridden::Mapped { pblk: FsBlock(pblk), unwritten: false }
    }

    #[test]
    fn a_change_splits_what_it_lands_in() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.lookup(FileBlock(5)), (Overridden::OnDisk, u32::MAX - 5));
        ranges.set(FileBlock(10), 10, mapped(100));
        ranges.set(FileBlock(13), 2, Overridden::Hole);
        assert_eq!(ranges.lookup(FileBlock(0)), (Overridden::OnDisk, 10));
        assert_eq!(ranges.lookup(FileBlock(11)), (mapped(101), 2));
        assert_eq!(ranges.lookup(FileBlock(14)), (Overridden::Hole, 1));
        assert_eq!(ranges.lookup(FileBlock(15)), (mapped(105), 5));
        assert_eq!(ranges.lookup(FileBlock(20)), (Overridden::OnDisk, u32::MAX - 20));
        ranges.set(FileBlock(12), u32::MAX - 12, Overridden::Hole);
        assert_eq!(ranges.lookup(FileBlock(11)), (mapped(101), 1));
        assert_eq!(ranges.lookup(FileBlock(4_000_000_000)), (Overridden::Hole, u32::MAX - 4_000_000_000));
    }

    /// The same changes to an array of blocks, compared block by block.
    #[test]
    fn agrees_with_a_plain_array() {
        const BLOCKS: usize = 60;
        let mut random = undercroft_block::testing::Rng::new(1);
        let mut random = |below: u64| random.below(below);
        for _ in 0..200 {
            let mut ranges = Ranges::default();
            let mut plain = [Overridden::OnDisk; BLOCKS];
            for change in 0..12 {
                let first = random(BLOCKS as u64 - 1) as u32;
                let len = 1 + random(BLOCKS as u64 - u64::from(first)) as u32;
                let what = if random(3) == 0 { Overridden::Hole } else { mapped(1000 * change) };
                ranges.set(FileBlock(first), len, what);
                for block in 0..len {
                    plain[(first + block) as usize] = advanced(what, block);
                }
                for (at, expected) in plain.iter().enumerate() {
                    let (found, len) = ranges.lookup(FileBlock(at as u32));
                    assert_eq!(found, *expected, "block {at}");
                    assert!(len > 0, "block {at}");
                }
            }
        }
    }
}
