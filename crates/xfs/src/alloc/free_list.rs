//! The free list (AGFL): blocks that the trees of free space and of reverse mappings grow into and shrink out of.
//!
//! A ring in a header's sector. A block that a tree puts there has been metadata, and the log cancels it with the running
//! transaction: it is not made metadata again before that transaction is durable. So the list has *usable* blocks and
//! others, and is filled until its usable ones are as many as one change of each tree may need. Those are twice as many
//! as the tree has levels: a change of one extent inserts at most two records into a tree, and the second meets the
//! blocks half full that the first has split.
//!
//! The list is filled before each change of the trees. Where the group has no more blocks it stays shorter: the trees of
//! a group with few free extents do not grow.

use std::collections::VecDeque;

use undercroft_vfs::{Error, Result};

use super::group::ChangingGroup;
use super::runs::Run;
use super::*;
use crate::ag::agf::RawAgf;
use crate::ag::{Agf, Agfl, agfl};
use crate::format::{AgBlock, AgNumber};
use crate::transaction::Tid;

/// Blocks more than needed that the list may have before it is shortened.
const SLACK: u32 = 12;

/// Blocks that the list is shortened by at a time, unless it is nearly full.
const SHORTEN_BY: u32 = 4;

/// The blocks on a group's free list.
#[derive(Debug)]
pub(super) struct FreeList {
    /// In the order of the ring.
    entries: VecDeque<Entry>,
    /// The place of the first in the ring.
    first: u32,
    /// Places in the ring.
    capacity: u32,
    /// Entries that are not usable yet.
    busy: u32,
    changed: bool,
    /// It is being filled or shortened, which changes trees.
    is_adjusting: bool,
}

/// A block on the list.
#[derive(Clone, Copy, Debug)]
struct Entry {
    block: u32,
    /// The transaction that cancelled it, until that is durable.
    cancelled_in: Option<Tid>,
}

impl FreeList {
    /// Loads the list of a group.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn load(volume: &Volume, number: AgNumber) -> Result<Self> {
        let agf = Agf::read(volume, number)?;
        let list = Agfl::read(volume, &agf)?;
        let mut sorted = list.blocks.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let detail = format!("group {number} has block {} twice", pair[0]);
            return Err(crate::error::corrupt("free list (AGFL)", detail));
        }
        let entries = list.blocks.iter().map(|block| Entry { block: block.0, cancelled_in: None }).collect();
        Ok(Self {
            entries,
            first: agf.raw().agf_flfirst.get(),
            capacity: Agfl::capacity(volume.geometry()),
            busy: 0,
            changed: false,
            is_adjusting: false,
        })
    }

    /// The blocks on the list.
    pub(super) fn blocks(&self) -> impl Iterator<Item = AgBlock> + '_ {
        self.entries.iter().map(|entry| AgBlock(entry.block))
    }

    /// Entries that are usable.
    pub(super) fn usable(&self) -> u32 {
        self.entries.len() as u32 - self.busy
    }

    /// Whether it has changed since this was asked last.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Writes the entries into the header's sector.
    pub(super) fn store(&self, sector: &mut [u8]) {
        for (n, entry) in self.entries.iter().enumerate() {
            let place = (self.first as usize + n) % self.capacity as usize;
            let at = size_of::<agfl::RawAgfl>() + place * 4;
            sector[at..at + 4].copy_from_slice(&entry.block.to_be_bytes());
        }
    }

    /// A transaction and all before it are durable.
    pub(super) fn release(&mut self, tid: Tid) {
        if self.busy == 0 {
            return;
        }
        for entry in &mut self.entries {
            if entry.cancelled_in.is_some_and(|cancelled| cancelled <= tid) {
                entry.cancelled_in = None;
                self.busy -= 1;
            }
        }
    }

    fn push(&mut self, agf: &mut RawAgf, entry: Entry) -> bool {
        if self.entries.len() >= self.capacity as usize {
            return false;
        }
        self.busy += u32::from(entry.cancelled_in.is_some());
        self.entries.push_back(entry);
        self.note_in(agf);
        true
    }

    /// Takes the first entry that `may_take`.
    fn pop(&mut self, agf: &mut RawAgf, may_take: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let at = self.entries.iter().position(may_take)?;
        self.entries.swap(0, at);
        let entry = self.entries.pop_front()?;
        self.busy -= u32::from(entry.cancelled_in.is_some());
        self.first = (self.first + 1) % self.capacity;
        self.note_in(agf);
        Some(entry)
    }

    /// Brings the header's fields of the list up to date.
    fn note_in(&mut self, agf: &mut RawAgf) {
        let count = self.entries.len() as u32;
        agf.agf_flfirst.set(self.first);
        agf.agf_fllast.set((self.first + count + self.capacity - 1) % self.capacity);
        agf.agf_flcount.set(count);
        self.changed = true;
    }
}

/// Blocks that a change of one extent may add to a tree of so many levels.
const fn growth(levels: u32) -> u32 {
    2 * levels
}

/// How many usable blocks the list is to have, as deep as the trees are.
pub(super) fn needed(agf: &RawAgf, has_rmap: bool) -> u32 {
    let rmap = if has_rmap { growth(agf.agf_rmap_level.get()) } else { 0 };
    growth(agf.agf_bno_level.get()) + growth(agf.agf_cnt_level.get()) + rmap
}

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
        let adjusted = if usable < needed { self.lengthen_list(needed) } else { self.shorten_list(needed) };
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
            match entry.cancelled_in {
                Some(_) => self.add_freed(run, false),
                None => self.state().blocks().space.available.give(run),
            }
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
