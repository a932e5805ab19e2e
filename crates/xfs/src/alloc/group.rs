//! A group in memory: its headers, its free list and its free space.
//!
//! Lock: one of class `group` for each group. A thread holds one at a time, during one look or, under a handle, one change
//! of a structure ([`ChangingGroup`](super::changing::ChangingGroup)). The locks of blocks and of the cache are taken inside it.

use std::collections::HashMap;

use undercroft_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use undercroft_sync::{Mutex, MutexGuard, order};
use undercroft_vfs::{Error, Result};

use super::free_list::FreeList;
use super::free_space::FreeSpace;
use super::open_chunks::OpenChunks;
use super::set_aside::SetAside;
use crate::ag::agf::RawAgf;
use crate::ag::agi::RawAgi;
use crate::ag::{Agf, Agi};
use crate::format::{AgIno, AgNumber};
use crate::transaction::{Block, Tid};
use crate::volume::Volume;

/// An allocation group.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Group {
    pub(super) hints: Hints,
    pub(super) number: AgNumber,
    /// As the header counts them, to be read without the lock.
    pub(super) inodes: AtomicU32,
    pub(super) free_inodes: AtomicU32,
    /// Records of chunks are newer in memory. Set with the lock held.
    pub(super) has_newer: AtomicBool,
    pub(super) state: Mutex<GroupState>,
}

/// For choosing a group without its lock. Padded to its own cache lines, and written only where it differs: threads read it
/// while another changes the group.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Hints {
    /// Free blocks that may be given out, and a length that no run of them passes.
    pub(super) available: AtomicU32,
    pub(super) longest: AtomicU32,
    /// There is a free inode.
    pub(super) has_free_inode: AtomicBool,
}

/// What a group's lock guards.
#[derive(Debug)]
pub(super) struct GroupState {
    /// The fields of the headers as the running transaction has them.
    pub(super) agf: RawAgf,
    pub(super) agi: RawAgi,
    /// Whether they are newer than the sectors in the cache.
    pub(super) agf_changed: bool,
    pub(super) agi_changed: bool,
    /// The blocks of the headers, once something of the group has been changed: storing the headers cannot fail.
    pub(super) headers: Option<[Block; 3]>,
    /// The free list and the free space: loaded when the group's blocks are first used.
    pub(super) blocks: Option<Box<GroupBlocks>>,
    /// A corruption was found: the group's blocks are no longer touched.
    is_corrupt: bool,
    /// Blocks of this group that count as reservable in the sum over all groups.
    pub(super) counted: u64,
    /// And those that do after a commit.
    pub(super) counted_busy: u64,
    pub(super) aside: SetAside,
    /// The last transaction after which the blocks that it freed are released.
    pub(super) release_asked: Option<Tid>,
    /// What is known of the lists of unlinked inodes.
    pub(super) predecessors: Predecessors,
    /// Chunks of inodes with records in memory.
    pub(super) open: OpenChunks,
    pub(super) takers: Takers,
}

/// Whether several threads take inodes of a group. They get theirs from blocks of their own then, within one chunk.
#[derive(Debug, Default)]
pub(super) struct Takers {
    last: Option<usize>,
    /// Inodes that one thread takes after another took one, before it counts as the only one.
    alone_in: u32,
}

/// As long as threads that take turns need, at worst, to be seen.
const TURNS: u32 = 64;

impl Takers {
    /// Which of several threads the calling one is; zero if it is the only one.
    pub(super) fn note(&mut self, thread: usize) -> usize {
        match self.last.replace(thread) {
            Some(last) if last != thread => self.alone_in = TURNS,
            _ => self.alone_in = self.alone_in.saturating_sub(1),
        }
        if self.alone_in > 0 { thread } else { 0 }
    }
}

/// Of inodes on the lists of unlinked ones of a group: the one before it, if it is known.
#[derive(Debug, Default)]
pub(super) struct Predecessors(pub(super) HashMap<AgIno, AgIno>);

/// A group's free blocks.
#[derive(Debug)]
pub(super) struct GroupBlocks {
    pub(super) list: FreeList,
    pub(super) space: FreeSpace,
}

