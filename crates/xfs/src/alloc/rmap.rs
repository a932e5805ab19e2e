//! The reverse map: what each block belongs to. Nothing is done on a volume without one.
//!
//! A mapping is as long as it can be: neighbours of the same owner and use, which in a file follow each other there too,
//! are one record. So blocks that lose their owner lie in one record, of which up to two parts are left.
//!
//! Without shared blocks no two mappings overlap, and what comes before by key comes before by place. Where blocks may be
//! shared, a mapping that begins earlier and reaches to a block is looked for by the highest keys that the tree's
//! pointers have, which leads past all that ends before.
//!
//! Source: the rules of joining are those of the kernel's documentation of the reverse map, as xfs_repair checks them.

use super::changing::ChangingGroup;
use super::step::Step;
use super::*;
use crate::btree::{Btree, Kind, MappedTo, RmapBt, RmapKey, RmapRecord};
use crate::error::{corrupt, corrupt_block};
use crate::format::AgBlock;
use crate::format::extent::FILE_BLOCK_END;
use crate::log::{OwnerChange, OwnerChangeKind};

impl Allocator {
    /// Notes that blocks, which lie in one group, belong to `owner` now; joins neighbours.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn note_owner(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        owner: Owner,
    ) -> Result<()> {
        let Some((mut group, within)) = self.mapped_group(handle, first, count)? else { return Ok(()) };
        group.note_owner(within, count as u32, owner)
    }

    /// Refuses blocks that the reverse map does not have as the owner's: asked before the first change of an operation that
    /// takes them from it.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn check_owner(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        owner: Owner,
    ) -> Result<()> {
        let Some((mut group, within)) = self.mapped_group(handle, first, count)? else { return Ok(()) };
        group.check_owner(within, count as u32, owner)
    }

    /// Notes that they belong to it no more.
    ///
    /// # Errors
    /// As for [`note_owner`](Self::note_owner).
    pub(crate) fn note_no_owner(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        owner: Owner,
    ) -> Result<()> {
        let Some((mut group, within)) = self.mapped_group(handle, first, count)? else { return Ok(()) };
        group.note_no_owner(within, count as u32, owner)
    }

    /// The group of blocks, with its lock held, and where they begin in it; `None` without a reverse map.
    fn mapped_group<'g>(
        &'g self,
        handle: &'g Handle<'_>,
        first: FsBlock,
        count: u64,
    ) -> Result<Option<(ChangingGroup<'g>, AgBlock)>> {
        let volume = handle.volume();
        if !volume.superblock().features().has_rmapbt() {
            return Ok(None);
        }
        let Some((ag, within)) = volume.geometry().check_run(first, count) else {
            return Err(corrupt_block("reverse mapping", first, format!("{count} blocks lie in no group")));
        };
        Ok(Some((self.change_group(handle, ag)?, within)))
    }
}

