//! Blocks: found near a goal, reserved, given out and freed.
//!
//! A search begins at the goal: the blocks there, then a run in the goal's group, then the next group that may have a
//! run as long as is wanted, then groups that may have half of it, and so on. A group that `orders` rules out is passed
//! over without taking its lock.

use std::ops::Range;
use std::sync::Arc;

use undercroft_sync::atomic::Ordering;
use undercroft_sync::thread_number;
use undercroft_vfs::{Error, FileType, Result};

use super::bits::FreeMap;
use super::group::{BlocksGuard, Freed, GroupCell};
use super::inode_map::SLOTS;
use super::{Allocator, Purpose, Reservation};
use crate::error::corrupt_block;
use crate::inode::Inode;
use crate::numbers::{FsBlock, Group};
use crate::transaction::{Handle, Tid};
use crate::volume::Volume;

/// Free blocks at the goal that are taken although more are wanted and another place may have as many.
const GOOD_RUN: u32 = 32;

/// Runs that are looked at in a group before less than all that is wanted will do.
const LOOKS: u32 = 64;

/// When blocks are freed, the length of their run is measured this far to either side. A longer run counts as if all
/// free blocks of the group were one run; a failed search corrects that.
const LOOKED_AROUND: u32 = 2048;

impl Allocator {
    /// Gives out 1 to `want` blocks that lie together, near `goal`. Changes
    /// [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace); corruption, when only damaged groups are left; I/O failure. Nothing has changed
    /// then.
    pub(crate) fn allocate(
        &self,
        handle: &Handle<'_>,
        goal: FsBlock,
        want: u64,
        purpose: Purpose,
    ) -> Result<(FsBlock, u64)> {
        let volume = handle.volume();
        let want = self.room_for(want, purpose)?;
        let (cell, mut blocks, range) = self.find(volume, goal, want, 1)?;
        self.mark_dirty(handle, cell.number)?;
        cell.occupy(handle, &mut blocks, range.clone())?;
        self.take_from_map(cell, &mut blocks, range.clone());
        Ok((FsBlock(cell.absolute(&range).start), u64::from(range.end - range.start)))
    }

