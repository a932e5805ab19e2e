//! Blocks that are held in memory for data that is about to be written to them.
//!
//! They are free on the disk until they are taken, so a crash, or a write that fails, needs no undo. In memory they are
//! reserved, and no longer available to others.

use undercroft_vfs::{Error, Result};

use super::group::{Group, GroupState};
use super::runs::Run;
use super::space::{Place, Reach};
use super::*;
use crate::format::{AgBlock, AgNumber};
use crate::transaction::Tid;
use crate::writer::Mounted;

/// Free blocks that lie together, held in memory for data that is about to be written to them; free on the disk until
/// they are [taken](Allocator::take_held). Dropping it lets go of what is left.
#[derive(Debug)]
pub(crate) struct Held {
    allocator: Arc<Allocator>,
    number: AgNumber,
    /// The blocks in the group, and the first of them as the filesystem names it.
    run: Run,
    first: FsBlock,
}

impl Held {
    /// Blocks of a group that the caller has reserved, taken out of what is available, and counted as held.
    pub(super) fn of(allocator: &Arc<Allocator>, volume: &Volume, number: AgNumber, run: Run) -> Self {
        let first = volume.geometry().join(number, AgBlock(run.start)).unwrap_or(FsBlock::NULL);
        Self { allocator: Arc::clone(allocator), number, run, first }
    }

    /// The first block.
    pub(crate) fn first(&self) -> FsBlock {
        self.first
    }

    /// How many are left.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.run.count)
    }

    /// Splits off the blocks from number `at` on.
    pub(crate) fn split_off(&mut self, at: u64) -> Self {
        let kept = u32::try_from(at).unwrap_or(u32::MAX).min(self.run.count);
        let run = Run::new(self.run.start + kept, self.run.count - kept);
        self.run.count = kept;
        let first = FsBlock(self.first.0 + u64::from(kept));
        Self { allocator: Arc::clone(&self.allocator), number: self.number, run, first }
    }

    /// Lets go of the blocks, and gives the handle what was reserved for them: it takes others.
    pub(crate) fn give_to(mut self, handle: &Handle<'_>) {
        handle.add_space(self.len());
        self.release();
    }

    /// The blocks are available again. Their reservation stays.
    fn release(&mut self) {
        let run = std::mem::replace(&mut self.run, Run::new(0, 0));
        if run.count > 0
            && let Some(group) = self.allocator.groups.get(self.number.0 as usize)
        {
            let mut state = group.state.lock();
            let space = &mut state.blocks().space;
            space.held -= u64::from(run.count);
            space.available.give(run);
            group.publish(&state);
        }
    }

    fn cut_front(&mut self, count: u32) {
        self.run = Run::new(self.run.start + count, self.run.count - count);
        self.first.0 += u64::from(count);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let count = self.len();
        self.release();
        if count > 0 {
            self.allocator.unreserve(count);
        }
    }
}

impl Allocator {
    /// Holds up to `most` blocks that lie together, as near behind `goal` as there are any, or at a stripe near it. Reserves
    /// them. No handle is needed.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption; I/O failure.
    pub(crate) fn hold(self: &Arc<Self>, volume: &Volume, goal: impl Into<Goal>, most: u64) -> Result<Held> {
        let goal = goal.into();
        let reserved = self.reserve_some(1, most.clamp(1, u64::from(u32::MAX)));
        if reserved == 0 {
            return Err(Error::NoSpace);
        }
        let (first, within) = Self::goal(volume, goal.block);
        let most = reserved as u32;
        let found = self.search(most, |reach, at| {
            let number = self.number_after(first, at);
            let group = self.group(number)?;
            if !group.may_have(reach, at == 0) {
                return Ok(None);
            }
            let mut state = if at == 0 || !matches!(reach, Reach::Long(_)) {
                group.lock_blocks(volume)?
            } else {
                // Another group is as good as this one, and perhaps no thread works in it.
                let Some(locked) = group.try_lock_blocks(volume) else { return Ok(None) };
                locked?
            };
            let place = Place { block: within.0, goes_on: goal.goes_on, align: goal.align };
            let goal = if at == 0 { place } else { Place { block: 0, goes_on: false, ..place } };
            Ok(self.hold_in(group, &mut state, reach, goal, most).map(|run| (number, run)))
        });
        let (number, run) = match found {
            Ok(found) => found,
            Err(error) => {
                self.unreserve(reserved);
                return Err(error);
            }
        };
        self.unreserve(reserved - u64::from(run.count));
        Ok(Held::of(self, volume, number, run))
    }

