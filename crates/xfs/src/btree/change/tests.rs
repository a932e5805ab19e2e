//! Random changes of each kind of tree, in memory and with small blocks, against a model. After every few changes the
//! tree is walked as any other tree, and its keys, its fill and its blocks are compared with what they have to be.

use std::collections::BTreeMap;

use undercroft_block::testing::Rng;
use undercroft_vfs::Ino;

use super::super::kinds::{
    Bmbt, BySize, BySpace, Finobt, FreeExtent, Inobt, InodeChunk, Owner, RefcountBt, RefcountRecord, RmapBt,
    RmapRecord,
};
use super::testing::{Space, TestTree};
use super::*;
use crate::format::extent::Extent;
use crate::format::{AgBlock, AgIno, FileBlock};

/// What a test makes records of: a place in the order, and a number that varies the rest.
trait Sample: ChangeKind {
    fn record(slot: u32, vary: u32) -> Self::Record;
}

impl Sample for BySpace {
    fn record(slot: u32, vary: u32) -> FreeExtent {
        FreeExtent { start: AgBlock(slot * 4 + vary % 2), count: 1 + vary % 2 }
    }
}

impl Sample for BySize {
    fn record(slot: u32, vary: u32) -> FreeExtent {
        FreeExtent { start: AgBlock(vary % 5000), count: slot + 1 }
    }
}

fn chunk(slot: u32, vary: u32) -> InodeChunk {
    let free = u64::from(vary) << 20;
    InodeChunk { start: AgIno(slot * 64), holes: 0, count: 64, free_count: free.count_ones(), free }
}

impl Sample for Inobt {
    fn record(slot: u32, vary: u32) -> InodeChunk {
        chunk(slot % 2000, vary)
    }
}

impl Sample for Finobt {
    fn record(slot: u32, vary: u32) -> InodeChunk {
        chunk(slot % 2000, vary)
    }
}

impl Sample for RmapBt {
    fn record(slot: u32, vary: u32) -> RmapRecord {
        let of_inode = vary.is_multiple_of(3);
        let owner = if of_inode { Owner::Inode(Ino(128 + u64::from(vary) % 64)) } else { Owner::INODES };
        let offset = if of_inode { u64::from(vary) % 100_000 } else { 0 };
        RmapRecord {
            start: AgBlock(slot * 2),
            count: if vary.is_multiple_of(50) { 2000 } else { 1 + vary % 20 },
            owner,
            offset: FileBlock(offset),
            attr_fork: of_inode && vary.is_multiple_of(2),
            bmbt: false,
            unwritten: of_inode && vary % 4 == 1,
        }
    }
}

impl Sample for RefcountBt {
    fn record(slot: u32, vary: u32) -> RefcountRecord {
        let cow = slot >= 6000;
        let users = if cow { 1 } else { 2 + vary % 100 };
        RefcountRecord { start: AgBlock(slot * 4 + vary % 2), count: 1 + vary % 2, users, cow }
    }
}

impl Sample for Bmbt {
    fn record(slot: u32, vary: u32) -> Extent {
        Extent {
            file: FileBlock(u64::from(slot) * 8 + u64::from(vary % 4)),
            block: FsBlock(1000 + u64::from(vary % 30_000)),
            count: 1 + vary % 3,
            unwritten: vary.is_multiple_of(2),
        }
    }
}

/// A tree and its model.
struct Model<K: Kind> {
    tree: TestTree<K>,
    records: BTreeMap<u32, K::Record>,
}

impl<K: Sample<Record: PartialEq>> Model<K> {
    /// A tree without records; in a fork, of one record.
    fn new(cache_bytes: usize, fork_bytes: usize) -> Self {
        let first = K::LONG.then(|| K::record(40, 0));
        let tree = TestTree::new(cache_bytes, first.map(|first| (fork_bytes, first)));
        Self { tree, records: first.map(|first| (40, first)).into_iter().collect() }
    }

    fn insert(&mut self, slot: u32, vary: u32) {
        let record = K::record(slot, vary);
        self.tree.change(|tree, handle, space| tree.insert(handle, space, &record));
        self.records.insert(slot, record);
    }

    fn delete(&mut self, slot: u32) {
        let record = self.records.remove(&slot).unwrap();
        self.tree.change(|tree, handle, space| tree.delete(handle, space, &K::key(&record)));
    }

