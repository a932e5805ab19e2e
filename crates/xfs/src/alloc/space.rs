//! Blocks are taken and freed: the trees of free space are kept in step with each other and with the group in memory.

use undercroft_vfs::{Error, Result};

use super::changing::ChangingGroup;
use super::group::GroupState;
use super::runs::Run;
use super::*;
use crate::btree::{BySize, BySpace, FreeExtent};
use crate::error::corrupt_block;
use crate::format::{AgBlock, AgNumber};

/// How many groups are searched for blocks that a reservation promises, all of them again and again. Between two searches
/// other threads may move blocks from a group that is still to be searched to one that has been.
const GROUPS_SEARCHED: usize = 1 << 20;
/// How often each group is searched at least, and at most.
const SEARCHES: (usize, usize) = (8, 10_000);

/// Where blocks for data are best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) block: FsBlock,
    /// An extent ends before it, which blocks there make longer.
    pub(crate) goes_on: bool,
    /// Elsewhere the first block lies at a multiple of so many, counted from the group's start, if no fewer are wanted:
    /// the stripe unit, or 1 for anywhere.
    pub(crate) align: u32,
}

impl From<FsBlock> for Goal {
    fn from(block: FsBlock) -> Self {
        Self { block, goes_on: true, align: 1 }
    }
}

/// The same in one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) block: u32,
    pub(super) goes_on: bool,
    pub(super) align: u32,
}

impl Place {
    /// Near a block, on no stripe.
    pub(super) fn near(block: u32) -> Self {
        Self { block, goes_on: true, align: 1 }
    }
}

/// What a search may use of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// What the group has to spare, if a run of so many blocks lies together.
    Long(u32),
    /// What it has to spare.
    Spare,
    /// Also what is set aside: for a reservation that finds nothing else.
    All,
}

impl Allocator {
    /// Takes up to `most` free blocks that lie together, near `goal`, out of the space that the handle has reserved.
    /// Returns the first and how many. At least one, while the handle has one reserved.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace) if the handle has none reserved; corruption; I/O failure.
    pub(crate) fn take(&self, handle: &Handle<'_>, goal: FsBlock, most: u64) -> Result<(FsBlock, u64)> {
        let most = most.min(handle.space()).min(u64::from(u32::MAX)) as u32;
        if most == 0 {
            return Err(Error::NoSpace);
        }
        let (first, within) = Self::goal(handle.volume(), goal);
        self.search(most, |reach, at| {
            let number = self.number_after(first, at);
            let group = self.group(number)?;
            if !group.may_have(reach, at == 0) {
                return Ok(None);
            }
            let mut group = self.change_group(handle, number)?;
            group.fill_list()?;
            let goal = if at == 0 { within.0 } else { 0 };
            let Some(run) = group.state().choose(reach, Place::near(goal), most) else { return Ok(None) };
            if !group.list_suffices_to_take(run, 0)? {
                return Ok(None);
            }
            group.take_available(run)?;
            group.take_reserved(run.count)?;
            Ok(Some((group.block(AgBlock(run.start))?, u64::from(run.count))))
        })
    }

    /// Frees blocks that lie in one group and belong to nothing any more, and that may have been metadata. They are not
    /// given out again before the transaction is durable.
    ///
    /// # Errors
    /// Corruption (blocks that are free already); I/O failure.
    pub(crate) fn free(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        self.free_run(handle, first, count, Was::Metadata)
    }

    /// The same for blocks that were a file's content and nothing else. On a full group its own trees may grow into them
    /// before the transaction is durable.
    ///
    /// # Errors
    /// As for [`free`](Self::free).
    pub(crate) fn free_data(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        self.free_run(handle, first, count, Was::Data)
    }