impl ChangingGroup<'_> {
    /// The same with the group's lock held. Fills the free list first ([`fill_list`](Self::fill_list)), unless it is
    /// called while the list is being filled.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn note_owner(&mut self, first: AgBlock, count: u32, owner: Owner) -> Result<()> {
        self.change_owner(first, count, owner, plan_add)
    }

    /// The same with the group's lock held.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn note_no_owner(&mut self, first: AgBlock, count: u32, owner: Owner) -> Result<()> {
        self.change_owner(first, count, owner, plan_remove)
    }

    /// Refuses blocks that the reverse map does not have as the owner's, before the first change of an operation that
    /// takes them from it.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn check_owner(&mut self, first: AgBlock, count: u32, owner: Owner) -> Result<()> {
        let features = self.volume().superblock().features();
        if !features.has_rmapbt() || count == 0 {
            return Ok(());
        }
        plan_remove(&self.tree::<RmapBt>()?, mapping(first, count, owner), features.has_reflink()).map(drop)
    }

    fn change_owner(
        &mut self,
        first: AgBlock,
        count: u32,
        owner: Owner,
        plan: fn(&Btree<'_, RmapBt>, RmapRecord, bool) -> Result<Vec<RmapStep>>,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.change_owners(|tree, may_overlap| plan(tree, mapping(first, count, owner), may_overlap))
    }

    fn change_owners(
        &mut self,
        plan: impl FnOnce(&Btree<'_, RmapBt>, bool) -> Result<Vec<RmapStep>>,
    ) -> Result<()> {
        let features = self.volume().superblock().features();
        if !features.has_rmapbt() {
            return Ok(());
        }
        self.fill_list()?;
        let steps = plan(&self.tree::<RmapBt>()?, features.has_reflink())?;
        self.make_steps::<RmapBt>(&steps)
    }

    /// Blocks that are about to be freed belong to nothing any more, whatever the reverse map has: one mapping with all of
    /// them, or none.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn note_no_owner_at_all(&mut self, first: AgBlock, count: u32) -> Result<()> {
        self.change_owners(|tree, may_overlap| plan_forget(tree, first, count, may_overlap))
    }

    /// Makes a change of the owner of blocks that the log announced; they begin at `start` in this group.
    ///
    /// # Errors
    /// As for [`note_no_owner_at_all`](Self::note_no_owner_at_all).
    pub(super) fn change_logged_owner(&mut self, start: AgBlock, change: &OwnerChange) -> Result<()> {
        let record = |unwritten| RmapRecord {
            start,
            count: change.blocks,
            owner: MappedTo::from_raw(change.owner),
            offset: change.at,
            attr_fork: change.attribute_fork,
            bmbt: change.map_block,
            unwritten,
        };
        let is = record(change.unwritten);
        RmapBt::validate(&is, self.geometry(), self.number())
            .and_then(|()| match change.at.0.checked_add(change.blocks.into()) {
                Some(end) if end <= FILE_BLOCK_END => Ok(()),
                _ => Err(format!("names {} blocks at file block {}", change.blocks, change.at).into()),
            })
            .map_err(|what| corrupt("logged change of an owner", what))?;
        match change.kind {
            OwnerChangeKind::Add => self.change_owners(|tree, may_overlap| plan_add(tree, is, may_overlap)),
            OwnerChangeKind::Remove => {
                self.change_owners(|tree, may_overlap| plan_remove(tree, is, may_overlap))
            }
            OwnerChangeKind::Convert => {
                let was = record(!change.unwritten);
                self.change_owners(|tree, may_overlap| plan_remove(tree, was, may_overlap))?;
                let handle = self.handle;
                handle.or_abort(self.change_owners(|tree, may_overlap| plan_add(tree, is, may_overlap)))
            }
        }
    }
}

type RmapStep = Step<RmapRecord, RmapKey>;

/// What the reverse map says of such blocks.
fn mapping(start: AgBlock, count: u32, owner: Owner) -> RmapRecord {
    let of = |owner, offset, attr_fork, bmbt, unwritten| RmapRecord {
        start,
        count,
        owner,
        offset,
        attr_fork,
        bmbt,
        unwritten,
    };
    let of_group = |owner| of(owner, FileBlock(0), false, false, false);
    match owner {
        Owner::Fork { ino, attr, at, unwritten } => of(MappedTo::Inode(ino), at, attr, false, unwritten),
        Owner::ForkTree { ino, attr } => of(MappedTo::Inode(ino), FileBlock(0), attr, true, false),
        Owner::FreeSpace => of_group(MappedTo::AG_BTREES),
        Owner::InodeTrees => of_group(MappedTo::INODE_BTREES),
        Owner::RefcountTree => of_group(MappedTo::REFCOUNT),
        Owner::Inodes => of_group(MappedTo::INODES),
        Owner::Copies => of_group(MappedTo::COPIES),
    }
}

/// Whether the offset rises with the block.
fn has_offsets(record: &RmapRecord) -> bool {
    matches!(record.owner, MappedTo::Inode(_)) && !record.bmbt
}

fn end(record: &RmapRecord) -> u32 {
    record.start.0.saturating_add(record.count)
}

/// Whether both are blocks of the same use, wherever they lie.
fn same_use(one: &RmapRecord, other: &RmapRecord) -> bool {
    let flags = |record: &RmapRecord| (record.attr_fork, record.bmbt, record.unwritten);
    one.owner == other.owner && flags(one) == flags(other)
}

/// Whether two mappings are one: the second goes on where the first ends, on the disk and in the file.
fn joins(left: &RmapRecord, right: &RmapRecord) -> bool {
    end(left) == right.start.0
        && same_use(left, right)
        && (!has_offsets(left) || left.offset.0 + u64::from(left.count) == right.offset.0)
        && left.count.checked_add(right.count).is_some()
}