    fn update(&mut self, slot: u32, vary: u32) {
        let (old, new) = (self.records[&slot], K::record(slot, vary));
        self.tree.change(|tree, handle, _| tree.update(handle, &K::key(&old), &new));
        self.records.insert(slot, new);
    }

    /// Walks the tree and compares it with the model.
    #[track_caller]
    fn check(&self) {
        let found = self.tree.all();
        assert!(found.iter().eq(self.records.values()), "{} of {} records", found.len(), self.records.len());
        self.tree.check_shape();
    }
}

/// Grows a tree to many records by random changes, and takes it back to as few as it may have.
fn random<K: Sample<Record: PartialEq>>(
    seed: u64,
    slots: u32,
    changes: u32,
    cache_bytes: usize,
    fork: usize,
) {
    let mut rng = Rng::new(seed);
    let mut model = Model::<K>::new(cache_bytes, fork);
    let least = usize::from(K::LONG);
    let mut deepest = 0;
    for n in 0..changes {
        let slot = rng.below(u64::from(slots)) as u32;
        let vary = rng.below(1 << 30) as u32;
        // Grows in the first half, shrinks in the second.
        let grows = rng.below(100) < if n < changes / 2 { 90 } else { 20 };
        let present = model.records.range(slot..).next().map(|(slot, _)| *slot);
        match (present, grows) {
            (_, true) if !model.records.contains_key(&slot) => model.insert(slot, vary),
            (Some(slot), true) => model.update(slot, vary),
            (Some(slot), false) if model.records.len() > least => model.delete(slot),
            _ => {}
        }
        deepest = deepest.max(model.tree.levels);
        if n % 2000 == 0 {
            model.check();
        }
        if n % 2500 == 0 {
            model.tree.reopen();
        } else if cache_bytes < 1 << 20 && n % 5 == 0 {
            model.tree.commit();
        }
    }
    model.check();
    while model.records.len() > least {
        let slot = rng.below(u64::from(slots)) as u32;
        let Some(slot) = model.records.range(slot..).next().map(|(slot, _)| *slot) else { continue };
        model.delete(slot);
    }
    model.check();
    // A chunk of inodes has 32 blocks, so that a group has no room for many.
    let expected = if K::RECORD_BYTES == 16 && !K::LONG { 2 } else { 3 };
    assert!(deepest >= expected, "{deepest} levels");
    assert_eq!(
        model.tree.levels,
        1 + u8::from(K::LONG),
        "{} levels are left of {deepest}",
        model.tree.levels
    );
    assert_eq!(model.tree.space.used.len(), 1);
}

const LARGE: usize = 64 << 20;

#[test]
fn random_changes_of_free_space_by_place() {
    random::<BySpace>(1, 15_000, 100_000, LARGE, 0);
}

#[test]
fn random_changes_of_free_space_by_size() {
    random::<BySize>(2, 12_000, 100_000, LARGE, 0);
}

#[test]
fn random_changes_of_inode_chunks() {
    random::<Inobt>(3, 2000, 20_000, LARGE, 0);
    random::<Finobt>(4, 2000, 20_000, LARGE, 0);
}

#[test]
fn random_changes_of_reverse_mappings() {
    random::<RmapBt>(5, 6000, 20_000, LARGE, 0);
}

#[test]
fn random_changes_of_reference_counts() {
    random::<RefcountBt>(6, 15_000, 100_000, LARGE, 0);
}

#[test]
fn random_changes_of_extents_under_roots_of_different_sizes() {
    random::<Bmbt>(7, 6000, 20_000, LARGE, 336);
    random::<Bmbt>(8, 6000, 10_000, LARGE, 36);
    random::<Bmbt>(9, 6000, 10_000, LARGE, 120);
}

/// The cache holds one block of each of its parts: what a change needs is read again and again, and what it has changed
/// must not be validated by a checksum that is made when it is written.
#[test]
fn trees_that_are_larger_than_the_cache() {
    random::<RmapBt>(11, 3000, 6000, 1, 0);
    random::<Bmbt>(12, 6000, 8000, 1, 36);
}