impl Group {
    /// The group as its headers have it.
    ///
    /// # Errors
    /// Corruption of the headers; I/O failure.
    pub(super) fn new(volume: &Volume, number: AgNumber) -> Result<Self> {
        let (agf, agi) = (Agf::read(volume, number)?, Agi::read(volume, number)?);
        let state = GroupState {
            agf: *agf.raw(),
            agi: *agi.raw(),
            agf_changed: false,
            agi_changed: false,
            headers: None,
            blocks: None,
            is_corrupt: false,
            counted: 0,
            counted_busy: 0,
            aside: SetAside::new(volume, number, agi.raw()),
            release_asked: None,
            predecessors: Predecessors::default(),
            open: OpenChunks::default(),
            takers: Takers::default(),
        };
        let group = Self {
            hints: Hints {
                available: AtomicU32::new(0),
                longest: AtomicU32::new(agf.longest()),
                has_free_inode: AtomicBool::new(agi.free_inodes() > 0),
            },
            number,
            inodes: AtomicU32::new(agi.inodes()),
            free_inodes: AtomicU32::new(agi.free_inodes()),
            has_newer: AtomicBool::new(false),
            state: Mutex::new(&order::GROUP, state),
        };
        {
            let mut state = group.state.lock();
            state.counted = state.reservable();
            group.publish(&state);
        }
        Ok(group)
    }

    /// Notes for readers without the lock what may be given out.
    pub(super) fn publish(&self, state: &GroupState) {
        let note = |hint: &AtomicU32, value: u32| {
            if hint.load(Ordering::Relaxed) != value {
                hint.store(value, Ordering::Relaxed);
            }
        };
        note(&self.hints.available, state.spare() as u32);
        let longest = match &state.blocks {
            Some(blocks) => blocks.space.available.longest(),
            None => state.agf.agf_longest.get(),
        };
        note(&self.hints.longest, longest);
        note(&self.inodes, state.agi.agi_count.get());
        let free_inodes = state.agi.agi_freecount.get();
        note(&self.free_inodes, free_inodes);
        if self.hints.has_free_inode.load(Ordering::Relaxed) != (free_inodes > 0) {
            self.hints.has_free_inode.store(free_inodes > 0, Ordering::Relaxed);
        }
    }

    /// Locks a group's blocks outside of a handle: nothing on the disk changes. Loads them if they are not here.
    pub(super) fn lock_blocks(&self, volume: &Volume) -> Result<MutexGuard<'_, GroupState>> {
        let mut state = self.state.lock();
        state.load(volume, self.number)?;
        Ok(state)
    }

    /// The same unless another thread has the lock.
    pub(super) fn try_lock_blocks(&self, volume: &Volume) -> Option<Result<MutexGuard<'_, GroupState>>> {
        let mut state = self.state.try_lock()?;
        Some(state.load(volume, self.number).map(|()| state))
    }
}

impl GroupState {
    /// Loads the free list and the free space if they are not here.
    ///
    /// # Errors
    /// Corruption, found now or before; I/O failure.
    pub(super) fn load(&mut self, volume: &Volume, number: AgNumber) -> Result<()> {
        if self.is_corrupt {
            return Err(crate::error::corrupt(
                "allocation group",
                format!("group {number} has damaged free space; run xfs_repair"),
            ));
        }
        if self.blocks.is_some() {
            return Ok(());
        }
        let loaded = FreeList::load(volume, number).and_then(|list| {
            let space = FreeSpace::load(volume, number, &self.agf, &list)?;
            Ok(Box::new(GroupBlocks { list, space }))
        });
        match loaded {
            Ok(blocks) => {
                self.blocks = Some(blocks);
                Ok(())
            }
            Err(error) => {
                self.is_corrupt |= matches!(error, Error::Corrupt(_));
                Err(error)
            }
        }
    }

    /// The header of free space, and the free list, which has been loaded.
    pub(super) fn agf_and_list(&mut self) -> (&mut RawAgf, &mut FreeList) {
        match &mut self.blocks {
            Some(blocks) => (&mut self.agf, &mut blocks.list),
            None => unreachable!("the blocks were loaded before they are changed"),
        }
    }

    /// The blocks, which have been loaded.
    pub(super) fn blocks(&mut self) -> &mut GroupBlocks {
        match &mut self.blocks {
            Some(blocks) => blocks,
            None => unreachable!("the blocks were loaded when the lock was taken"),
        }
    }
}
