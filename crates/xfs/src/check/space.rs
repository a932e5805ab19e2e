//! The state of the blocks of one allocation group while a check is under way.
//!
//! Each block has a bit, which is set once an owner of it has been found or it is free. Owners of shared blocks, and
//! owners by the reverse map, are compared by sums: each run of blocks adds a number that depends on its owner and
//! start, and subtracts one that depends on its owner and end. Runs that touch cancel out where they meet. So the same
//! blocks give the same sum however they are divided into runs, and memory does not grow with the number of runs.
//!
//! Runs come from the disk, and many of them may overlap. So the time for a run is bounded by the number of pieces of
//! the set that it reaches into ([`PIECE`] blocks each), not by its blocks or by the runs that it overlaps.

use super::raw::mix;

/// Blocks whose owners are summed up together.
const BUCKET: u32 = 1 << 12;

/// Blocks in a piece of the set of blocks.
const PIECE: u32 = 1 << 15;

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

    /// Whether this owner has a run that begins at `start` with its offset just as `other` has the one at
    /// `other_start`: the one is a piece of the other, or goes on where it ends.
    pub(super) fn is_same(&self, start: u32, other: &Self, other_start: u32) -> bool {
        let delta = |owner: &Self, start: u32| owner.offset.wrapping_sub(u64::from(start));
        self.number == other.number
            && self.flags == other.flags
            && (!self.has_offset() || delta(self, start) == delta(other, other_start))
    }

    /// Whether the offset within the owner is significant.
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
    /// Blocks of the runs before it.
    before: u64,
    /// A sum over owners that have a part of it, or all.
    sum: u64,
    /// How many more owners have all of it than of the run before it, without those in `sum`.
    change: u64,
}

impl SharedRun {
    pub(super) fn new(start: u32, count: u32, owners: u32) -> Self {
        Self { start, count, owners, before: 0, sum: 0, change: 0 }
    }

    fn end(&self) -> u32 {
        self.start.saturating_add(self.count)
    }
}

/// A sum over the first and the last block of a run.
fn ends(start: u32, end: u32) -> u64 {
    mix(&[u64::from(start)]).wrapping_sub(mix(&[u64::from(end)]))
}

/// A piece of a set of blocks; one without members or with all of them takes no memory.
#[derive(Debug)]
enum Piece {
    Empty,
    Part { words: Box<[u64]>, len: u32 },
    Full,
}

/// A set of blocks below a bound. A run is added in time that depends on the pieces that it reaches into, and on the
/// words of those that it does not fill.
#[derive(Debug)]
struct BlockSet {
    pieces: Vec<Piece>,
    bound: u32,
    len: u64,
}

impl BlockSet {
    fn new(bound: u32) -> Self {
        let mut pieces = Vec::new();
        pieces.resize_with(bound.div_ceil(PIECE) as usize, || Piece::Empty);
        Self { pieces, bound, len: 0 }
    }

    /// How many blocks piece `n` is for.
    fn room(&self, n: usize) -> u32 {
        self.bound.saturating_sub(n as u32 * PIECE).min(PIECE)
    }

    /// Adds a run; returns how many of its blocks were in the set before.
    fn insert(&mut self, start: u32, count: u32) -> u32 {
        let (mut at, end) = (start, start.saturating_add(count).min(self.bound));
        let mut there = 0;
        while at < end {
            let n = (at / PIECE) as usize;
            let room = self.room(n);
            let from = at % PIECE;
            let to = room.min(from + (end - at));
            let piece = &mut self.pieces[n];
            let known = match piece {
                Piece::Full => to - from,
                Piece::Empty if to - from == room => {
                    *piece = Piece::Full;
                    0
                }
                _ => piece.insert(from, to, room),
            };
            there += known;
            self.len += u64::from(to - from - known);
            at += to - from;
        }
        there
    }

