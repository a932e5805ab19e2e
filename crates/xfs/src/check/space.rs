//! What is known of the blocks of one allocation group while a check is under way.
//!
//! Each block has a bit: something has been found that owns it, or it is free. What several owners may have in common,
//! and what the reverse map says of owners, is compared by sums: each run of blocks adds a number that depends on its
//! owner and start and subtracts the one that depends on its end. Runs that touch cancel out where they meet, so the
//! same blocks give the same sum however they are cut, and memory does not grow with the number of runs.

use super::raw::mix;

/// Blocks whose owners are summed up together.
const BUCKET: u32 = 1 << 12;

/// Words in a piece of the set of blocks.
const PIECE_WORDS: usize = 512;
const PIECE: u32 = PIECE_WORDS as u32 * 64;

/// An owner of blocks, as the reverse map names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) number: u64,
    /// First block in the owner's fork; 0 for what is no fork.
    pub(super) offset: u64,
    /// The flags of the record, in its top three bits.
    pub(super) flags: u64,
}

impl Owner {
    pub(super) const HEADERS: Self = Self::special(3);
    pub(super) const LOG: Self = Self::special(4);
    pub(super) const FREE_SPACE: Self = Self::special(5);
    pub(super) const INODE_TREES: Self = Self::special(6);
    pub(super) const INODES: Self = Self::special(7);
    pub(super) const REFERENCE_COUNTS: Self = Self::special(8);
    pub(super) const COPIES: Self = Self::special(9);

    pub(super) const ATTRIBUTE_FORK: u64 = 1 << 63;
    pub(super) const MAP_BLOCK: u64 = 1 << 62;
    pub(super) const UNWRITTEN: u64 = 1 << 61;

    const fn special(number: u64) -> Self {
        Self { number: 0_u64.wrapping_sub(number), offset: 0, flags: 0 }
    }

    /// Whether the place within the owner counts.
    /// Whether this owner has a run that begins at `start` with its offset just as `other` has the one at
    /// `other_start`: the one is a piece of the other, or goes on where it ends.
    pub(super) fn is_same(&self, start: u32, other: &Self, other_start: u32) -> bool {
        let delta = |owner: &Self, start: u32| owner.offset.wrapping_sub(u64::from(start));
        self.number == other.number
            && self.flags == other.flags
            && (!self.has_offset() || delta(self, start) == delta(other, other_start))
    }

    const fn has_offset(&self) -> bool {
        self.number >> 63 == 0 && self.flags & Self::MAP_BLOCK == 0
    }

    /// What runs of blocks that continue each other have in common.
    fn line(&self, start: u32) -> u64 {
        let delta = if self.has_offset() { self.offset.wrapping_sub(u64::from(start)) } else { 0 };
        mix(&[self.number, self.flags, delta])
    }
}

/// Blocks that several owners may have, by the tree of reference counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedRun {
    pub(super) start: u32,
    pub(super) count: u32,
    /// Reference count.
    pub(super) owners: u32,
    sum: u64,
}

impl SharedRun {
    pub(super) fn new(start: u32, count: u32, owners: u32) -> Self {
        Self { start, count, owners, sum: 0 }
    }

    /// Whether each block has as many owners as the tree says.
    pub(super) fn is_right(&self) -> bool {
        let end = self.start.saturating_add(self.count);
        let one = mix(&[u64::from(self.start)]).wrapping_sub(mix(&[u64::from(end)]));
        self.sum == one.wrapping_mul(u64::from(self.owners))
    }
}

/// A set of blocks below a bound, with memory for the parts that have members.
#[derive(Debug)]
struct BlockSet {
    pieces: Vec<Option<Box<[u64; PIECE_WORDS]>>>,
    len: u64,
}

impl BlockSet {
    fn new(bound: u32) -> Self {
        let mut pieces = Vec::new();
        pieces.resize_with(bound.div_ceil(PIECE) as usize, || None);
        Self { pieces, len: 0 }
    }

    /// Adds a run; gives back how many of it were there before.
    fn insert(&mut self, start: u32, count: u32) -> u32 {
        let (mut at, end) = (start, start.saturating_add(count));
        let mut there = 0;
        while at < end {
            let Some(piece) = self.pieces.get_mut((at / PIECE) as usize) else { break };
            let words = piece.get_or_insert_with(|| Box::new([0; PIECE_WORDS]));
            let (word, bit) = ((at % PIECE / 64) as usize, at % 64);
            let len = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - len)) << bit;
            let before = (words[word] & mask).count_ones();
            words[word] |= mask;
            there += before;
            self.len += u64::from(len - before);
            at += len;
        }
        there
    }

    fn remove(&mut self, start: u32, count: u32) {
        for block in start..start.saturating_add(count) {
            let Some(Some(words)) = self.pieces.get_mut((block / PIECE) as usize) else { continue };
            let (word, mask) = ((block % PIECE / 64) as usize, 1 << (block % 64));
            self.len -= u64::from(words[word] & mask != 0);
            words[word] &= !mask;
        }
    }

    fn contains(&self, block: u32) -> bool {
        let piece = self.pieces.get((block / PIECE) as usize).and_then(Option::as_ref);
        piece.is_some_and(|words| words[(block % PIECE / 64) as usize] >> (block % 64) & 1 == 1)
    }
}