    /// Holds `count` blocks that lie together, near `goal`, for a structure of so many, in a group whose trees can grow as
    /// taking them may need. Reserves them.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace), also where no group has so many together to spare; corruption; I/O
    /// failure.
    pub(crate) fn hold_together(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        goal: FsBlock,
        count: u32,
    ) -> Result<Held> {
        if !self.reserve(count.into()) {
            return Err(Error::NoSpace);
        }
        let volume = handle.volume();
        let (first, within) = Self::goal(volume, goal);
        let find = || -> Result<Option<(AgNumber, Run)>> {
            for at in 0..self.groups.len() {
                let number = self.number_after(first, at);
                if !self.group(number)?.may_have(Reach::Long(count), false) {
                    continue;
                }
                let mut group = self.change_group(handle, number)?;
                group.fill_list()?;
                let state = group.loaded()?;
                if state.spare() < u64::from(count) {
                    continue;
                }
                let goal = if at == 0 { within.0 } else { 0 };
                let found = state.blocks().space.find_aligned(goal, count, 1, &(0..u32::MAX));
                let Some(run) = found else { continue };
                if !group.list_suffices_to_take(run, 0)? {
                    continue;
                }
                let space = &mut group.state().blocks().space;
                space.available.take(run);
                space.held += u64::from(count);
                return Ok(Some((number, run)));
            }
            Ok(None)
        };
        let found = find();
        if !matches!(found, Ok(Some(_))) {
            self.unreserve(count.into());
        }
        let (number, run) = found?.ok_or(Error::NoSpace)?;
        Ok(Held::of(self, volume, number, run))
    }

    fn hold_in(
        &self,
        group: &Group,
        state: &mut GroupState,
        reach: Reach,
        goal: Place,
        most: u32,
    ) -> Option<Run> {
        let run = state.choose(reach, goal, most)?;
        let space = &mut state.blocks().space;
        space.available.take(run);
        space.held += u64::from(run.count);
        group.publish(state);
        Some(run)
    }

    /// Takes the first `count` held blocks for good. They belong to nothing yet: the caller enters them into a map.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace): the trees of free space could not grow as that may need, and nothing
    /// has changed; corruption; I/O failure.
    pub(crate) fn take_held(&self, handle: &Handle<'_>, held: &mut Held, count: u64) -> Result<FsBlock> {
        let first = held.first;
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(held.run.count);
        if count == 0 {
            return Err(Error::NoSpace);
        }
        let mut group = self.change_group(handle, held.number)?;
        group.fill_list()?;
        let run = Run::new(held.run.start, count);
        if !group.list_suffices_to_take(run, 0)? {
            return Err(Error::NoSpace);
        }
        // From here on they are not held, whatever comes of it: a failure aborts all changes.
        held.cut_front(count);
        group.state().blocks().space.held -= u64::from(count);
        group.taken_from_reservations += u64::from(count);
        let removed = group.remove_extent(run);
        handle.or_abort(removed)?;
        Ok(first)
    }

    /// A transaction is durable: what it freed in a group may be given out.
    pub(super) fn release(&self, mounted: &Mounted, number: AgNumber, tid: Tid) {
        if mounted.writer().is_ok_and(|writer| writer.options.discard) {
            self.discard_freed(mounted, number, tid);
        }
        let Some(group) = self.groups.get(number.0 as usize) else { return };
        let mut is_done = false;
        while !is_done {
            let mut state = group.state.lock();
            is_done = state.blocks.as_mut().is_none_or(|blocks| {
                blocks.list.release(tid);
                blocks.space.release(tid)
            });
            self.recount(group, &mut state, 0);
        }
    }
}