    /// Takes a run out.
    fn remove(&mut self, start: u32, count: u32) {
        let (mut at, end) = (start, start.saturating_add(count).min(self.bound));
        while at < end {
            let n = (at / PIECE) as usize;
            let room = self.room(n);
            let from = at % PIECE;
            let to = room.min(from + (end - at));
            let known = self.pieces[n].remove(from, to, room);
            self.len -= u64::from(known);
            at += to - from;
        }
    }

    /// Runs of blocks that are not in it, in order: first block and count.
    fn missing(&self, most: usize) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (n, piece) in self.pieces.iter().enumerate() {
            let start = n as u32 * PIECE;
            let add = |from: u32, count: u32, runs: &mut Vec<(u32, u32)>| match runs.last_mut() {
                Some((start, len)) if *start + *len == from => *len += count,
                _ => runs.push((from, count)),
            };
            match piece {
                Piece::Full => {}
                Piece::Empty => add(start, self.room(n), &mut runs),
                Piece::Part { words, .. } => {
                    for (word, bits) in words.iter().enumerate().filter(|(_, bits)| **bits != u64::MAX) {
                        let first = word as u32 * 64;
                        let room = self.room(n) - first;
                        for bit in (0..room.min(64)).filter(|bit| bits >> bit & 1 == 0) {
                            add(start + first + bit, 1, &mut runs);
                        }
                        if runs.len() > most {
                            break;
                        }
                    }
                }
            }
            if runs.len() > most {
                break;
            }
        }
        runs.truncate(most);
        runs
    }
}

impl Piece {
    /// Takes blocks `from` to `to` out of a piece for `room` blocks; returns how many were there.
    fn remove(&mut self, from: u32, to: u32, room: u32) -> u32 {
        if let Self::Full = self {
            let words = (0..room.div_ceil(64)).map(|word| u64::MAX >> (64 - (room - word * 64).min(64)));
            *self = Self::Part { words: words.collect(), len: room };
        }
        let Self::Part { words, len } = self else { return 0 };
        let mut there = 0;
        for (word, mask) in masks(from, to) {
            there += (words[word] & mask).count_ones();
            words[word] &= !mask;
        }
        *len -= there;
        there
    }

    /// Adds blocks `from` to `to` to a piece for `room` blocks; returns how many were there before.
    fn insert(&mut self, from: u32, to: u32, room: u32) -> u32 {
        if let Self::Empty = self {
            *self = Self::Part { words: vec![0; room.div_ceil(64) as usize].into(), len: 0 };
        }
        let Self::Part { words, len } = self else { return to - from };
        let mut there = 0;
        for (word, mask) in masks(from, to) {
            there += (words[word] & mask).count_ones();
            words[word] |= mask;
        }
        *len += to - from - there;
        if *len == room {
            *self = Self::Full;
        }
        there
    }
}

/// The words that bits `from` to `to` lie in, with those of their bits.
fn masks(from: u32, to: u32) -> impl Iterator<Item = (usize, u64)> {
    (from / 64..to.div_ceil(64)).map(move |word| {
        let (first, end) = (from.max(word * 64), to.min(word * 64 + 64));
        (word as usize, (u64::MAX >> (64 - (end - first))) << (first % 64))
    })
}

/// Sums over the owners of blocks.
#[derive(Debug)]
pub(super) struct OwnerSums(Vec<u64>);

impl OwnerSums {
    /// Adds a run in constant time, however long it is: only its ends count.
    pub(super) fn add(&mut self, start: u32, count: u32, owner: Owner) {
        self.change(start, start.saturating_add(count), owner.line(start));
    }

    fn subtract(&mut self, start: u32, count: u32, owner: Owner) {
        self.change(start.saturating_add(count), start, owner.line(start));
    }

