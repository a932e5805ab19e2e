//! Filling and shortening a group's free list.
//!
//! The list is filled before each change of the free space trees. If the group has too few free blocks, the list stays
//! short; that is safe, because the trees of a group with few free extents do not grow.
//!
//! Filling the list also changes these trees, and they take new blocks from the list. So a short list is filled only with
//! free runs whose removal adds no record, or for whose records the list has enough blocks. Lists are short in groups that
//! another implementation filled.

use undercroft_vfs::{Error, Result};

use super::changing::ChangingGroup;
use super::free_list::{Entry, needed};
use super::group::GroupBlocks;
use super::runs::Run;
use super::*;
use crate::btree::{BySize, BySpace, RmapBt, RmapKey};
use crate::format::AgBlock;

/// Blocks more than needed that the list may have before it is shortened.
const SLACK: u32 = 12;

/// Runs among which a block for the list is looked for.
const CANDIDATES: usize = 32;

/// Blocks that the list is shortened by at a time, unless it is nearly full.
const SHORTEN_BY: u32 = 4;

impl ChangingGroup<'_> {
    /// Makes the free list as long as the trees may need for one change of each. Called before each change of the trees of
    /// free space and of reverse mappings. While the list is being filled it does nothing.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn fill_list(&mut self) -> Result<()> {
        let has_rmap = self.volume().superblock().features().has_rmapbt();
        let state = self.loaded()?;
        let needed = needed(&state.agf, has_rmap);
        let list = &mut state.blocks().list;
        let is_long = list.entries.len() as u32 > needed + SLACK;
        if list.is_adjusting || list.usable() >= needed && !is_long {
            return Ok(());
        }
        list.is_adjusting = true;
        let mut adjusted = if is_long { self.shorten_list(needed) } else { Ok(()) };
        if adjusted.is_ok() {
            // Also after it was shortened: what was freed may have made the trees grow into it.
            adjusted = self.lengthen_list(needed);
        }
        self.state().blocks().list.is_adjusting = false;
        // What it has changed by then is consistent only together.
        self.handle.or_abort(adjusted)
    }

    /// Fills the list from the shortest runs, which are often taken whole. Ends early where nothing is left that can be
    /// taken with the blocks that the list has.
    fn lengthen_list(&mut self, needed: u32) -> Result<()> {
        loop {
            let list = &self.state().blocks().list;
            // One that is long has enough with those that are not usable.
            let room = list.capacity.min(needed + SLACK).saturating_sub(list.entries.len() as u32);
            let missing = needed.saturating_sub(list.usable()).min(room);
            if missing == 0 {
                return Ok(());
            }
            let Some(run) = self.run_for_list(missing, needed)? else { return Ok(()) };
            self.take_free(run);
            self.remove_extent(run)?;
            for block in run.start..run.end() {
                let state = self.state_and_agf_changed();
                let (agf, list) = state.agf_and_list();
                if !list.push(agf, Entry { block, cancelled_in: None }) {
                    return Err(self.list_is_full());
                }
            }
            self.note_owner(AgBlock(run.start), run.count, Owner::FreeSpace)?;
        }
    }

    /// Up to `missing` free blocks for the list, which is to have `needed`: of the shortest run, or where taking them
    /// could make the trees grow by more than the list has, another. Blocks that are not durably free only as far as the
    /// list is too short with those that are not usable.
    pub(super) fn run_for_list(&mut self, missing: u32, needed: u32) -> Result<Option<Run>> {
        let GroupBlocks { list, space } = self.state().blocks();
        let short = needed.saturating_sub(list.entries.len() as u32);
        let shortest = space.available.at_least(1).take(CANDIDATES);
        let longest = space.available.by_falling_size().take(CANDIDATES);
        let available = shortest.chain(longest).map(|run| (run, missing));
        let freed = space.freed_runs().take(CANDIDATES).map(|run| (run, short.min(missing)));
        let mut candidates = Vec::new();
        for (run, most) in available.chain(freed).filter(|(_, most)| *most > 0) {
            let whole = space.disk.containing(run.start).unwrap_or(run);
            let count = run.count.min(most);
            candidates.push(Run::new(run.start, count));
            // The end of the extent that the trees have.
            if run.start > whole.start && run.end() == whole.end() {
                candidates.push(Run::new(run.end() - count, count));
            }
        }
        for run in candidates {
            if self.list_suffices_to_take(run, run.count)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// Whether the list has the blocks that the trees may need when `run` is taken out of them, and belongs to something
    /// then; `gained` of its blocks come to the list between the two.
    pub(super) fn list_suffices_to_take(&mut self, run: Run, gained: u32) -> Result<bool> {
        let Some(len) = self.short_list()? else { return Ok(true) };
        let disk = &self.state().blocks().space.disk;
        let Some(whole) = disk.containing(run.start) else { return Ok(false) };
        let left = (whole.start < run.start).then(|| Run::new(whole.start, run.start - whole.start));
        let right = (run.end() < whole.end()).then(|| Run::new(run.end(), whole.end() - run.end()));
        let is_one_block = self.agf().agf_cnt_level.get() == 1;
        let growth = match (left, right) {
            (None, None) => 0,
            // A record goes, and one comes.
            (Some(_), None) | (None, Some(_)) if is_one_block => 0,
            (Some(rest), None) | (None, Some(rest)) => self.growth_by_size(rest, 1)?,
            (Some(left), Some(right)) => {
                let by_space = self.tree::<BySpace>()?.growth_at(&AgBlock(right.start), 1)?;
                let by_size = if is_one_block {
                    self.growth_by_size(left, 1)?
                } else {
                    self.growth_by_size(left, 2)? + self.growth_by_size(right, 2)?
                };
                by_space + by_size
            }
        };
        Ok(len >= growth && len - growth + gained >= self.growth_of_owners(run)?)
    }

    /// Whether the list has the blocks that the trees may need when `run`, which belongs to something, becomes free.
    pub(super) fn list_suffices_to_free(&mut self, run: Run) -> Result<bool> {
        self.list_suffices_to_free_all(&[run])
    }

    /// The same for several runs, all of which become free.
    pub(super) fn list_suffices_to_free_all(&mut self, runs: &[Run]) -> Result<bool> {
        let Some(len) = self.short_list()? else { return Ok(true) };
        let mut growth = 0;
        for run in runs {
            growth += self.growth_to_free(*run, runs.len())?;
        }
        Ok(len >= growth)
    }

    /// What the trees grow by at most when this run becomes free, and others near it: `records` in all.
    fn growth_to_free(&mut self, run: Run, records: usize) -> Result<u32> {
        let by_space = self.tree::<BySpace>()?.growth_at(&AgBlock(run.start), records)?;
        let (left, right) = self.state().blocks().space.disk.neighbours(run);
        let start = left.map_or(run.start, |left| left.start);
        let end = right.map_or(run.end(), Run::end);
        let by_size = self.growth_by_size(Run::new(start, end - start), records)?;
        Ok(by_space + by_size + self.growth_of_owners(run)?)
    }

    /// The length of the list if that is less than the trees can need at most.
    pub(super) fn short_list(&mut self) -> Result<Option<u32>> {
        let has_rmap = self.volume().superblock().features().has_rmapbt();
        let state = self.loaded()?;
        let most = needed(&state.agf, has_rmap);
        let len = state.blocks().list.entries.len() as u32;
        Ok((len < most).then_some(len))
    }

    fn growth_by_size(&mut self, run: Run, records: usize) -> Result<u32> {
        self.tree::<BySize>()?.growth_at(&(run.count, AgBlock(run.start)), records)
    }

    /// What a change of the owner of blocks adds to the reverse map.
    fn growth_of_owners(&mut self, run: Run) -> Result<u32> {
        if !self.volume().superblock().features().has_rmapbt() {
            return Ok(0);
        }
        let key = RmapKey { start: AgBlock(run.start), owner: 0, offset: 0 };
        self.tree::<RmapBt>()?.growth_at(&key, 2)
    }

    /// Frees blocks that the list has too many of: first those that are not usable.
    fn shorten_list(&mut self, needed: u32) -> Result<()> {
        for n in 0.. {
            let (agf, list) = self.state_and_agf_changed().agf_and_list();
            let is_busy = |entry: &Entry| entry.cancelled_in.is_some();
            let len = list.entries.len() as u32;
            if len <= needed || n >= SHORTEN_BY && len < list.capacity / 4 * 3 {
                return Ok(());
            }
            let any_busy = list.busy > 0;
            let Some(entry) = list.pop(agf, |entry| !any_busy || is_busy(entry)) else { return Ok(()) };
            let run = Run::new(entry.block, 1);
            self.note_no_owner(AgBlock(entry.block), 1, Owner::FreeSpace)?;
            self.insert_extent(run)?;
            // Also one that no transaction cancelled: it may have come here as data that this transaction freed.
            self.add_freed(run, Was::Metadata);
        }
        Ok(())
    }

    /// Takes a block from the list for a tree: one that has just left a tree where there is no other.
    pub(super) fn take_from_list(&mut self) -> Result<AgBlock> {
        self.loaded()?;
        let (agf, list) = self.state_and_agf_changed().agf_and_list();
        let all_busy = list.usable() == 0;
        let entry = list.pop(agf, |entry| all_busy || entry.cancelled_in.is_none());
        entry.map(|entry| AgBlock(entry.block)).ok_or(Error::NoSpace)
    }

    /// Puts a tree's block, which has been forgotten, on the list.
    pub(super) fn put_on_list(&mut self, block: AgBlock) -> Result<()> {
        self.loaded()?;
        let tid = self.tid();
        let (agf, list) = self.state_and_agf_changed().agf_and_list();
        if list.blocks().any(|other| other == block) {
            let detail = format!("block {block} of group {} is on the list and in a tree", self.number());
            return Err(crate::error::corrupt("free list (AGFL)", detail));
        }
        if !list.push(agf, Entry { block: block.0, cancelled_in: Some(tid) }) {
            return Err(self.list_is_full());
        }
        self.release_when_durable();
        Ok(())
    }

    fn list_is_full(&self) -> Error {
        let detail = format!("that of group {} has no room for another block", self.number());
        crate::error::corrupt("free list (AGFL)", detail)
    }
}