/// The blocks of one group.
#[derive(Debug)]
pub(super) struct Space {
    blocks: u32,
    seen: BlockSet,
    pub(super) shared: Vec<SharedRun>,
    /// Records of the reverse map for blocks that interrupted work is to free.
    pub(super) watched: Vec<(u32, u32, Owner)>,
    /// Sums over owners found less those of the reverse map; empty without one.
    owners: Vec<u64>,
    /// Inode chunks share blocks where those are large: the last block that was given to inodes.
    last_inode_block: Option<u32>,
}

impl Space {
    pub(super) fn new(blocks: u32, has_rmap: bool) -> Self {
        let owners = if has_rmap { vec![0; blocks.div_ceil(BUCKET) as usize] } else { Vec::new() };
        Self {
            blocks,
            seen: BlockSet::new(blocks),
            shared: Vec::new(),
            watched: Vec::new(),
            owners,
            last_inode_block: None,
        }
    }

    /// Gives a run of blocks to an owner; gives back how many had one already and must not.
    pub(super) fn claim(&mut self, start: u32, count: u32, owner: Owner) -> u32 {
        self.add_owner(start, count, owner, 1);
        self.seen.insert(start, count)
    }

    /// Marks a run of blocks as free; gives back how many are something else.
    pub(super) fn free(&mut self, start: u32, count: u32) -> u32 {
        self.seen.insert(start, count)
    }

    /// Gives a run of blocks to a file, which may share it where the tree of reference counts says so.
    pub(super) fn claim_shared(&mut self, start: u32, count: u32, owner: Owner) -> Sharing {
        self.add_owner(start, count, owner, 1);
        let mut sharing = Sharing::default();
        let (mut at, end) = (start, start.saturating_add(count));
        let mut run = self.shared.partition_point(|run| run.start.saturating_add(run.count) <= at);
        while at < end {
            match self.shared.get_mut(run) {
                Some(shared) if shared.start <= at => {
                    let to = end.min(shared.start.saturating_add(shared.count));
                    if to <= at {
                        run += 1;
                        continue;
                    }
                    shared.sum =
                        shared.sum.wrapping_add(mix(&[u64::from(at)]).wrapping_sub(mix(&[u64::from(to)])));
                    self.seen.insert(at, to - at);
                    sharing.shared += to - at;
                    at = to;
                    run += 1;
                }
                next => {
                    let to = next.map_or(end, |shared| end.min(shared.start));
                    sharing.taken += self.seen.insert(at, to - at);
                    at = to;
                }
            }
        }
        sharing
    }

    /// Gives the blocks of an inode chunk to inodes. Chunks come in order, and where a block holds several, each but the
    /// first finds it given.
    pub(super) fn claim_inodes(&mut self, block: u32) -> u32 {
        if self.last_inode_block == Some(block) {
            return 0;
        }
        self.last_inode_block = Some(block);
        self.claim(block, 1, Owner::INODES)
    }

    /// Takes a record of the reverse map into account.
    pub(super) fn expect(&mut self, start: u32, count: u32, owner: Owner) {
        self.add_owner(start, count, owner, u64::MAX);
    }

    /// Takes into account that a record of the reverse map is to go.
    pub(super) fn expect_no_longer(&mut self, start: u32, count: u32, owner: Owner) {
        self.add_owner(start, count, owner, 1);
    }

    /// Takes a run of blocks back from an owner that had it.
    pub(super) fn unclaim(&mut self, start: u32, count: u32, owner: Owner) {
        self.add_owner(start, count, owner, u64::MAX);
        self.seen.remove(start, count);
    }

    /// Lets each block of a run have one owner more or less; gives back the runs that have none any more.
    pub(super) fn change_owners(&mut self, start: u32, count: u32, more: bool) -> Vec<(u32, u32)> {
        let end = start.saturating_add(count);
        let mut alone = Vec::new();
        let mut runs = Vec::with_capacity(self.shared.len() + 2);
        let mut at = start;
        let mut one = |from: u32, to: u32, runs: &mut Vec<SharedRun>| {
            if from < to && more {
                runs.push(SharedRun::new(from, to - from, 2));
            } else if from < to {
                alone.push((from, to - from));
            }
        };
        for run in std::mem::take(&mut self.shared) {
            let run_end = run.start.saturating_add(run.count);
            let (from, to) = (run.start.max(start), run_end.min(end));
            if from >= to {
                if run.start >= end {
                    one(at, end, &mut runs);
                    at = at.max(end);
                }
                runs.push(run);
                continue;
            }
            one(at, from, &mut runs);
            at = to;
            for (piece_start, piece_end, owners) in [
                (run.start, from, run.owners),
                (from, to, if more { run.owners.saturating_add(1) } else { run.owners.saturating_sub(1) }),
                (to, run_end, run.owners),
            ] {
                if piece_start < piece_end && owners >= 2 {
                    runs.push(SharedRun::new(piece_start, piece_end - piece_start, owners));
                }
            }
        }
        one(at, end, &mut runs);
        self.shared = runs;
        alone
    }