#[test]
fn records_that_come_and_go_in_order() {
    for rising in [true, false] {
        let order = |n: u32| if rising { n } else { 2999 - n };
        let mut model = Model::<RmapBt>::new(LARGE, 0);
        for n in 0..3000 {
            model.insert(order(n), n * 7919);
        }
        model.check();
        // Rising, blocks are left nearly full.
        let fewest = 3000_usize.div_ceil(40);
        assert!(model.tree.space.used.len() < fewest * 3 / 2, "{} blocks", model.tree.space.used.len());
        for n in 0..3000 {
            model.delete(order(n));
            if n % 100 == 0 {
                model.check();
            }
        }
        assert_eq!((model.tree.levels, model.tree.space.used.len()), (1, 1));
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_changes() {
    let mut model = Model::<BySpace>::new(LARGE, 0);
    for slot in 0..1000 {
        model.insert(slot, 1);
    }
    let handle = model.tree.mounted.start(20).unwrap();
    let mut tree = model.tree.open();
    let mut space = Space::new();
    let there = BySpace::record(5, 1);
    let overlapping = FreeExtent { start: AgBlock(there.start.0 - 1), count: 3 };
    assert!(tree.insert(&handle, &mut space, &there).is_err());
    assert!(tree.insert(&handle, &mut space, &overlapping).is_err());
    assert!(tree.update(&handle, &there.start, &BySpace::record(7, 1)).is_err());
    assert!(tree.update(&handle, &AgBlock(there.start.0 + 1), &there).is_err());
    assert!(tree.delete(&handle, &mut space, &AgBlock(there.start.0 + 1)).is_err());
    drop(handle);
    model.check();
}

/// A space that has no blocks.
struct NoBlocks;

impl TreeSpace for NoBlocks {
    fn take(&mut self, _: &Handle<'_>) -> Result<FsBlock> {
        Err(undercroft_vfs::Error::NoSpace)
    }

    fn put(&mut self, _: &Handle<'_>, _: FsBlock) -> Result<()> {
        unreachable!("no block was taken")
    }
}

#[test]
fn without_a_block_to_grow_by_nothing_changes() {
    let mut model = Model::<BySpace>::new(LARGE, 0);
    let mut slot = 0;
    // Until all leaves are full.
    while !(model.tree.space.used.len() > 3 && model.tree.all().len().is_multiple_of(121)) {
        model.insert(slot, 1);
        slot += 1;
    }
    let mut refused = 0;
    for slot in 0..slot {
        // Between two others.
        let start = BySpace::record(slot, 1).start.0 + 2;
        let record = FreeExtent { start: AgBlock(start), count: 1 };
        let handle = model.tree.mounted.start(20).unwrap();
        match model.tree.open().insert(&handle, &mut NoBlocks, &record) {
            Err(undercroft_vfs::Error::NoSpace) => refused += 1,
            result => {
                result.unwrap();
                model.tree.open().delete(&handle, &mut NoBlocks, &record.start).unwrap();
            }
        }
        drop(handle);
    }
    assert!(refused > 0);
    model.check();
}

/// Damages a leaf next to one that is to be joined or to share; nothing has changed when that is found.
#[test]
fn a_damaged_neighbour_is_reported_before_anything_changes() {
    for (at, word) in [(20, "checksum"), (12, "checksum"), (6, "room for")] {
        let mut model = Model::<BySpace>::new(LARGE, 0);
        (0..1000).for_each(|slot| model.insert(slot, 1));
        model.tree.reopen();
        let mut leaves = Vec::new();
        model
            .tree
            .open()
            .for_each_block(|block, level| {
                leaves.extend((level == 0).then_some(block));
                Ok(())
            })
            .unwrap();
        model.tree.damage(leaves[2], |bytes| bytes[at] ^= 0x40);
        // The leaf after it loses records until it needs its neighbour.
        let (mut is_behind, mut found) = (false, false);
        for slot in 0..1000 {
            let record = model.records[&slot];
            let handle = model.tree.mounted.start(20).unwrap();
            let mut tree = model.tree.open();
            if tree.cursor().lookup_eq(&record.start).is_err() {
                is_behind = true;
            } else if is_behind {
                let deleted = tree.delete(&handle, &mut NoBlocks, &record.start);
                if let Err(error) = deleted {
                    assert!(error.to_string().contains(word), "{error}");
                    assert_eq!(tree.cursor().lookup_eq(&record.start).unwrap(), Some(record));
                    found = true;
                    break;
                }
            }
        }
        assert!(found, "the damage was not found");
        assert!(model.tree.mounted.start(1).is_ok(), "the changes were aborted");
    }
}
