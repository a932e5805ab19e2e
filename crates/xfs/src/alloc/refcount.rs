//! Reference counts of shared blocks.
//!
//! Blocks with one user have no record. Those with more have one for each run of blocks with as many users, as long as it
//! can be. A change of some blocks is planned as the records there and around them before it and after it; the tree goes
//! from the ones to the others in an order in which no two records overlap.
//!
//! Source: the kernel's documentation of reference counts; a count that is as high as it can be is never changed again.

use super::changing::ChangingGroup;
use super::step::Step;
use super::*;
use crate::btree::{Btree, Kind, RefcountBt, RefcountRecord};
use crate::error::corrupt_block;
use crate::format::AgBlock;

/// A count that means "as many or more": Linux leaves it as it is for ever.
const PINNED: u32 = u32::MAX;

impl Allocator {
    /// One user of the blocks, which lie in one group, is gone: those without another are freed. The blocks are content
    /// and have been written to or not; the caller takes as many at once as [share in the same way](Allocator::sharing),
    /// so that few records change.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn remove_user(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        if !handle.volume().superblock().features().has_reflink() {
            return self.free_data(handle, first, count);
        }
        let (ag, start) = run_of(handle, first, count)?;
        let mut group = self.change_group(handle, ag)?;
        let plan = plan(&group.tree::<RefcountBt>()?, start, count as u32, Change::Remove)?;
        group.make_steps::<RefcountBt>(&plan.steps)?;
        for (n, (start, count)) in plan.freed.iter().enumerate() {
            let freed = group.free(*start, *count, Was::Data);
            if n == 0 && plan.steps.is_empty() { freed? } else { handle.or_abort(freed)? }
        }
        Ok(())
    }

    /// The blocks, which lie in one group, have one user more.
    ///
    /// # Errors
    /// [`TooManyLinks`](undercroft_vfs::Error::TooManyLinks): some have as many users as can be counted; corruption; I/O
    /// failure. Nothing has changed then, or the changes are aborted.
    pub(crate) fn add_user(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        let (ag, start) = run_of(handle, first, count)?;
        let mut group = self.change_group(handle, ag)?;
        let plan = plan(&group.tree::<RefcountBt>()?, start, count as u32, Change::Add)?;
        group.make_steps::<RefcountBt>(&plan.steps)
    }
}

impl ChangingGroup<'_> {
    /// Blocks are set aside for a copy on write, or no longer: as Linux notes it before it writes such a copy.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn set_copy_aside(&mut self, start: AgBlock, count: u32, is_aside: bool) -> Result<()> {
        let tree = self.tree::<RefcountBt>()?;
        let steps = plan_copy(&tree, start.0, start.0.saturating_add(count), is_aside)?;
        self.make_steps::<RefcountBt>(&steps)
    }

    /// The first copy on write that is noted.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn first_copy(&mut self) -> Result<Option<RefcountRecord>> {
        let first = self.tree::<RefcountBt>()?.cursor().lookup_ge(&(true, AgBlock(0)))?;
        Ok(first.filter(|copy| copy.cow))
    }

    /// Whether the tree can grow as it may when one user of the blocks goes.
    pub(super) fn can_remove_user(&mut self, start: AgBlock, count: u32) -> Result<bool> {
        if !self.volume().superblock().features().has_reflink() {
            return Ok(true);
        }
        let plan = plan(&self.tree::<RefcountBt>()?, start, count, Change::Remove)?;
        let inserted = |step: &Step<RefcountRecord, _>| match step {
            Step::Insert(record) => Some(RefcountBt::key(record)),
            Step::Delete(_) | Step::Update(..) => None,
        };
        let inserted: Vec<_> = plan.steps.iter().filter_map(inserted).collect();
        match inserted.first() {
            Some(key) => self.can_grow::<RefcountBt>(key, inserted.len()),
            None => Ok(true),
        }
    }
}