    fn add_owner(&mut self, start: u32, count: u32, owner: Owner, sign: u64) {
        if self.owners.is_empty() {
            return;
        }
        let line = owner.line(start);
        let (mut at, end) = (start, start.saturating_add(count));
        while at < end {
            let Some(sum) = self.owners.get_mut((at / BUCKET) as usize) else { break };
            let to = end.min((at / BUCKET + 1).saturating_mul(BUCKET));
            let term = mix(&[line, u64::from(at)]).wrapping_sub(mix(&[line, u64::from(to)]));
            *sum = sum.wrapping_add(term.wrapping_mul(sign));
            at = to;
        }
    }

    /// The runs of blocks in which the reverse map says something else than was found.
    pub(super) fn differing_owners(&self) -> Vec<(u32, u32)> {
        let wrong = self.owners.iter().enumerate().filter(|(_, sum)| **sum != 0);
        wrong
            .map(|(n, _)| {
                let start = n as u32 * BUCKET;
                (start, start.saturating_add(BUCKET).min(self.blocks))
            })
            .collect()
    }

    /// Runs of blocks that are neither free nor in use: first block and count.
    pub(super) fn unaccounted(&self, most: usize) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        if self.seen.len == u64::from(self.blocks) {
            return runs;
        }
        for block in (0..self.blocks).filter(|&block| !self.seen.contains(block)) {
            let told = runs.len();
            match runs.last_mut() {
                Some((start, count)) if *start + *count == block => *count += 1,
                _ if told == most => break,
                _ => runs.push((block, 1)),
            }
        }
        runs
    }
}

/// What a run of blocks was found to be when a file claimed it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharing {
    /// Blocks that had an owner already and are not shared.
    pub(super) taken: u32,
    /// Blocks that the tree of reference counts knows.
    pub(super) shared: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64, offset: u64) -> Owner {
        Owner { number, offset, flags: 0 }
    }

    #[test]
    fn blocks_have_one_owner() {
        let mut space = Space::new(100_000, false);
        assert_eq!(space.claim(0, 4, Owner::HEADERS), 0);
        assert_eq!(space.free(4, 99_000), 0);
        assert_eq!(space.claim(99_000, 10, Owner::LOG), 4);
        assert_eq!(space.unaccounted(9), [(99_010, 990)]);
    }

    #[test]
    fn reverse_maps_may_be_cut_elsewhere() {
        let mut space = Space::new(100_000, true);
        space.expect(10, 9000, file(131, 5));
        space.expect(20_000, 3, Owner::FREE_SPACE);
        for (start, count) in [(10, 3), (4010, 5000), (13, 3997)] {
            space.claim(start, count, file(131, u64::from(start) - 5));
        }
        assert_eq!(space.differing_owners(), [(16_384, 20_480)]);
        for block in [20_001, 20_000, 20_002] {
            space.claim(block, 1, Owner::FREE_SPACE);
        }
        assert_eq!(space.differing_owners(), []);
        space.claim(30, 1, file(131, 26));
        assert_eq!(space.differing_owners(), [(0, 4096)]);
    }

    #[test]
    fn owners_come_and_go() {
        let mut space = Space::new(1000, false);
        space.shared = vec![SharedRun::new(100, 10, 2), SharedRun::new(120, 5, 3)];
        let told = |space: &Space| -> Vec<_> {
            space.shared.iter().map(|run| (run.start, run.count, run.owners)).collect()
        };
        assert_eq!(space.change_owners(95, 30, true), []);
        assert_eq!(told(&space), [(95, 5, 2), (100, 10, 3), (110, 10, 2), (120, 5, 4)]);
        assert_eq!(space.change_owners(90, 12, false), [(90, 5)]);
        assert_eq!(told(&space), [(100, 2, 2), (102, 8, 3), (110, 10, 2), (120, 5, 4)]);
        assert_eq!(space.change_owners(200, 2, false), [(200, 2)]);
        assert_eq!(space.change_owners(10, 2, true), []);
        assert_eq!(told(&space)[0], (10, 2, 2));
    }

    #[test]
    fn shared_blocks_have_as_many_owners_as_counted() {
        let mut space = Space::new(1000, false);
        space.shared = vec![SharedRun::new(100, 10, 2), SharedRun::new(110, 5, 3)];
        for (start, count) in [(90, 20), (100, 15), (110, 5), (110, 8)] {
            let sharing = space.claim_shared(start, count, file(9, 0));
            assert_eq!(sharing.taken, 0, "{start}");
        }
        assert!(space.shared.iter().all(SharedRun::is_right));
        assert_eq!(space.claim_shared(95, 6, file(9, 0)).taken, 5);
        assert!(!space.shared[0].is_right());
    }
}
