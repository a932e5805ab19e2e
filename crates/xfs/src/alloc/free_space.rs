//! A group's free space in memory: what the trees have, and what of it may be given out.
//!
//! The trees on the disk have every free block. Of these, some may not be given out:
//!
//! - blocks that a transaction freed that is not durable yet. A crash would bring their old owner back;
//! - blocks that are [held](super::Held) for data that is about to be written to them.
//!
//! The rest is *available*: a second set of runs, so that a search never meets what it cannot take. Both sets are loaded
//! from the tree by place when the group's blocks are first used, which also validates it: runs rise and do not
//! overlap, their sum and the longest are what the header says, and no block of the filesystem itself is among them.

use std::collections::VecDeque;

use undercroft_vfs::Result;

use super::free_list::FreeList;
use super::runs::{Run, Runs};
use crate::ag::agf::RawAgf;
use crate::btree::{Btree, BySpace};
use crate::error::corrupt_block;
use crate::format::{AgBlock, AgNumber, FsBlock};
use crate::transaction::Tid;
use crate::volume::Volume;

/// Runs behind the goal, and before it, among which a search looks for one that is long enough.
const NEAR_RUNS: usize = 32;

/// Runs that are released while other threads wait for the group's lock.
const RELEASED_AT_ONCE: usize = 2048;

/// A group's free space in memory.
#[derive(Debug)]
pub(super) struct FreeSpace {
    /// The extents of the trees.
    pub(super) disk: Runs,
    /// Blocks of them that may be given out.
    pub(super) available: Runs,
    /// Blocks of them that transactions freed that are not durable yet, the oldest transaction first.
    freed: VecDeque<Freed>,
    /// Blocks of them by which the group has become longer, until the filesystem has durably grown.
    closed: Vec<Run>,
    /// Blocks in `freed` and in `closed`.
    pub(super) busy: u64,
    /// Blocks of them that are held.
    pub(super) held: u64,
    /// Blocks of the filesystem itself, which are never free: ranges that rise and do not touch.
    own: Vec<Run>,
}

/// What freed blocks were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Was {
    Data,
    /// May have been metadata, which the log cancels.
    Metadata,
    /// Of blocks of inodes the log has only those inodes that changed. A block that became a tree's in the transaction that
    /// freed it is not cancelled there, and a recovery would put such inodes into the tree's block.
    Inodes,
}

/// What a transaction freed, by what it was.
#[derive(Debug)]
struct Freed {
    tid: Tid,
    data: Vec<Run>,
    metadata: Vec<Run>,
    inodes: Vec<Run>,
}

impl Freed {
    fn pop(&mut self) -> Option<Run> {
        self.data.pop().or_else(|| self.metadata.pop()).or_else(|| self.inodes.pop())
    }
}