    fn change(&mut self, plus: u32, minus: u32, line: u64) {
        let Some(last) = self.0.len().checked_sub(1) else { return };
        for (at, term) in
            [(plus, mix(&[line, plus.into()])), (minus, 0_u64.wrapping_sub(mix(&[line, minus.into()])))]
        {
            let sum = &mut self.0[last.min((at / BUCKET) as usize)];
            *sum = sum.wrapping_add(term);
        }
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
    owners: OwnerSums,
    /// Inode chunks share blocks where those are large: the last block that was given to inodes.
    last_inode_block: Option<u32>,
}

impl Space {
    pub(super) fn new(blocks: u32, has_rmap: bool) -> Self {
        let buckets = if has_rmap { blocks.div_ceil(BUCKET) as usize } else { 0 };
        Self {
            blocks,
            seen: BlockSet::new(blocks),
            shared: Vec::new(),
            watched: Vec::new(),
            owners: OwnerSums(vec![0; buckets]),
            last_inode_block: None,
        }
    }

    /// Assigns a run of blocks to an owner; returns how many had one already and must not.
    pub(super) fn claim(&mut self, start: u32, count: u32, owner: Owner) -> u32 {
        self.owners.add(start, count, owner);
        self.seen.insert(start, count)
    }

    /// Marks a run of blocks as free; returns how many are something else.
    pub(super) fn free(&mut self, start: u32, count: u32) -> u32 {
        self.seen.insert(start, count)
    }

    /// Marks the blocks of the tree of reference counts, whose runs are in order and do not overlap, before files claim
    /// them. Returns how many of them are something else than files' content.
    pub(super) fn mark_shared(&mut self) -> u64 {
        let (mut before, mut taken) = (0, 0);
        for run in &mut self.shared {
            run.before = before;
            before += u64::from(run.count);
            taken += u64::from(self.seen.insert(run.start, run.count));
        }
        taken
    }

    /// Assigns a run of blocks to a file, which may share it where the tree of reference counts says so. The time does
    /// not depend on how many runs of that tree it reaches over.
    pub(super) fn claim_shared(&mut self, start: u32, count: u32, owner: Owner) -> Sharing {
        self.owners.add(start, count, owner);
        let there = self.seen.insert(start, count);
        let end = start.saturating_add(count);
        let first = self.shared.partition_point(|run| run.end() <= start);
        let after = self.shared.partition_point(|run| run.start < end);
        if first >= after {
            return Sharing { taken: there, shared: 0 };
        }
        let last = after - 1;
        let part = |run: &SharedRun| (run.start.max(start), run.end().min(end));
        let len = |(from, to): (u32, u32)| u64::from(to - from);
        // The runs at the ends may be covered in part; those between them are covered in full.
        let mut shared = len(part(&self.shared[first]));
        for at in [first, last].into_iter().take(1 + usize::from(last > first)) {
            let (from, to) = part(&self.shared[at]);
            let run = &mut self.shared[at];
            run.sum = run.sum.wrapping_add(ends(from, to));
        }
        if last > first {
            shared += len(part(&self.shared[last]));
            let between = &self.shared[first + 1];
            shared += self.shared[last].before - between.before;
            self.shared[first + 1].change = self.shared[first + 1].change.wrapping_add(1);
            self.shared[last].change = self.shared[last].change.wrapping_sub(1);
        }
        let shared = u32::try_from(shared).unwrap_or(u32::MAX);
        Sharing { taken: there.saturating_sub(shared), shared }
    }