    /// Refuses blocks that a file has and that are free, on a free list, or the filesystem's own: asked before the first
    /// change of an operation that takes them out of the file.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn check_blocks_in_use(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        let Some((ag, within)) = handle.volume().geometry().check_run(first, count) else {
            return Err(corrupt_block("allocation group", first, format!("{count} blocks lie in no group")));
        };
        self.change_group(handle, ag)?.check_may_free(Run::new(within.0, count as u32))
    }

    fn free_run(&self, handle: &Handle<'_>, first: FsBlock, count: u64, was: Was) -> Result<()> {
        let Some((ag, within)) = handle.volume().geometry().check_run(first, count) else {
            return Err(corrupt_block(
                "free space",
                first,
                format!("{count} blocks to be freed lie in no group"),
            ));
        };
        self.change_group(handle, ag)?.free(within, count as u32, was)
    }

    /// Searches all groups for blocks that are reserved, until it finds some.
    pub(super) fn search<T>(
        &self,
        most: u32,
        mut search_group: impl FnMut(Reach, usize) -> Result<Option<T>>,
    ) -> Result<T> {
        let groups = self.groups.len();
        let mut search_all =
            |reach| (0..groups).find_map(|at| search_group(reach, at).transpose()).transpose();
        let long = [most, most / 8].into_iter().filter(|&count| count > 1).map(Reach::Long);
        for reach in long {
            if let Some(found) = search_all(reach)? {
                return Ok(found);
            }
        }
        let searches = (GROUPS_SEARCHED / groups.max(1)).clamp(SEARCHES.0, SEARCHES.1);
        for n in 0..searches {
            for reach in [Reach::Spare, Reach::All] {
                if let Some(found) = search_all(reach)? {
                    return Ok(found);
                }
            }
            if n > 10 {
                std::thread::yield_now();
            }
        }
        // A group's trees have grown into what was reserved, where nothing was set aside for them.
        Err(Error::NoSpace)
    }

    /// Where a search begins: the goal's group and place, the first group for a goal that lies nowhere.
    pub(super) fn goal(volume: &Volume, goal: FsBlock) -> (AgNumber, AgBlock) {
        volume.geometry().split(goal).unwrap_or((AgNumber(0), AgBlock(0)))
    }

    /// The group that comes `at` groups after `first`.
    pub(super) fn number_after(&self, first: AgNumber, at: usize) -> AgNumber {
        AgNumber(((first.0 as usize + at) % self.groups.len().max(1)) as u32)
    }
}

impl super::group::Group {
    /// Whether a search may find something in the group, for all that can be known without its lock.
    pub(super) fn may_have(&self, reach: Reach, has_goal: bool) -> bool {
        use undercroft_sync::atomic::Ordering::Relaxed;
        match reach {
            Reach::Long(count) if !has_goal => {
                self.hints.longest.load(Relaxed) >= count && self.hints.available.load(Relaxed) >= count
            }
            Reach::Long(_) | Reach::Spare => self.hints.available.load(Relaxed) > 0,
            Reach::All => self.hints.longest.load(Relaxed) > 0,
        }
    }
}

impl GroupState {
    /// Available blocks, up to `most`.
    pub(super) fn choose(&mut self, reach: Reach, goal: Place, most: u32) -> Option<Run> {
        let spare = u32::try_from(self.spare()).unwrap_or(u32::MAX);
        let least = match reach {
            Reach::Long(count) => count,
            Reach::Spare | Reach::All => 1,
        };
        let most = if reach == Reach::All { most } else { most.min(spare) };
        if most < least {
            return None;
        }
        let space = &self.blocks().space;
        // Blocks that go on where the goal is make no extent more, unless they are few.
        let here = space.available.containing(goal.block).map_or(0, |run| run.end() - goal.block);
        if goal.align > 1 && most >= goal.align && !(goal.goes_on && here > 0) {
            let striped = space.find_striped(goal.block, most, goal.align);
            if let Some(run) = striped.filter(|run| run.count >= least) {
                return Some(run);
            }
        }
        let goes_on = here > 0 && here >= most / 8;
        (goes_on || space.available.longest() >= least).then(|| space.find(goal.block, most))?
    }
}