impl FreeSpace {
    /// Loads the free space of a group.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn load(volume: &Volume, number: AgNumber, agf: &RawAgf, list: &FreeList) -> Result<Self> {
        let own = own_blocks(volume, number);
        let root = AgBlock(agf.agf_bno_root.get());
        let tree: Btree<'_, BySpace> = Btree::in_ag(volume, number, root, agf.agf_bno_level.get())?;
        let at = volume.geometry().join(number, root).unwrap_or(FsBlock::NULL);
        let wrong = |detail: String| corrupt_block(<BySpace as crate::btree::Kind>::NAME, at, detail);
        let mut disk = Runs::default();
        let mut available = Runs::default();
        tree.for_each(|extent| {
            let run = Run { start: extent.start.0, count: extent.count };
            if let Some(own) = overlap(&own, run) {
                return Err(wrong(format!(
                    "has {} free blocks at {}; {} to {} are the filesystem's own",
                    run.count,
                    run.start,
                    own.start,
                    own.end() - 1
                )));
            }
            disk.insert(run);
            available.give(run);
            Ok(())
        })?;
        let (stated, longest) = (agf.agf_freeblks.get(), agf.agf_longest.get());
        if disk.blocks() != u64::from(stated) || disk.longest() != longest {
            return Err(wrong(format!(
                "has {} free blocks, of which {} lie together; the group's header says {stated} and {longest}",
                disk.blocks(),
                disk.longest()
            )));
        }
        let roots = [agf.agf_bno_root, agf.agf_cnt_root, agf.agf_rmap_root, agf.agf_refcount_root];
        for block in list.blocks().chain(roots.iter().map(|root| AgBlock(root.get()))) {
            if let Some(run) = disk.containing(block.0) {
                let detail =
                    format!("has {} free blocks at {}; block {block} is in use", run.count, run.start);
                return Err(wrong(detail));
            }
        }
        for block in list.blocks() {
            if overlap(&own, Run::new(block.0, 1)).is_some() {
                let detail = format!("block {block} of the free list is one of the filesystem's own");
                return Err(crate::error::corrupt("free list (AGFL)", detail));
            }
        }
        Ok(Self { disk, available, freed: VecDeque::new(), closed: Vec::new(), busy: 0, held: 0, own })
    }

    /// Whether any of these blocks is one of the filesystem's own, which nothing may free.
    pub(super) fn own(&self, run: Run) -> Option<Run> {
        overlap(&self.own, run)
    }

    /// Blocks that the running transaction freed.
    pub(super) fn add_freed(&mut self, tid: Tid, run: Run, was: Was) {
        if self.freed.back().is_none_or(|last| last.tid != tid) {
            self.freed.push_back(Freed { tid, data: Vec::new(), metadata: Vec::new(), inodes: Vec::new() });
        }
        let Some(freed) = self.freed.back_mut() else { unreachable!("it was just added") };
        let runs = match was {
            Was::Data => &mut freed.data,
            Was::Metadata => &mut freed.metadata,
            Was::Inodes => &mut freed.inodes,
        };
        match runs.last_mut() {
            Some(last) if last.end() == run.start => last.count += run.count,
            Some(last) if run.end() == last.start => {
                *last = Run { start: run.start, count: run.count + last.count }
            }
            _ => runs.push(run),
        }
        self.busy += u64::from(run.count);
    }

    /// Blocks that the trees have and that may not be given out before [`open`](Self::open): the group has become longer.
    pub(super) fn add_closed(&mut self, run: Run) {
        self.closed.push(run);
        self.busy += u64::from(run.count);
    }

    /// They may be.
    pub(super) fn open(&mut self) {
        for run in std::mem::take(&mut self.closed) {
            self.busy -= u64::from(run.count);
            self.available.give(run);
        }
    }

    /// A transaction and all before it are durable: what they freed may be given out. Stops after a number of runs;
    /// whether that was all.
    pub(super) fn release(&mut self, tid: Tid) -> bool {
        for _ in 0..RELEASED_AT_ONCE {
            let Some(freed) = self.freed.front_mut().filter(|freed| freed.tid <= tid) else { return true };
            match freed.pop() {
                Some(run) => {
                    self.busy -= u64::from(run.count);
                    self.available.give(run);
                }
                None => drop(self.freed.pop_front()),
            }
        }
        false
    }

    /// Up to `most` runs that a transaction and those before it freed, all of which are durable. They stay busy until they are
    /// [given out](Self::give_durable).
    pub(super) fn take_durable(&mut self, tid: Tid, most: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        while runs.len() < most
            && let Some(freed) = self.freed.front_mut().filter(|freed| freed.tid <= tid)
        {
            match freed.pop() {
                Some(run) => runs.push(run),
                None => drop(self.freed.pop_front()),
            }
        }
        runs
    }

    /// A run that was taken so may be given out.
    pub(super) fn give_durable(&mut self, run: Run) {
        self.busy -= u64::from(run.count);
        self.available.give(run);
    }

    /// Runs that transactions freed that are not durable yet, those that were data first. The group's own trees may take
    /// blocks of them: they go home only after those transactions are durable, and the log does not cancel what is
    /// metadata again in the same transaction. Not blocks of inodes: see [`Was::Inodes`].
    pub(super) fn freed_runs(&self) -> impl Iterator<Item = Run> + '_ {
        let data = self.freed.iter().rev().flat_map(|freed| freed.data.iter().rev());
        let metadata = self.freed.iter().rev().flat_map(|freed| freed.metadata.iter().rev());
        data.chain(metadata).copied()
    }

    /// Whether the group's own trees may take so many blocks.
    pub(super) fn has_for_trees(&self, blocks: u64) -> bool {
        let mut missing = blocks.saturating_sub(self.available.blocks());
        let mut freed = self.freed_runs();
        while missing > 0
            && let Some(run) = freed.next()
        {
            missing = missing.saturating_sub(run.count.into());
        }
        missing == 0
    }

    /// Takes blocks out of one of [those runs](Self::freed_runs). `false` if none of them has the blocks.
    pub(super) fn take_freed(&mut self, run: Run) -> bool {
        let runs = self.freed.iter_mut().rev().flat_map(|freed| [&mut freed.data, &mut freed.metadata]);
        for runs in runs {
            let holds = |whole: &Run| whole.start <= run.start && run.end() <= whole.end();
            let Some(at) = runs.iter().rposition(holds) else { continue };
            let whole = runs[at];
            let left = Run::new(whole.start, run.start - whole.start);
            let right = Run::new(run.end(), whole.end() - run.end());
            let rest = [left, right].into_iter().filter(|rest| rest.count > 0);
            runs.splice(at..=at, rest);
            self.busy -= u64::from(run.count);
            return true;
        }
        false
    }

    /// Up to `most` available blocks that lie together.
    ///
    /// At the goal itself whatever is there; else a run of `most` blocks near the goal; else the shortest run that has
    /// them; else the longest.
    pub(super) fn find(&self, goal: u32, most: u32) -> Option<Run> {
        let cut = |run: Run| Run { start: run.start, count: run.count.min(most) };
        if let Some(run) = self.available.containing(goal) {
            let rest = Run { start: goal, count: run.end() - goal };
            return Some(cut(rest));
        }
        let behind = self.available.from(goal).take(NEAR_RUNS).find(|run| run.count >= most);
        let before = || self.available.before(goal).take(NEAR_RUNS).find(|run| run.count >= most);
        let by_size = || self.available.at_least(most).next();
        let longest = || self.available.by_falling_size().next();
        behind.or_else(before).or_else(by_size).or_else(longest).map(cut)
    }

    /// `count` available blocks whose first is a multiple of `align` and lies in `within`, near `goal`.
    pub(super) fn find_aligned(
        &self,
        goal: u32,
        count: u32,
        align: u32,
        within: &std::ops::Range<u32>,
    ) -> Option<Run> {
        let fits = |run| fit(run, count, align, within);
        self.find_roomy(goal, count, align, within).or_else(|| self.available.at_least(count).find_map(fits))
    }

    /// Up to `most` available blocks whose first is a multiple of `align`, near `goal`: as Linux has it, `align` fewer are
    /// taken rather than others.
    pub(super) fn find_striped(&self, goal: u32, most: u32, align: u32) -> Option<Run> {
        let all = 0..u32::MAX;
        let fewer = most.checked_sub(align).filter(|&fewer| fewer >= align);
        let of = |count| self.find_roomy(goal, count, align, &all);
        of(most).or_else(|| of(fewer?))
    }

    /// As [`find_aligned`](Self::find_aligned), without runs that may begin in the wrong place, unless they are near.
    fn find_roomy(&self, goal: u32, count: u32, align: u32, within: &std::ops::Range<u32>) -> Option<Run> {
        let fits = |run| fit(run, count, align, within);
        let at_goal = || {
            let run = self.available.containing(goal)?;
            fits(Run { start: goal, count: run.end() - goal }).or_else(|| fits(run))
        };
        let behind = || self.available.from(goal).take(NEAR_RUNS).find_map(fits);
        let before = || self.available.before(goal).take(NEAR_RUNS).find_map(fits);
        let roomy = || {
            let room = count.saturating_add(align.max(1) - 1);
            self.available.at_least(room).find_map(fits)
        };
        at_goal().or_else(behind).or_else(before).or_else(roomy)
    }
}

/// The first `count` blocks of a run from a multiple of `align` on that lies in `within`.
fn fit(run: Run, count: u32, align: u32, within: &std::ops::Range<u32>) -> Option<Run> {
    let start = run.start.max(within.start).checked_next_multiple_of(align.max(1))?;
    let end = start.checked_add(count)?;
    (start < within.end && end <= run.end()).then_some(Run { start, count })
}

/// The part of the filesystem itself that lies in a group and never moves: the headers and the log.
fn own_blocks(volume: &Volume, number: AgNumber) -> Vec<Run> {
    let (superblock, geometry) = (volume.superblock(), volume.geometry());
    let mut own = vec![Run::new(0, geometry.ag_header_blocks())];
    if let Some(start) = superblock.log_start()
        && !superblock.has_external_log()
        && let Some((ag, within)) = geometry.split(start)
        && ag == number
    {
        let count = superblock.log_blocks().min(geometry.ag_len(ag) - within.0);
        own.push(Run::new(within.0, count));
    }
    own
}

fn overlap(own: &[Run], run: Run) -> Option<Run> {
    own.iter().copied().find(|own| own.start < run.end() && run.start < own.end())
}