    /// Runs of shared blocks that have other owners than the tree of reference counts says.
    pub(super) fn wrongly_shared(&self) -> impl Iterator<Item = &SharedRun> {
        let mut in_full = 0_u64;
        self.shared.iter().filter(move |run| {
            in_full = in_full.wrapping_add(run.change);
            let owners = u64::from(run.owners).wrapping_sub(in_full);
            run.sum != ends(run.start, run.end()).wrapping_mul(owners)
        })
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

    /// Sums for the records of the reverse map.
    pub(super) fn expectation(&self) -> OwnerSums {
        OwnerSums(vec![0; self.owners.0.len()])
    }

    /// Takes a record of the reverse map into account.
    pub(super) fn expect(&mut self, start: u32, count: u32, owner: Owner) {
        self.owners.subtract(start, count, owner);
    }

    /// Takes into account that a record of the reverse map is to go.
    pub(super) fn expect_no_longer(&mut self, start: u32, count: u32, owner: Owner) {
        self.owners.add(start, count, owner);
    }

    /// Removes a run of blocks from its owner.
    pub(super) fn unclaim(&mut self, start: u32, count: u32, owner: Owner) {
        self.owners.subtract(start, count, owner);
        self.seen.remove(start, count);
    }

    /// How many shared runs have blocks of this one.
    pub(super) fn shared_in(&self, start: u32, count: u32) -> usize {
        let first = self.shared.partition_point(|run| run.end() <= start);
        let after = self.shared.partition_point(|run| run.start < start.saturating_add(count));
        after.saturating_sub(first)
    }

    /// Adds or removes one owner for each block of a run; returns the runs that have none any more. The shared runs
    /// have not been marked yet.
    pub(super) fn change_owners(&mut self, start: u32, count: u32, more: bool) -> Vec<(u32, u32)> {
        let end = start.saturating_add(count);
        let first = self.shared.partition_point(|run| run.end() <= start);
        let after = self.shared.partition_point(|run| run.start < end).max(first);
        let mut alone = Vec::new();
        let mut runs = Vec::with_capacity(2 * (after - first) + 2);
        let mut at = start;
        let mut one = |from: u32, to: u32, runs: &mut Vec<SharedRun>| {
            if from < to && more {
                runs.push(SharedRun::new(from, to - from, 2));
            } else if from < to {
                alone.push((from, to - from));
            }
        };
        for run in &self.shared[first..after] {
            let (from, to) = (run.start.max(start), run.end().min(end));
            one(at, from, &mut runs);
            at = to;
            for (piece_start, piece_end, owners) in [
                (run.start, from, run.owners),
                (from, to, if more { run.owners.saturating_add(1) } else { run.owners.saturating_sub(1) }),
                (to, run.end(), run.owners),
            ] {
                if piece_start < piece_end && owners >= 2 {
                    runs.push(SharedRun::new(piece_start, piece_end - piece_start, owners));
                }
            }
        }
        one(at, end, &mut runs);
        self.shared.splice(first..after, runs);
        alone
    }

    /// Takes all records of the reverse map into account, by their sums.
    pub(super) fn expect_all(&mut self, expected: &OwnerSums) {
        for (sum, expected) in self.owners.0.iter_mut().zip(&expected.0) {
            *sum = sum.wrapping_sub(*expected);
        }
    }

    /// The runs of blocks in which the reverse map says something else than was found.
    pub(super) fn differing_owners(&self) -> impl Iterator<Item = (u32, u32)> {
        let wrong = self.owners.0.iter().enumerate().filter(|(_, sum)| **sum != 0);
        wrong.map(|(n, _)| {
            let start = n as u32 * BUCKET;
            (start, start.saturating_add(BUCKET).min(self.blocks))
        })
    }

    /// Runs of blocks that are neither free nor in use: first block and count.
    pub(super) fn unaccounted(&self, most: usize) -> Vec<(u32, u32)> {
        if self.seen.len == u64::from(self.blocks) { Vec::new() } else { self.seen.missing(most) }
    }
}

/// What a run of blocks was found to be when a file claimed it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharing {
    /// Blocks that had an owner already and are not shared.
    pub(super) taken: u32,
    /// Blocks that the tree of reference counts has.
    pub(super) shared: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64, offset: u64) -> Owner {
        Owner { number, offset, flags: 0 }
    }

    fn differing(space: &Space) -> Vec<(u32, u32)> {
        space.differing_owners().collect()
    }

    fn wrong(space: &Space) -> Vec<u32> {
        space.wrongly_shared().map(|run| run.start).collect()
    }