impl ChangingGroup<'_> {
    /// Takes `count` blocks that lie together, the first at a multiple of `align` counted from the group's start and in
    /// `within`, as near `goal` as there are any, out of the space that the handle has reserved. `None` if the group has no
    /// such blocks to spare.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn take_aligned(
        &mut self,
        goal: AgBlock,
        count: u32,
        align: u32,
        within: std::ops::Range<u32>,
    ) -> Result<Option<AgBlock>> {
        if self.handle.space() < u64::from(count) {
            return Ok(None);
        }
        self.fill_list()?;
        let state = self.loaded()?;
        if state.spare() < u64::from(count) || count == 0 {
            return Ok(None);
        }
        let Some(run) = state.blocks().space.find_aligned(goal.0, count, align, &within) else {
            return Ok(None);
        };
        if !self.list_suffices_to_take(run, 0)? {
            return Ok(None);
        }
        self.take_available(run)?;
        self.take_reserved(count)?;
        Ok(Some(AgBlock(run.start)))
    }

    /// Frees blocks of the group, which were what `was` says.
    ///
    /// # Errors
    /// Corruption (blocks that are free already); I/O failure.
    pub(super) fn free(&mut self, first: AgBlock, count: u32, was: Was) -> Result<()> {
        let run = Run::new(first.0, count);
        self.fill_list()?;
        self.check_no_root(run)?;
        self.free_checked(run, was)
    }

    /// Refuses blocks that cannot be freed, before the first change of an operation that frees them: free ones, and those
    /// of the filesystem itself, its free lists and trees' roots included.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn check_may_free(&mut self, run: Run) -> Result<()> {
        self.check_no_root(run)?;
        self.check_in_use(run)
    }

    fn free_checked(&mut self, run: Run, was: Was) -> Result<()> {
        self.check_in_use(run)?;
        self.insert_extent(run)?;
        self.add_freed(run, was);
        Ok(())
    }

    /// Takes a block for a tree of the group that is not on the free list, out of what is set aside, and notes its owner.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) if the group has no block at all; corruption; I/O failure.
    pub(super) fn take_for_tree(&mut self, goal: AgBlock, owner: Owner) -> Result<AgBlock> {
        self.fill_list()?;
        let run = self.run_for_tree(Some(goal))?.ok_or(Error::NoSpace)?;
        self.take_free(run);
        // It is part of a change of another tree, which has begun.
        let taken = self.remove_extent(run).and_then(|()| self.note_owner(AgBlock(run.start), 1, owner));
        self.handle.or_abort(taken)?;
        Ok(AgBlock(run.start))
    }

    /// A block for such a tree, near `goal` or where the free list suffices to take it. The list has been filled.
    pub(super) fn run_for_tree(&mut self, goal: Option<AgBlock>) -> Result<Option<Run>> {
        if let Some(goal) = goal
            && let Some(run) = self.loaded()?.blocks().space.find(goal.0, 1)
            && self.list_suffices_to_take(run, 0)?
        {
            return Ok(Some(run));
        }
        self.run_for_list(1, u32::MAX)
    }

    /// Frees a block of such a tree, which has been forgotten.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn free_of_tree(&mut self, block: AgBlock, owner: Owner) -> Result<()> {
        self.note_no_owner(block, 1, owner)?;
        let filled = self.fill_list();
        self.handle.or_abort(filled)?;
        // It may still be the root in the header, which the change of the tree stores at its end.
        let freed = self.free_checked(Run::new(block.0, 1), Was::Metadata);
        self.handle.or_abort(freed)
    }

    /// Takes available blocks.
    fn take_available(&mut self, run: Run) -> Result<()> {
        if !self.state().blocks().space.available.take(run) {
            unreachable!("the search found it under the same lock");
        }
        self.remove_extent(run).inspect_err(|_| self.state().blocks().space.available.give(run))
    }

    /// Takes blocks in memory that are available, or that a transaction freed that is not durable yet.
    pub(super) fn take_free(&mut self, run: Run) {
        let space = &mut self.state().blocks().space;
        if !space.available.take(run) && !space.take_freed(run) {
            unreachable!("the search found it under the same lock");
        }
    }

    /// Takes as many blocks out of what the handle has reserved. They have been taken, so a failure aborts the changes.
    fn take_reserved(&mut self, count: u32) -> Result<()> {
        if !self.handle.use_space(u64::from(count)) {
            return self.handle.or_abort(Err(Error::NoSpace));
        }
        self.taken_from_reservations += u64::from(count);
        Ok(())
    }

    /// Checks that blocks may be freed: none of them is free, or on the free list, or part of the filesystem itself.
    fn check_in_use(&mut self, run: Run) -> Result<()> {
        let blocks = self.loaded()?.blocks();
        let mut on_list = blocks.list.blocks().filter(|block| (run.start..run.end()).contains(&block.0));
        let what = if let Some(free) = blocks.space.disk.overlapping(run) {
            format!("blocks {} to {} are free", free.start, free.end() - 1)
        } else if let Some(own) = blocks.space.own(run) {
            format!("blocks {} to {} are the filesystem's own", own.start, own.end() - 1)
        } else if let Some(block) = on_list.next() {
            format!("block {block} is on the free list")
        } else {
            return Ok(());
        };
        drop(on_list);
        Err(self.wrongly_freed(run, &what))
    }

    /// Checks that no root of a tree is among blocks that are to be freed.
    fn check_no_root(&self, run: Run) -> Result<()> {
        let (agf, agi) = (self.agf(), self.agi());
        let features = self.volume().superblock().features();
        let roots = [
            Some(agf.agf_bno_root),
            Some(agf.agf_cnt_root),
            features.has_rmapbt().then_some(agf.agf_rmap_root),
            features.has_reflink().then_some(agf.agf_refcount_root),
            Some(agi.agi_root),
            features.has_finobt().then_some(agi.agi_free_root),
        ];
        let mut roots = roots.into_iter().flatten().map(zerocopy::byteorder::big_endian::U32::get);
        match roots.find(|root| (run.start..run.end()).contains(root)) {
            Some(root) => Err(self.wrongly_freed(run, &format!("block {root} is the root of a tree"))),
            None => Ok(()),
        }
    }

    fn wrongly_freed(&self, run: Run, what: &str) -> Error {
        let first = self.block(AgBlock(run.start)).unwrap_or(FsBlock::NULL);
        let detail = format!(
            "{} blocks of group {} from {} on are to be freed, but {what}",
            run.count,
            self.number(),
            run.start
        );
        corrupt_block("free space", first, detail)
    }

    /// Notes that blocks were freed by the running transaction.
    pub(super) fn add_freed(&mut self, run: Run, was: Was) {
        let tid = self.tid();
        self.state().blocks().space.add_freed(tid, run, was);
        self.release_when_durable();
    }

    /// Has the blocks that the transaction freed released once it is durable.
    pub(super) fn release_when_durable(&mut self) {
        let (tid, number) = (self.tid(), self.number());
        if self.state().release_asked.replace(tid) != Some(tid) {
            self.handle.after_commit(move |mounted| {
                if let Ok(writer) = mounted.writer() {
                    writer.allocator.release(mounted, number, tid);
                }
            });
        }
    }

    /// Takes blocks out of the trees of free space. Of what is available they have been taken already.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn remove_extent(&mut self, run: Run) -> Result<()> {
        let whole = self.state().blocks().space.disk.containing(run.start);
        let Some(whole) = whole.filter(|whole| run.end() <= whole.end()) else {
            unreachable!("what is available is part of an extent of the trees");
        };
        let left = (whole.start < run.start).then(|| Run::new(whole.start, run.start - whole.start));
        let right = (run.end() < whole.end()).then(|| Run::new(run.end(), whole.end() - run.end()));
        match (left, right) {
            (None, None) => {
                self.delete::<BySpace>(&AgBlock(whole.start))?;
                let rest = self.delete_size(whole);
                self.handle.or_abort(rest)?;
            }
            (Some(left), None) | (None, Some(left)) => {
                self.update::<BySpace>(&AgBlock(whole.start), &extent(left))?;
                let rest = self.change_size(whole, left);
                self.handle.or_abort(rest)?;
            }
            (Some(left), Some(right)) => {
                self.update::<BySpace>(&AgBlock(whole.start), &extent(left))?;
                let rest = self
                    .insert::<BySpace>(&extent(right))
                    .and_then(|()| self.change_size(whole, left))
                    .and_then(|()| self.insert_size(right));
                self.handle.or_abort(rest)?;
            }
        }
        self.note_free_blocks();
        Ok(())
    }

    /// Adds blocks, none of which is free, to the trees of free space, and joins them with their neighbours.
    ///
    /// # Errors
    /// As for [`remove_extent`](Self::remove_extent).
    pub(super) fn insert_extent(&mut self, run: Run) -> Result<()> {
        match self.state().blocks().space.disk.neighbours(run) {
            (None, None) => {
                self.insert::<BySpace>(&extent(run))?;
                let rest = self.insert_size(run);
                self.handle.or_abort(rest)?;
            }
            (Some(left), None) => {
                let joined = Run::new(left.start, left.count + run.count);
                self.update::<BySpace>(&AgBlock(left.start), &extent(joined))?;
                let rest = self.change_size(left, joined);
                self.handle.or_abort(rest)?;
            }
            (None, Some(right)) => {
                let joined = Run::new(run.start, run.count + right.count);
                self.update::<BySpace>(&AgBlock(right.start), &extent(joined))?;
                let rest = self.change_size(right, joined);
                self.handle.or_abort(rest)?;
            }
            (Some(left), Some(right)) => {
                let joined = Run::new(left.start, left.count + run.count + right.count);
                self.delete::<BySpace>(&AgBlock(right.start))?;
                let rest = self
                    .update::<BySpace>(&AgBlock(left.start), &extent(joined))
                    .and_then(|()| self.delete_size(right))
                    .and_then(|()| self.change_size(left, joined));
                self.handle.or_abort(rest)?;
            }
        }
        self.note_free_blocks();
        Ok(())
    }

    /// Inserts an extent into the tree by size, and into the group in memory.
    fn insert_size(&mut self, run: Run) -> Result<()> {
        self.insert::<BySize>(&extent(run))?;
        self.state().blocks().space.disk.insert(run);
        Ok(())
    }

    /// Deletes one from there.
    fn delete_size(&mut self, run: Run) -> Result<()> {
        self.delete::<BySize>(&(run.count, AgBlock(run.start)))?;
        self.state().blocks().space.disk.remove(run);
        Ok(())
    }

    /// Replaces one there: in its place, if the order allows it, which spares a descent and the blocks beside it.
    fn change_size(&mut self, old: Run, new: Run) -> Result<()> {
        if self.state().blocks().space.disk.keeps_rank(old, new) {
            self.update::<BySize>(&(old.count, AgBlock(old.start)), &extent(new))?;
            let disk = &mut self.state().blocks().space.disk;
            disk.remove(old);
            disk.insert(new);
            return Ok(());
        }
        self.delete_size(old)?;
        self.insert_size(new)
    }

    /// Brings the header's counts up to date with the trees.
    fn note_free_blocks(&mut self) {
        let disk = &self.state().blocks().space.disk;
        let (blocks, longest) = (disk.blocks() as u32, disk.longest());
        let agf = self.agf_mut();
        agf.agf_freeblks.set(blocks);
        agf.agf_longest.set(longest);
    }
}

fn extent(run: Run) -> FreeExtent {
    FreeExtent { start: AgBlock(run.start), count: run.count }
}
