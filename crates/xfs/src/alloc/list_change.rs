//! Filling and shortening a group's free list.
//!
//! The list is filled before each change of the trees. Where the group has no more blocks it stays shorter: the trees of
//! a group with few free extents do not grow.

use undercroft_vfs::{Error, Result};

use super::changing::ChangingGroup;
use super::free_list::{Entry, needed};
use super::runs::Run;
use super::*;
use crate::format::AgBlock;

/// Blocks more than needed that the list may have before it is shortened.
const SLACK: u32 = 12;

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
        let (usable, total) = (list.usable(), list.entries.len() as u32);
        if list.is_adjusting || usable >= needed && total <= needed + SLACK {
            return Ok(());
        }
        list.is_adjusting = true;
        let mut adjusted = if usable < needed { Ok(()) } else { self.shorten_list(needed) };
        if adjusted.is_ok() {
            // Also after it was shortened: what was freed may have made the trees grow into it.
            adjusted = self.lengthen_list(needed);
        }
        self.state().blocks().list.is_adjusting = false;
        // What it has changed by then is consistent only together.
        self.handle.or_abort(adjusted)
    }

    /// Fills the list from the shortest runs, which are often taken whole. Ends early where nothing is left.
    fn lengthen_list(&mut self, needed: u32) -> Result<()> {
        loop {
            let blocks = self.state().blocks();
            let missing = needed.saturating_sub(blocks.list.usable());
            let room = blocks.list.capacity - blocks.list.entries.len() as u32;
            let missing = missing.min(room);
            if missing == 0 {
                return Ok(());
            }
            let shortest = blocks.space.available.at_least(1).next();
            let run = match shortest {
                Some(run) => {
                    let run = Run { start: run.start, count: run.count.min(missing) };
                    blocks.space.available.take(run);
                    run
                }
                None => match blocks.space.take_freed_data() {
                    Some(block) => Run::new(block, 1),
                    None => return Ok(()),
                },
            };
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
            self.add_freed(run, false);
        }
        Ok(())
    }

    /// Takes a block from the list for a tree.
    pub(super) fn take_from_list(&mut self) -> Result<AgBlock> {
        self.loaded()?;
        let (agf, list) = self.state_and_agf_changed().agf_and_list();
        let entry = list.pop(agf, |entry| entry.cancelled_in.is_none());
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