    #[test]
    fn blocks_have_one_owner() {
        let mut space = Space::new(100_000, false);
        assert_eq!(space.claim(0, 4, Owner::HEADERS), 0);
        assert_eq!(space.free(4, 99_000), 0);
        assert_eq!(space.claim(99_000, 10, Owner::LOG), 4);
        assert_eq!(space.unaccounted(9), [(99_010, 990)]);
    }

    /// Against a list of flags, with runs that begin and end around the pieces' ends.
    #[test]
    fn a_set_contains_exactly_its_members() {
        let places =
            [0, 1, 63, 64, 65, PIECE - 1, PIECE, PIECE + 70, 2 * PIECE - 64, 2 * PIECE, 3 * PIECE + 9];
        let bound = 3 * PIECE + 100;
        for (n, &first) in places.iter().enumerate() {
            let mut set = BlockSet::new(bound);
            let mut flags = vec![false; bound as usize];
            for (start, end) in
                places[n..].iter().flat_map(|&end| [(first, end), (end, end.saturating_add(70))])
            {
                let there = set.insert(start, end.saturating_sub(start));
                let run = &mut flags[start as usize..end.min(bound).max(start) as usize];
                assert_eq!(there as usize, run.iter().filter(|flag| **flag).count(), "{start} to {end}");
                run.fill(true);
                assert_eq!(set.len as usize, flags.iter().filter(|flag| **flag).count());
                let mut missing = vec![true; bound as usize];
                for (start, count) in set.missing(usize::MAX) {
                    missing[start as usize..(start + count) as usize].fill(false);
                }
                assert!(missing == flags, "{start} to {end}");
            }
        }
        let mut set = BlockSet::new(bound);
        assert_eq!(set.missing(5), [(0, bound)]);
        set.insert(0, u32::MAX);
        assert_eq!(set.missing(5), []);
        set.remove(PIECE - 3, 5);
        set.remove(PIECE - 3, 5);
        assert_eq!(set.len, u64::from(bound) - 5);
        assert_eq!(set.missing(5), [(PIECE - 3, 5)]);
        set.remove(bound - 1, 9);
        assert_eq!(set.missing(5), [(PIECE - 3, 5), (bound - 1, 1)]);
        assert_eq!((set.insert(PIECE - 9, 20), set.insert(bound - 2, 2)), (15, 1));
        assert!(set.pieces.iter().all(|piece| matches!(piece, Piece::Full)));
    }

    #[test]
    fn runs_that_are_reported_have_a_bound() {
        let mut set = BlockSet::new(1000);
        for n in 0..500 {
            set.insert(n * 2, 1);
        }
        assert_eq!(set.missing(3), [(1, 1), (3, 1), (5, 1)]);
    }

    #[test]
    fn reverse_maps_may_be_cut_elsewhere() {
        let mut space = Space::new(100_000, true);
        let mut expected = space.expectation();
        expected.add(10, 9000, file(131, 5));
        expected.add(20_000, 3, Owner::FREE_SPACE);
        space.expect_all(&expected);
        for (start, count) in [(10, 3), (4010, 5000), (13, 3997)] {
            space.claim(start, count, file(131, u64::from(start) - 5));
        }
        assert_eq!(differing(&space), [(16_384, 20_480)]);
        for block in [20_001, 20_000, 20_002] {
            space.claim(block, 1, Owner::FREE_SPACE);
        }
        assert_eq!(differing(&space), []);
        space.claim(30, 1, file(131, 26));
        assert_eq!(differing(&space), [(0, 4096)]);
    }