/// The part of a mapping from `from` to before `to`.
fn cut(record: &RmapRecord, from: u32, to: u32) -> RmapRecord {
    let skipped = if has_offsets(record) { u64::from(from - record.start.0) } else { 0 };
    RmapRecord {
        start: AgBlock(from),
        count: to - from,
        offset: FileBlock(record.offset.0 + skipped),
        ..*record
    }
}

fn not_as_noted(record: &RmapRecord, what: &str) -> undercroft_vfs::Error {
    let RmapRecord { start, count, owner, .. } = record;
    corrupt(RmapBt::NAME, format!("{what} the {count} blocks at {start} of {owner:?}"))
}

/// What notes the owner of blocks. Without overlaps the neighbours by place are those by key.
fn plan_add(tree: &Btree<'_, RmapBt>, new: RmapRecord, may_overlap: bool) -> Result<Vec<RmapStep>> {
    let mut cursor = tree.cursor();
    let before = cursor.lookup_le(&RmapBt::key(&new))?;
    let mut left = before.filter(|left| joins(left, &new));
    let right = if may_overlap {
        if left.is_none() && new.start.0 > 0 {
            left = tree.find_overlapping(AgBlock(new.start.0 - 1), |left| joins(left, &new))?;
        }
        let offset = if has_offsets(&new) { u64::from(new.count) } else { 0 };
        let beyond =
            RmapRecord { start: AgBlock(end(&new)), offset: FileBlock(new.offset.0 + offset), ..new };
        cursor.lookup_eq(&RmapBt::key(&beyond))?
    } else {
        let after = if before.is_some() { cursor.increment()? } else { cursor.first()? };
        if before.is_some_and(|before| end(&before) > new.start.0)
            || after.is_some_and(|after| after.start.0 < end(&new))
        {
            return Err(not_as_noted(&new, "has another owner for some of"));
        }
        after
    };
    let right = right.filter(|right| joins(&new, right));
    Ok(match (left, right) {
        (Some(left), Some(right)) => vec![
            Step::Delete(RmapBt::key(&right)),
            Step::Update(RmapBt::key(&left), RmapRecord { count: end(&right) - left.start.0, ..left }),
        ],
        (Some(left), None) => {
            vec![Step::Update(RmapBt::key(&left), RmapRecord { count: left.count + new.count, ..left })]
        }
        (None, Some(right)) => {
            moved(&right, RmapRecord { count: new.count + right.count, ..new }, may_overlap)
        }
        (None, None) => vec![Step::Insert(new)],
    })
}

/// What notes that blocks, which lie in one mapping, do not belong to their owner any more.
fn plan_remove(tree: &Btree<'_, RmapBt>, old: RmapRecord, may_overlap: bool) -> Result<Vec<RmapStep>> {
    let holds = |record: &RmapRecord| {
        record.start <= old.start
            && end(record) >= end(&old)
            && same_use(record, &old)
            && cut(record, old.start.0, end(&old)).offset == old.offset
    };
    let mut found = tree.cursor().lookup_le(&RmapBt::key(&old))?.filter(holds);
    if found.is_none() && may_overlap {
        found = tree.find_overlapping(old.start, holds)?;
    }
    let Some(whole) = found else { return Err(not_as_noted(&old, "does not have")) };
    Ok(without(&whole, old.start.0, end(&old), may_overlap))
}

/// What notes that blocks belong to nothing: all of them lie in one mapping, or no mapping has any of them.
fn plan_forget(
    tree: &Btree<'_, RmapBt>,
    start: AgBlock,
    count: u32,
    may_overlap: bool,
) -> Result<Vec<RmapStep>> {
    let to = start.0.saturating_add(count);
    let in_part = |record: &RmapRecord| not_as_noted(record, "has others beside blocks to be freed among");
    match tree.find_overlapping(start, |_| true)? {
        Some(whole) if end(&whole) >= to => Ok(without(&whole, start.0, to, may_overlap)),
        Some(part) => Err(in_part(&part)),
        None => match tree.cursor().lookup_ge(&RmapKey { start, owner: 0, offset: 0 })? {
            Some(part) if part.start.0 < to => Err(in_part(&part)),
            _ => Ok(Vec::new()),
        },
    }
}

