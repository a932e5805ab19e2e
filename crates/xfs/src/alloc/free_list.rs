//! The free list (AGFL): blocks that the trees of free space and of reverse mappings grow into and shrink out of.
//!
//! A ring in a header's sector. A block that a tree puts on the list was metadata, and the running transaction cancels it.
//! Until that is durable it is not *usable*: a tree takes it only where no usable one is left. The list is filled to as many
//! usable blocks as one change of each tree may need: twice its levels, because a change inserts at most two records, and
//! the second finds the blocks half full that the first split.

use std::collections::VecDeque;

use undercroft_vfs::Result;

use crate::ag::agf::RawAgf;
use crate::ag::{Agf, Agfl, agfl};
use crate::format::{AgBlock, AgNumber};
use crate::transaction::Tid;
use crate::volume::Volume;

/// The blocks on a group's free list.
#[derive(Debug)]
pub(super) struct FreeList {
    /// In the order of the ring.
    pub(super) entries: VecDeque<Entry>,
    /// The place of the first in the ring.
    first: u32,
    /// Places in the ring.
    pub(super) capacity: u32,
    /// Entries that are not usable yet.
    pub(super) busy: u32,
    changed: bool,
    /// It is being filled or shortened, which changes trees.
    pub(super) is_adjusting: bool,
}

/// A block on the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) block: u32,
    /// The transaction that cancelled it, until that is durable.
    pub(super) cancelled_in: Option<Tid>,
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

    pub(super) fn push(&mut self, agf: &mut RawAgf, entry: Entry) -> bool {
        if self.entries.len() >= self.capacity as usize {
            return false;
        }
        self.busy += u32::from(entry.cancelled_in.is_some());
        self.entries.push_back(entry);
        self.note_in(agf);
        true
    }

    /// Takes the first entry that `may_take`.
    pub(super) fn pop(&mut self, agf: &mut RawAgf, may_take: impl Fn(&Entry) -> bool) -> Option<Entry> {
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