    #[test]
    fn the_group_s_last_block_ends_in_the_last_sum() {
        let mut space = Space::new(2 * BUCKET, true);
        space.claim(5, 2 * BUCKET - 5, file(131, 0));
        let mut expected = space.expectation();
        expected.add(5, BUCKET, file(131, 0));
        space.expect_all(&expected);
        assert_eq!(differing(&space), [(BUCKET, 2 * BUCKET)]);
        let mut expected = space.expectation();
        expected.add(5 + BUCKET, BUCKET - 5, file(131, u64::from(BUCKET)));
        space.expect_all(&expected);
        assert_eq!(differing(&space), []);
    }

    #[test]
    fn owners_come_and_go() {
        let mut space = Space::new(1000, false);
        space.shared = vec![SharedRun::new(100, 10, 2), SharedRun::new(120, 5, 3)];
        let reported = |space: &Space| -> Vec<_> {
            space.shared.iter().map(|run| (run.start, run.count, run.owners)).collect()
        };
        assert_eq!(space.change_owners(95, 30, true), []);
        assert_eq!(reported(&space), [(95, 5, 2), (100, 10, 3), (110, 10, 2), (120, 5, 4)]);
        assert_eq!(space.change_owners(90, 12, false), [(90, 5)]);
        assert_eq!(reported(&space), [(100, 2, 2), (102, 8, 3), (110, 10, 2), (120, 5, 4)]);
        assert_eq!(space.change_owners(200, 2, false), [(200, 2)]);
        assert_eq!(space.change_owners(10, 2, true), []);
        assert_eq!(reported(&space)[0], (10, 2, 2));
    }

    #[test]
    fn shared_blocks_have_as_many_owners_as_counted() {
        let mut space = Space::new(1000, false);
        space.shared = vec![SharedRun::new(100, 10, 2), SharedRun::new(110, 5, 3)];
        assert_eq!(space.mark_shared(), 0);
        for (start, count) in [(90, 20), (100, 15), (110, 5), (110, 8)] {
            let sharing = space.claim_shared(start, count, file(9, 0));
            assert_eq!(sharing.taken, 0, "{start}");
        }
        assert_eq!(wrong(&space), []);
        assert_eq!(space.claim_shared(95, 6, file(9, 0)).taken, 5);
        assert_eq!(wrong(&space), [100]);
    }

    /// Files that reach over many runs of the tree, against counts of each block.
    #[test]
    fn files_may_reach_over_many_shared_runs() {
        for left_out in 0..7 {
            let mut space = Space::new(1000, false);
            let files = [(100, 300), (150, 200), (105, 12), (100, 10), (340, 60), (120, 10), (121, 3)];
            let mut counts = [0_u32; 1000];
            for &(start, count) in &files {
                counts[start as usize..(start + count) as usize].iter_mut().for_each(|count| *count += 1);
            }
            let mut start = 0;
            while start < 1000 {
                let count = counts[start..].iter().take_while(|count| **count == counts[start]).count();
                if counts[start] > 1 {
                    space.shared.push(SharedRun::new(start as u32, count as u32, counts[start]));
                }
                start += count;
            }
            assert_eq!(space.mark_shared(), 0);
            for (_, &(start, count)) in files.iter().enumerate().filter(|(n, _)| *n != left_out) {
                let sharing = space.claim_shared(start, count, file(9, 0));
                let shared =
                    counts[start as usize..(start + count) as usize].iter().filter(|count| **count > 1);
                assert_eq!((sharing.taken, sharing.shared as usize), (0, shared.count()), "{start}");
            }
            let (start, count) = files[left_out];
            let expected: Vec<u32> = space
                .shared
                .iter()
                .map(|run| run.start)
                .filter(|at| (start..start + count).contains(at))
                .collect();
            assert_eq!(wrong(&space), expected, "{left_out}");
        }
    }

    #[test]
    fn shared_blocks_belong_to_files() {
        let mut space = Space::new(1000, false);
        space.claim(104, 1, Owner::FREE_SPACE);
        space.shared.push(SharedRun::new(100, 10, 2));
        assert_eq!(space.mark_shared(), 1);
        assert_eq!(space.claim(109, 2, Owner::INODES), 1);
    }
}