    /// Reserves `min` to `want` consecutive blocks, in memory only. No other caller gets them.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub(crate) fn reserve(
        self: &Arc<Self>,
        volume: &Volume,
        goal: FsBlock,
        want: u64,
        min: u64,
    ) -> Result<Reservation> {
        let want = self.room_for(want.max(min), Purpose::Data)?;
        let Ok(min) = u32::try_from(min.max(1)) else { return Err(Error::NoSpace) };
        if want < min {
            return Err(Error::NoSpace);
        }
        let (cell, mut blocks, range) = self.find(volume, goal, want, min)?;
        self.take_from_map(cell, &mut blocks, range.clone());
        let first = FsBlock(cell.absolute(&range).start);
        Ok(Reservation { allocator: Arc::clone(self), first, len: u64::from(range.end - range.start) })
    }

    /// Gives out the first `count` blocks of a reservation, which has as many. Changes
    /// [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then.
    pub(crate) fn take(
        &self,
        handle: &Handle<'_>,
        reservation: &mut Reservation,
        count: u64,
    ) -> Result<FsBlock> {
        assert!(count <= reservation.len, "{count} blocks are taken of {reservation:?}");
        let first = reservation.first;
        let (cell, range) = self.place(first, count);
        self.mark_dirty(handle, cell.number)?;
        cell.occupy(handle, &mut cell.relock_blocks(), range)?;
        reservation.first = FsBlock(first.0 + count);
        reservation.len -= count;
        Ok(first)
    }

    /// Gives out these very blocks, which the caller has chosen. Changes
    /// [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks for each group that they touch.
    ///
    /// # Errors
    /// Corruption: some of them are in use, part of the filesystem itself, or not in it; I/O failure. Nothing has
    /// changed then, unless the blocks are in several groups.
    pub(crate) fn claim(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        self.check_usable(handle.volume(), first, count, "claimed")?;
        self.by_group(first, count, |cell, range| {
            let mut blocks = cell.lock_blocks(handle.volume())?;
            if !blocks.map().all_free(range.clone()) {
                let detail = format!("{} blocks from here on are claimed, but not all are free", range.len());
                return Err(corrupt_block("block bitmap", FsBlock(cell.absolute(&range).start), detail));
            }
            self.mark_dirty(handle, cell.number)?;
            cell.occupy(handle, &mut blocks, range.clone())?;
            self.take_from_map(cell, &mut blocks, range);
            Ok(())
        })
    }

    /// Frees blocks. They are not given out before the transaction is durable. Changes
    /// [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks for each group that they touch.
    ///
    /// # Errors
    /// Corruption: they are not in use, not in the filesystem, or part of the filesystem itself. I/O failure. Nothing
    /// has changed then, unless the blocks are in several groups.
    pub(crate) fn free(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        self.check_usable(handle.volume(), first, count, "freed")?;
        self.by_group(first, count, |cell, range| self.free_in_group(handle, cell, range))
    }

    fn check_usable(&self, volume: &Volume, first: FsBlock, count: u64, what: &str) -> Result<()> {
        let no_files = || {
            let detail = format!("{count} blocks from here on are {what}, but they are no file's");
            Err(corrupt_block("block number", first, detail))
        };
        if !volume.superblock().geometry().contains(first, count) {
            return no_files();
        }
        self.by_group(first, count, |cell, range| if cell.is_own(&range) { no_files() } else { Ok(()) })
    }

    /// Goes through blocks group by group.
    pub(super) fn by_group(
        &self,
        first: FsBlock,
        count: u64,
        mut each: impl FnMut(&GroupCell, Range<u32>) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < count {
            let at = FsBlock(first.0 + done);
            let cell = self.cell_of(at);
            let offset = (at.0 - cell.start.0) as u32;
            let here = (count - done).min(u64::from(cell.len() - offset)) as u32;
            each(cell, offset..offset + here)?;
            done += u64::from(here);
        }
        Ok(())
    }

    fn free_in_group(&self, handle: &Handle<'_>, cell: &GroupCell, range: Range<u32>) -> Result<()> {
        let mut blocks = match cell.lock_blocks(handle.volume()) {
            Ok(blocks) => blocks,
            Err(error @ Error::Corrupt(_)) => {
                // Blocks of a damaged group are not freed, and the file is deleted all the same: e2fsck finds unused
                // blocks.
                self.note_damage(cell, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.mark_dirty(handle, cell.number)?;
        cell.vacate(handle, &mut blocks, range.clone())?;
        self.pending.add(i64::from(range.end - range.start));
        let tid = handle.tid();
        let known = blocks.freed.last().is_some_and(|freed| freed.tid == tid);
        blocks.freed.push(Freed { tid, range });
        drop(blocks);
        if !known {
            let group = cell.number;
            handle.after_commit(move |mounted| {
                if let Ok(writer) = mounted.writer() {
                    writer.allocator.release(mounted, group, tid);
                }
            });
        }
        Ok(())
    }

    /// What transactions up to `tid`, which is durable, have freed in a group can be given out.
    fn release(&self, volume: &Volume, group: Group, tid: Tid) {
        let cell = &self.cells[group.0 as usize];
        let freed: Vec<Range<u32>> = {
            let mut blocks = cell.relock_blocks();
            blocks.freed.extract_if(.., |freed| freed.tid <= tid).map(|freed| freed.range).collect()
        };
        if self.discards {
            for range in &freed {
                super::trim::discard(volume, cell.absolute(range));
            }
        }
        let mut blocks = cell.relock_blocks();
        for range in freed {
            self.pending.add(-i64::from(range.end - range.start));
            self.give_to_map(cell, &mut blocks, range);
        }
    }

    /// Blocks that are free on disk in the running transaction, or one that is being committed, and can be given out
    /// when it is durable. If there are some, a caller that finds no space commits and tries again.
    pub(crate) fn freed_pending(&self) -> u64 {
        self.pending.sum()
    }

    /// Free blocks that are not set aside, those among them that can be given out after the next commit.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free.sum() + self.pending.sum()
    }

    /// Blocks that ordinary data does not get.
    #[cfg(test)]
    pub(crate) fn held_back(&self) -> u64 {
        self.held_back.load(Ordering::Relaxed)
    }

    /// The purpose of a block for a directory, a symbolic link's target or attributes. The calling user is not known
    /// here, so the inode's permissions decide: the reserved blocks are for inodes that only the reserving user, and
    /// users exempt from permissions, can change.
    pub(crate) fn purpose_for(&self, inode: &Inode) -> Purpose {
        const WRITE_BY_OTHERS: u16 = 0o022;
        let others = inode.kind != FileType::Symlink && inode.permissions & WRITE_BY_OTHERS != 0;
        if inode.uid == self.reserved_for && !others { Purpose::Reserved } else { Purpose::Data }
    }

    /// Where the blocks of a new file go: near its inode, and for each thread to another part of the group.
    pub(crate) fn goal_for(&self, volume: &Volume, inode: u32, kind: FileType) -> FsBlock {
        let group = (inode.max(1) - 1) / volume.superblock().geometry().inodes_per_group();
        let mut group = group.min(self.cells.len() as u32 - 1);
        let flex_groups = self.flex_groups();
        if flex_groups >= 4 && kind != FileType::Directory {
            // The first group of a flex group holds the tables of all, and then directories.
            let first = group / flex_groups * flex_groups;
            if group == first && first + 1 < self.cells.len() as u32 {
                group = first + 1;
            }
        }
        let cell = &self.cells[group as usize];
        let slot = thread_number() % SLOTS;
        let cursor = cell.cursors[slot].load(Ordering::Relaxed);
        let part = cell.len() / SLOTS as u32 * slot as u32;
        FsBlock(cell.start.0 + u64::from(if cursor == 0 { part } else { cursor % cell.len() }))
    }

    /// How many of `want` blocks may be given out for `purpose`.
    fn room_for(&self, want: u64, purpose: Purpose) -> Result<u32> {
        let held = match purpose {
            Purpose::Data => self.held_back.load(Ordering::Relaxed),
            Purpose::Reserved => self.kept_for_maps.load(Ordering::Relaxed),
            Purpose::Metadata => 0,
        };
        let want = want.clamp(1, u64::from(u32::MAX));
        if self.free.is_at_least(held + want) {
            return Ok(want as u32);
        }
        match self.free.sum().saturating_sub(held).min(want) {
            0 => Err(Error::NoSpace),
            room => Ok(room as u32),
        }
    }

    /// Finds `least` to `want` free blocks and leaves their group locked.
    fn find(
        &self,
        volume: &Volume,
        goal: FsBlock,
        want: u32,
        least: u32,
    ) -> Result<(&GroupCell, BlocksGuard<'_>, Range<u32>)> {
        let geometry = volume.superblock().geometry();
        let goal = FsBlock(goal.0.clamp(u64::from(geometry.first_data_block()), geometry.blocks() - 1));
        let home = self.cell_of(goal);
        let mut hunt = Hunt { allocator: self, volume, want, min: least, damage: None };
        let at_goal = Some((goal.0 - home.start.0) as u32);
        if home.longest.load(Ordering::Relaxed) >= want.min(GOOD_RUN).max(least)
            && let Some((blocks, range)) = hunt.look(home, at_goal, want)
        {
            return Ok((home, blocks, range));
        }
        // First the groups that must have all that is wanted, then those that may have half of it, and so on.
        let mut wanted = want;
        loop {
            let surely = wanted == want && wanted > least;
            let order = if surely { wanted.next_power_of_two().ilog2() } else { wanted.ilog2() };
            for group in self.orders.around(order, home.number.0) {
                let cell = &self.cells[group as usize];
                let from = at_goal.filter(|_| group == home.number.0);
                if let Some((blocks, range)) = hunt.look(cell, from, wanted) {
                    return Ok((cell, blocks, range));
                }
            }
            if wanted <= least {
                return Err(hunt.damage.unwrap_or(Error::NoSpace));
            }
            wanted = (wanted.next_power_of_two() / 2).max(least);
        }
    }

    /// A run of a group of at least `least` blocks; where it goes on from the goal, of a [good](GOOD_RUN) length and at
    /// least `min`.
    fn find_in(
        &self,
        cell: &GroupCell,
        blocks: &mut BlocksGuard<'_>,
        goal: Option<u32>,
        (want, least, min): (u32, u32, u32),
    ) -> Option<Range<u32>> {
        let map = blocks.map();
        let from = goal.unwrap_or_else(|| cell.cursors[thread_number() % SLOTS].load(Ordering::Relaxed));
        if goal.is_some() && map.is_free(from) {
            let run = map.run_from(from, want);
            if run >= want.min(GOOD_RUN).max(min) {
                return Some(from..from + run);
            }
        }
        if let Some(start) = self.aligned(cell, map, from, want) {
            return Some(start..start + want);
        }
        let found = map.search(from, want, least, LOOKS);
        let longest = found.map_or(0, |found| found.len);
        if found.is_none_or(|found| found.complete && found.len < want) {
            self.set_longest(cell, longest);
        }
        found.filter(|found| found.len >= least).map(|found| found.start..found.start + found.len)
    }

    /// Whole stripes begin where a stripe does, if the array's geometry is known and there is such a place.
    fn aligned(&self, cell: &GroupCell, map: &FreeMap, from: u32, want: u32) -> Option<u32> {
        let stripe = self.stripe;
        if stripe < 2 || want < stripe || !want.is_multiple_of(stripe) {
            return None;
        }
        let found = map.search(from, want + stripe - 1, 1, LOOKS)?;
        let first = cell.start.0 + u64::from(found.start);
        let skip = (first.next_multiple_of(u64::from(stripe)) - first) as u32;
        (found.len >= want + skip).then_some(found.start + skip)
    }

    pub(super) fn take_from_map(&self, cell: &GroupCell, blocks: &mut BlocksGuard<'_>, range: Range<u32>) {
        let count = range.end - range.start;
        cell.cursors[thread_number() % SLOTS].store(range.end, Ordering::Relaxed);
        blocks.map().take(range);
        let free = cell.free.load(Ordering::Relaxed) - count;
        cell.free.store(free, Ordering::Relaxed);
        self.free.add(-i64::from(count));
        if free < cell.longest.load(Ordering::Relaxed) {
            self.set_longest(cell, free);
        }
    }

    pub(super) fn give_to_map(&self, cell: &GroupCell, blocks: &mut BlocksGuard<'_>, range: Range<u32>) {
        let range = self.before_fence(cell, range);
        let count = range.end - range.start;
        if count == 0 {
            return;
        }
        let map = blocks.map();
        map.give(range.clone());
        let free = cell.free.load(Ordering::Relaxed) + count;
        cell.free.store(free, Ordering::Relaxed);
        self.free.add(i64::from(count));
        // No run is longer than what is free.
        let longest = cell.longest.load(Ordering::Relaxed);
        if longest < free {
            let run = map.run_around(range, LOOKED_AROUND);
            let may_be = if run > LOOKED_AROUND { free } else { run };
            self.set_longest(cell, longest.max(may_be));
        }
    }

    /// Notes how long the longest run of a group may be. Its blocks are locked.
    pub(super) fn set_longest(&self, cell: &GroupCell, longest: u32) {
        let before = cell.longest.load(Ordering::Relaxed);
        if before != longest {
            cell.longest.store(longest, Ordering::Relaxed);
            self.orders.change(cell.number.0, before, longest);
        }
    }

    /// Excludes a damaged group from searches and from the free counts.
    fn note_damage(&self, cell: &GroupCell, error: &Error) {
        if matches!(error, Error::Corrupt(_)) {
            let _blocks = cell.relock_blocks();
            self.set_longest(cell, 0);
            let free = cell.free.swap(0, Ordering::Relaxed);
            self.free.add(-i64::from(free));
            self.damaged.store(true, Ordering::Relaxed);
        }
    }

    /// Frees reserved blocks.
    pub(super) fn give_back(&self, first: FsBlock, count: u64) {
        if count > 0 {
            let (cell, range) = self.place(first, count);
            self.give_to_map(cell, &mut cell.relock_blocks(), range);
        }
    }

    /// The group of a range of blocks that lies in one.
    fn place(&self, first: FsBlock, count: u64) -> (&GroupCell, Range<u32>) {
        let cell = self.cell_of(first);
        let start = (first.0 - cell.start.0) as u32;
        (cell, start..start + count as u32)
    }
}

/// A search through several groups.
struct Hunt<'a, 'v> {
    allocator: &'a Allocator,
    volume: &'v Volume,
    want: u32,
    min: u32,
    /// Why a group could not be looked at: the answer where nothing else is found.
    damage: Option<Error>,
}

impl<'a> Hunt<'a, '_> {
    fn look(
        &mut self,
        cell: &'a GroupCell,
        goal: Option<u32>,
        least: u32,
    ) -> Option<(BlocksGuard<'a>, Range<u32>)> {
        match cell.lock_blocks(self.volume) {
            Ok(mut blocks) => {
                let lengths = (self.want, least, self.min);
                let range = self.allocator.find_in(cell, &mut blocks, goal, lengths)?;
                Some((blocks, range))
            }
            Err(error) => {
                self.allocator.note_damage(cell, &error);
                self.damage.get_or_insert(error);
                None
            }
        }
    }
}