fn run_of(handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<(crate::format::AgNumber, AgBlock)> {
    handle.volume().geometry().check_run(first, count).ok_or_else(|| {
        corrupt_block(RefcountBt::NAME, first, format!("{count} blocks from there on lie in no group"))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

type RefcountStep = Step<RefcountRecord, (bool, AgBlock)>;

/// How the tree changes, and which blocks have no user any more.
#[derive(Debug, Default)]
struct Plan {
    steps: Vec<RefcountStep>,
    freed: Vec<(AgBlock, u32)>,
}

/// The records of a part of the tree as they are to be.
#[derive(Default)]
struct After {
    records: Vec<RefcountRecord>,
    freed: Vec<(AgBlock, u32)>,
}

impl After {
    /// Appends blocks that have so many users; joins them with those before.
    fn push(&mut self, from: u32, to: u32, users: u32) {
        if from >= to {
            return;
        }
        let count = to - from;
        if users == 0 {
            match self.freed.last_mut() {
                Some((start, len)) if start.0 + *len == from => *len += count,
                _ => self.freed.push((AgBlock(from), count)),
            }
        } else if users > 1 {
            match self.records.last_mut() {
                Some(last) if end(last) == from && last.users == users => last.count += count,
                _ => self.records.push(RefcountRecord { start: AgBlock(from), count, users, cow: false }),
            }
        }
    }
}

fn end(record: &RefcountRecord) -> u32 {
    record.start.0.saturating_add(record.count)
}

/// Plans a change of the users of blocks.
fn plan(tree: &Btree<'_, RefcountBt>, start: AgBlock, count: u32, change: Change) -> Result<Plan> {
    let (from, to) = (start.0, start.0.saturating_add(count));
    let changed = |users: u32| match change {
        _ if users == PINNED => Ok(users),
        Change::Remove => Ok(users.saturating_sub(1)),
        Change::Add if users + 1 == PINNED => Err(undercroft_vfs::Error::TooManyLinks),
        Change::Add => Ok(users + 1),
    };
    let before = records_around(tree, from, to)?;
    let mut after = After::default();
    let mut at = from;
    for record in &before {
        let (start, end) = (record.start.0, end(record));
        after.push(at, start.min(to), changed(1)?);
        after.push(start, end.min(from), record.users);
        let middle = start.max(from)..end.min(to);
        if middle.start < middle.end {
            after.push(middle.start, middle.end, changed(record.users)?);
        }
        after.push(start.max(to), end, record.users);
        at = at.max(end.min(to));
    }
    after.push(at, to, changed(1)?);
    Ok(Plan { steps: steps(&before, &after.records), freed: after.freed })
}

/// What notes a copy on write, joined with its neighbours, or takes one out of the record that it lies in.
fn plan_copy(tree: &Btree<'_, RefcountBt>, from: u32, to: u32, is_aside: bool) -> Result<Vec<RefcountStep>> {
    let wrong = |what: &str| {
        crate::error::corrupt(RefcountBt::NAME, format!("{what} the copy on write at blocks {from} to {to}"))
    };
    let record =
        |from: u32, to: u32| RefcountRecord { start: AgBlock(from), count: to - from, users: 1, cow: true };
    let key = |record: &RefcountRecord| RefcountBt::key(record);
    let is_copy = |record: &RefcountRecord| record.cow;
    let before = tree.cursor().lookup_le(&(true, AgBlock(from)))?.filter(is_copy);
    if !is_aside {
        let whole = before.filter(|whole| end(whole) >= to).ok_or_else(|| wrong("does not have all of"))?;
        let left = (whole.start.0 < from).then(|| record(whole.start.0, from));
        let right = (to < end(&whole)).then(|| record(to, end(&whole)));
        return Ok(match (left, right) {
            (None, None) => vec![Step::Delete(key(&whole))],
            (Some(only), None) | (None, Some(only)) => vec![Step::Update(key(&whole), only)],
            (Some(left), Some(right)) => vec![Step::Update(key(&whole), left), Step::Insert(right)],
        });
    }
    let after = tree.cursor().lookup_ge(&(true, AgBlock(from)))?.filter(is_copy);
    if before.is_some_and(|before| end(&before) > from) || after.is_some_and(|after| after.start.0 < to) {
        return Err(wrong("has another one beside"));
    }
    let left = before.filter(|before| end(before) == from);
    let right = after.filter(|after| after.start.0 == to);
    Ok(match (left, right) {
        (Some(left), Some(right)) => {
            vec![Step::Delete(key(&right)), Step::Update(key(&left), record(left.start.0, end(&right)))]
        }
        (Some(left), None) => vec![Step::Update(key(&left), record(left.start.0, to))],
        (None, Some(right)) => vec![Step::Update(key(&right), record(from, end(&right)))],
        (None, None) => vec![Step::Insert(record(from, to))],
    })
}

/// The records from `from` to before `to`, with those that touch them.
fn records_around(tree: &Btree<'_, RefcountBt>, from: u32, to: u32) -> Result<Vec<RefcountRecord>> {
    let mut cursor = tree.cursor();
    let before = cursor.lookup_le(&(false, AgBlock(from.saturating_sub(1))))?;
    let mut next = if before.is_some() { before } else { cursor.first()? };
    let mut found = Vec::new();
    while let Some(record) = next.filter(|record| !record.cow && record.start.0 <= to) {
        if end(&record) >= from {
            found.push(record);
        }
        next = cursor.increment()?;
    }
    Ok(found)
}

/// What makes the records `after` of the records `before`, which lie at the same blocks: first what takes records away
/// or lets them shrink, then what moves one, lets others grow, and inserts.
fn steps(before: &[RefcountRecord], after: &[RefcountRecord]) -> Vec<RefcountStep> {
    let find = |records: &[RefcountRecord], start: AgBlock| {
        records.binary_search_by_key(&start, |record| record.start).ok().map(|n| records[n])
    };
    let mut gone: Vec<_> = before.iter().filter(|old| find(after, old.start).is_none()).collect();
    let mut fresh: Vec<_> = after.iter().filter(|new| find(before, new.start).is_none()).collect();
    let mut moved = None;
    if let ([old], [new]) = (&gone[..], &fresh[..]) {
        let between = old.start.min(new.start)..old.start.max(new.start);
        if !after.iter().any(|other| other.start != new.start && between.contains(&other.start)) {
            moved = Some(Step::Update(RefcountBt::key(old), **new));
            (gone, fresh) = (Vec::new(), Vec::new());
        }
    }
    let stay = before.iter().filter_map(|old| find(after, old.start).map(|new| (*old, new)));
    let (grow, shrink): (Vec<_>, Vec<_>) =
        stay.filter(|(old, new)| old != new).partition(|(old, new)| new.count > old.count);
    let update = |(old, new): (RefcountRecord, RefcountRecord)| Step::Update(RefcountBt::key(&old), new);
    let mut steps: Vec<_> = gone.into_iter().map(|old| Step::Delete(RefcountBt::key(old))).collect();
    steps.extend(shrink.into_iter().map(update));
    steps.extend(moved);
    steps.extend(grow.into_iter().map(update));
    steps.extend(fresh.into_iter().map(|new| Step::Insert(*new)));
    steps
}

#[cfg(test)]
mod tests {
    use undercroft_block::testing::Rng;

    use super::*;
    use crate::btree::testing::TestTree;

    const BLOCKS: usize = 3000;

    /// The records of blocks with so many users each.
    fn expected(users: &[u32]) -> Vec<RefcountRecord> {
        let mut after = After::default();
        for (at, &users) in (0..).zip(users) {
            after.push(at, at + 1, users);
        }
        after.records
    }

    fn apply(model: &mut TestTree<RefcountBt>, plan: &Plan) {
        for step in &plan.steps {
            model.change(|tree, handle, space| match step {
                Step::Insert(record) => tree.insert(handle, space, record),
                Step::Delete(key) => tree.delete(handle, space, key),
                Step::Update(key, record) => tree.update(handle, key, record),
            });
        }
    }

    #[test]
    fn users_come_and_go() {
        let mut rng = Rng::new(1);
        let mut model = TestTree::<RefcountBt>::new(64 << 20, None);
        let mut users = vec![1_u32; BLOCKS];
        for n in 0..12_000 {
            let from = rng.below(BLOCKS as u64) as usize;
            let to = (from + 1 + rng.below(if n % 7 == 0 { 300 } else { 12 }) as usize).min(BLOCKS);
            let adds = rng.below(10) < if n < 6000 { 6 } else { 3 };
            let change = if adds { Change::Add } else { Change::Remove };
            let plan = plan(&model.open(), AgBlock(from as u32), (to - from) as u32, change).unwrap();
            let mut freed = Vec::new();
            for (at, users) in users.iter_mut().enumerate().take(to).skip(from) {
                *users = if adds { *users + 1 } else { *users - 1 };
                if *users == 0 {
                    freed.push(at as u32);
                    // Another file has got it.
                    *users = 1;
                }
            }
            let found: Vec<_> = plan.freed.iter().flat_map(|(start, len)| start.0..start.0 + len).collect();
            assert_eq!(found, freed);
            apply(&mut model, &plan);
            if n % 20 == 0 {
                assert_eq!(model.all(), expected(&users));
                model.check_shape();
            }
        }
        assert!(model.all().len() > 20);
    }

    #[test]
    fn few_records_change_with_blocks_that_are_shared_in_the_same_way() {
        let mut model = TestTree::<RefcountBt>::new(64 << 20, None);
        let mut change = |from, count, change| {
            let plan = plan(&model.open(), AgBlock(from), count, change).unwrap();
            apply(&mut model, &plan);
            plan.steps.len()
        };
        assert_eq!(change(100, 100, Change::Add), 1);
        // A file that shares all of it is written over from its begin on.
        assert_eq!(change(100, 10, Change::Remove), 1);
        assert_eq!(change(110, 10, Change::Remove), 1);
        assert_eq!(change(150, 10, Change::Remove), 2);
        assert_eq!(change(150, 10, Change::Add), 2);
    }

    #[test]
    fn copies_on_write_are_noted_and_joined() {
        let mut rng = Rng::new(7);
        let mut model = TestTree::<RefcountBt>::new(64 << 20, None);
        let shared = RefcountRecord { start: AgBlock(50), count: 900, users: 3, cow: false };
        model.change(|tree, handle, space| tree.insert(handle, space, &shared));
        let mut copies = vec![false; BLOCKS];
        for _ in 0..8000 {
            let from = rng.below(BLOCKS as u64) as usize;
            let to = (from + 1 + rng.below(12) as usize).min(BLOCKS);
            let is_aside = rng.below(2) == 0;
            let fits = copies[from..to].iter().all(|&copy| copy != is_aside);
            match plan_copy(&model.open(), from as u32, to as u32, is_aside) {
                Ok(steps) => {
                    assert!(fits, "{from} to {to}, {is_aside}");
                    copies[from..to].fill(is_aside);
                    apply(&mut model, &Plan { steps, freed: Vec::new() });
                }
                Err(_) => assert!(!fits, "{from} to {to}, {is_aside}"),
            }
        }
        let runs = |records: &[RefcountRecord]| {
            records.iter().map(|record| (record.start.0, end(record))).collect::<Vec<_>>()
        };
        let mut expected: Vec<(u32, u32)> = Vec::new();
        for at in (0..BLOCKS as u32).filter(|&at| copies[at as usize]) {
            match expected.last_mut() {
                Some(last) if last.1 == at => last.1 += 1,
                _ => expected.push((at, at + 1)),
            }
        }
        let all = model.all();
        assert_eq!(all[0], shared);
        assert_eq!(runs(&all[1..]), expected);
        assert!(all[1..].iter().all(|copy| copy.cow && copy.users == 1) && all.len() > 20);
        model.check_shape();
    }

    #[test]
    fn counts_have_an_end() {
        let mut model = TestTree::<RefcountBt>::new(64 << 20, None);
        for (start, users) in [(100, PINNED), (200, PINNED - 1)] {
            let record = RefcountRecord { start: AgBlock(start), count: 10, users, cow: false };
            model.change(|tree, handle, space| tree.insert(handle, space, &record));
        }
        let of = |start, change| plan(&model.open(), AgBlock(start), 5, change);
        assert!(of(100, Change::Add).unwrap().steps.is_empty());
        assert!(of(100, Change::Remove).unwrap().steps.is_empty());
        assert!(matches!(of(200, Change::Add), Err(undercroft_vfs::Error::TooManyLinks)));
        assert!(!of(200, Change::Remove).unwrap().steps.is_empty());
    }
}