/// What takes the blocks from `from` to before `to` out of a mapping that has them.
fn without(whole: &RmapRecord, from: u32, to: u32, may_overlap: bool) -> Vec<RmapStep> {
    let key = RmapBt::key(whole);
    let left = (whole.start.0 < from).then(|| cut(whole, whole.start.0, from));
    let right = (to < end(whole)).then(|| cut(whole, to, end(whole)));
    match (left, right) {
        (None, None) => vec![Step::Delete(key)],
        (Some(left), None) => vec![Step::Update(key, left)],
        (None, Some(right)) => moved(whole, right, may_overlap),
        (Some(left), Some(right)) => vec![Step::Update(key, left), Step::Insert(right)],
    }
}

/// What lets a mapping begin elsewhere. Among overlapping ones it may come to another place in the order.
fn moved(old: &RmapRecord, new: RmapRecord, may_overlap: bool) -> Vec<RmapStep> {
    let key = RmapBt::key(old);
    if may_overlap { vec![Step::Delete(key), Step::Insert(new)] } else { vec![Step::Update(key, new)] }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use undercroft_block::testing::Rng;

    use super::*;
    use crate::btree::testing::TestTree;

    const BLOCKS: u32 = 600;

    /// A block with one use of it.
    type Use = (u32, u64, bool, bool, bool, u64);

    /// The reverse map as uses of single blocks.
    #[derive(Default)]
    struct Uses(BTreeSet<Use>);

    fn owner(rng: &mut Rng) -> Owner {
        let ino = Ino(128 + rng.below(3));
        let (attr, unwritten) = (rng.below(8) == 0, rng.below(4) == 0);
        match rng.below(8) {
            0 => Owner::FreeSpace,
            1 => Owner::Inodes,
            2 => Owner::ForkTree { ino, attr },
            _ => Owner::Fork { ino, attr, at: FileBlock(rng.below(40)), unwritten },
        }
    }

    fn uses(record: &RmapRecord) -> impl Iterator<Item = Use> + '_ {
        (0..record.count).map(|n| {
            let offset = if has_offsets(record) { record.offset.0 + u64::from(n) } else { 0 };
            let RmapRecord { attr_fork, bmbt, unwritten, .. } = *record;
            (record.start.0 + n, record.owner.raw(), attr_fork, bmbt, unwritten, offset)
        })
    }

    impl Uses {
        /// Whether a mapping may be added.
        fn has_room(&self, new: &RmapRecord, may_overlap: bool) -> bool {
            uses(new).all(|one| {
                self.0.range((one.0, 0, false, false, false, 0)..(one.0 + 1, 0, false, false, false, 0)).all(
                    |other| {
                        may_overlap && (one.1, one.2, one.3, one.5) != (other.1, other.2, other.3, other.5)
                    },
                )
            })
        }

        /// All mappings, as long as they can be.
        fn records(&self) -> BTreeSet<RmapKey> {
            let mut starts = BTreeSet::new();
            for one in &self.0 {
                let rises = (one.1 >> 63 == 0) && !one.3;
                let before = (one.0.wrapping_sub(1), one.1, one.2, one.3, one.4);
                let offset = if rises { one.5.checked_sub(1) } else { Some(one.5) };
                let goes_on = offset.is_some_and(|offset| {
                    self.0.contains(&(before.0, before.1, before.2, before.3, before.4, offset))
                });
                if !goes_on {
                    let offset = one.5 | (u64::from(one.2) << 63) | (u64::from(one.3) << 62);
                    starts.insert(RmapKey { start: AgBlock(one.0), owner: one.1, offset });
                }
            }
            starts
        }
    }

    fn random(seed: u64, may_overlap: bool) {
        let mut rng = Rng::new(seed);
        let mut model = TestTree::<RmapBt>::new(64 << 20, None);
        let mut known = Uses::default();
        for n in 0..6000 {
            let start = AgBlock(10 + rng.below(u64::from(BLOCKS)) as u32);
            let count = 1 + rng.below(30) as u32;
            if rng.below(2) == 0 {
                let mut new = mapping(start, count, owner(&mut rng));
                if has_offsets(&new) && rng.below(2) == 0 {
                    // On a diagonal on which others lie.
                    new.offset = FileBlock(u64::from(new.start.0));
                }
                if !known.has_room(&new, may_overlap) {
                    continue;
                }
                known.0.extend(uses(&new));
                let steps = plan_add(&model.open(), new, may_overlap).unwrap();
                apply(&mut model, steps);
            } else {
                let records = model.all();
                let Some(whole) = records.get(rng.below(records.len().max(1) as u64) as usize) else {
                    continue;
                };
                let from = whole.start.0 + rng.below(u64::from(whole.count)) as u32;
                let to = from + 1 + rng.below(u64::from(end(whole) - from)) as u32;
                let old = cut(whole, from, to);
                for one in uses(&old) {
                    assert!(known.0.remove(&one));
                }
                let steps = plan_remove(&model.open(), old, may_overlap).unwrap();
                apply(&mut model, steps);
                assert!(plan_remove(&model.open(), old, may_overlap).is_err());
            }
            if n % 50 == 0 {
                let records = model.all();
                assert_eq!(records.iter().map(RmapBt::key).collect::<BTreeSet<_>>(), known.records());
                assert_eq!(records.iter().flat_map(uses).collect::<BTreeSet<_>>(), known.0);
                model.check_shape();
            }
        }
    }

    fn apply(model: &mut TestTree<RmapBt>, steps: Vec<RmapStep>) {
        for step in steps {
            model.change(|tree, handle, space| match step {
                Step::Insert(record) => tree.insert(handle, space, &record),
                Step::Delete(key) => tree.delete(handle, space, &key),
                Step::Update(key, record) => tree.update(handle, &key, &record),
            });
        }
    }

    #[test]
    fn owners_are_noted_and_joined() {
        random(1, false);
        random(2, false);
    }

    #[test]
    fn owners_of_shared_blocks_are_noted_and_joined() {
        random(3, true);
        random(4, true);
    }

    #[test]
    fn blocks_to_be_freed_lose_the_one_owner_that_they_have() {
        let owner = Owner::ForkTree { ino: Ino(131), attr: false };
        let noted = mapping(AgBlock(100), 10, owner);
        for may_overlap in [false, true] {
            for (start, count, left) in [
                (100, 10, vec![]),
                (100, 4, vec![(104, 6)]),
                (107, 3, vec![(100, 7)]),
                (103, 2, vec![(100, 3), (105, 5)]),
                (90, 10, vec![(100, 10)]),
                (110, 5, vec![(100, 10)]),
            ] {
                let mut model = TestTree::<RmapBt>::new(64 << 20, None);
                let steps = plan_add(&model.open(), noted, may_overlap).unwrap();
                apply(&mut model, steps);
                let steps = plan_forget(&model.open(), AgBlock(start), count, may_overlap).unwrap();
                apply(&mut model, steps);
                let found: Vec<_> = model.all().iter().map(|record| (record.start.0, record.count)).collect();
                assert_eq!(found, left, "{count} blocks at {start}");
            }
            let mut model = TestTree::<RmapBt>::new(64 << 20, None);
            let steps = plan_add(&model.open(), noted, may_overlap).unwrap();
            apply(&mut model, steps);
            for (start, count) in [(95, 6), (105, 6), (90, 40)] {
                assert!(plan_forget(&model.open(), AgBlock(start), count, may_overlap).is_err());
            }
        }
    }

    #[test]
    fn a_second_owner_and_an_owner_that_is_none_are_refused() {
        let mut model = TestTree::<RmapBt>::new(64 << 20, None);
        let noted = mapping(AgBlock(100), 10, Owner::Inodes);
        let steps = plan_add(&model.open(), noted, false).unwrap();
        apply(&mut model, steps);
        for (start, count) in [(95, 6), (100, 1), (105, 2), (109, 5), (90, 40)] {
            let second = mapping(AgBlock(start), count, Owner::FreeSpace);
            assert!(plan_add(&model.open(), second, false).is_err());
            let other = mapping(AgBlock(start), count, Owner::InodeTrees);
            assert!(plan_remove(&model.open(), other, false).is_err());
            assert!(plan_remove(&model.open(), other, true).is_err());
        }
        for (start, count) in [(99, 2), (109, 2), (200, 1)] {
            let too_much = mapping(AgBlock(start), count, Owner::Inodes);
            assert!(plan_remove(&model.open(), too_much, false).is_err());
        }
    }
}
