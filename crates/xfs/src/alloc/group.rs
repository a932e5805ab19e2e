//! A group in memory: its headers, its free list and its free space; and the guard under which it changes.
//!
//! The headers' fields are kept here. A change of a group is made through [`ChangingGroup`]: it holds the group's lock,
//! and stores the headers that have changed, once, when it is dropped.
//!
//! Lock: one of class `group` for each group. A thread holds one at a time, under a handle, during one change of a
//! structure. The locks of blocks and of the cache are taken inside it.

use undercroft_sync::atomic::{AtomicU32, Ordering};
use undercroft_sync::{Mutex, MutexGuard, order};
use undercroft_vfs::{Error, Result};
use zerocopy::IntoBytes;

use super::account::SetAside;
use super::free_list::FreeList;
use super::free_space::FreeSpace;
use super::unlinked::Predecessors;
use super::*;
use crate::ag::agf::RawAgf;
use crate::ag::agi::RawAgi;
use crate::ag::{Agf, Agi, agf, agfl, agi};
use crate::format::{AgBlock, AgNumber, Geometry, crc};
use crate::transaction::{Block, Seal, Tid};

/// The sectors of a group that hold its headers.
const AGF_SECTOR: u32 = 1;
const AGI_SECTOR: u32 = 2;
const AGFL_SECTOR: u32 = 3;

/// An allocation group.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Group {
    pub(super) number: AgNumber,
    /// For choosing a group without its lock: free blocks that may be given out, and a length that no run of them passes.
    pub(super) available: AtomicU32,
    pub(super) longest: AtomicU32,
    /// The same for inodes.
    pub(super) inodes: AtomicU32,
    pub(super) free_inodes: AtomicU32,
    pub(super) state: Mutex<GroupState>,
}

/// What a group's lock guards.
#[derive(Debug)]
pub(super) struct GroupState {
    /// The fields of the headers as the running transaction has them.
    pub(super) agf: RawAgf,
    pub(super) agi: RawAgi,
    /// Whether they are newer than the sectors in the cache.
    agf_changed: bool,
    agi_changed: bool,
    /// The blocks of the headers, once something of the group has been changed: storing the headers cannot fail.
    headers: Option<[Block; 3]>,
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
}

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
        };
        let group = Self {
            number,
            available: AtomicU32::new(0),
            longest: AtomicU32::new(agf.longest()),
            inodes: AtomicU32::new(agi.inodes()),
            free_inodes: AtomicU32::new(agi.free_inodes()),
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
        self.available.store(state.spare() as u32, Ordering::Relaxed);
        let longest = match &state.blocks {
            Some(blocks) => blocks.space.available.longest(),
            None => state.agf.agf_longest.get(),
        };
        self.longest.store(longest, Ordering::Relaxed);
        self.inodes.store(state.agi.agi_count.get(), Ordering::Relaxed);
        self.free_inodes.store(state.agi.agi_freecount.get(), Ordering::Relaxed);
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

/// A group that is being changed under a handle. Headers that have changed are stored when it is dropped.
pub(super) struct ChangingGroup<'g> {
    pub(super) allocator: &'g Allocator,
    pub(super) handle: &'g Handle<'g>,
    pub(super) group: &'g Group,
    state: MutexGuard<'g, GroupState>,
    /// Blocks that were taken out of reservations during this change.
    pub(super) taken_from_reservations: u64,
}

impl Allocator {
    /// Locks a group to change it under a handle.
    ///
    /// # Errors
    /// Corruption: there is no such group; I/O failure.
    pub(super) fn change_group<'g>(
        &'g self,
        handle: &'g Handle<'_>,
        number: AgNumber,
    ) -> Result<ChangingGroup<'g>> {
        let group = self.group(number)?;
        ChangingGroup::new(self, handle, group, group.state.lock())
    }

    /// The same unless another thread has the lock.
    pub(super) fn try_change_group<'g>(
        &'g self,
        handle: &'g Handle<'_>,
        number: AgNumber,
    ) -> Result<Option<ChangingGroup<'g>>> {
        let group = self.group(number)?;
        let state = group.state.try_lock();
        state.map(|state| ChangingGroup::new(self, handle, group, state)).transpose()
    }
}

impl<'g> ChangingGroup<'g> {
    fn new(
        allocator: &'g Allocator,
        handle: &'g Handle<'g>,
        group: &'g Group,
        mut state: MutexGuard<'g, GroupState>,
    ) -> Result<Self> {
        if state.headers.is_none() {
            state.headers = Some(header_blocks(handle.volume(), group.number)?);
        }
        Ok(Self { allocator, handle, group, state, taken_from_reservations: 0 })
    }

    pub(super) fn number(&self) -> AgNumber {
        self.group.number
    }

    pub(super) fn volume(&self) -> &'g Volume {
        self.handle.volume()
    }

    pub(super) fn geometry(&self) -> &'g Geometry {
        self.handle.volume().geometry()
    }

    pub(super) fn tid(&self) -> Tid {
        self.handle.tid()
    }

    /// The fields of the header of free space.
    pub(super) fn agf(&self) -> &RawAgf {
        &self.state.agf
    }

    /// The same, to be changed.
    pub(super) fn agf_mut(&mut self) -> &mut RawAgf {
        self.state.agf_changed = true;
        &mut self.state.agf
    }

    /// The fields of the header of inodes.
    pub(super) fn agi(&self) -> &RawAgi {
        &self.state.agi
    }

    /// The same, to be changed.
    pub(super) fn agi_mut(&mut self) -> &mut RawAgi {
        self.state.agi_changed = true;
        &mut self.state.agi
    }

    /// A block of the group as the whole filesystem names it.
    ///
    /// # Errors
    /// Corruption: it lies outside the group.
    pub(super) fn block(&self, block: AgBlock) -> Result<FsBlock> {
        self.geometry().join(self.number(), block).ok_or_else(|| {
            let detail = format!("block {block} lies outside group {}", self.number());
            crate::error::corrupt("allocation group", detail)
        })
    }

    /// The place in this group of a block, which lies in it.
    ///
    /// # Errors
    /// Corruption: it does not.
    pub(super) fn within(&self, block: FsBlock) -> Result<AgBlock> {
        match self.geometry().split(block) {
            Some((ag, within)) if ag == self.number() => Ok(within),
            _ => {
                let detail = format!("does not lie in group {}", self.number());
                Err(crate::error::corrupt_block("allocation group", block, detail))
            }
        }
    }

    /// The state, with the free list and the free space loaded.
    pub(super) fn loaded(&mut self) -> Result<&mut GroupState> {
        self.state.load(self.handle.volume(), self.group.number)?;
        Ok(&mut self.state)
    }

    pub(super) fn state(&mut self) -> &mut GroupState {
        &mut self.state
    }

    /// The state, of which the header of free space is about to be changed.
    pub(super) fn state_and_agf_changed(&mut self) -> &mut GroupState {
        self.state.agf_changed = true;
        &mut self.state
    }

    fn store_headers(&mut self) {
        let geometry = self.handle.volume().geometry();
        let (sector_bytes, block_bytes) = (geometry.sector_bytes(), geometry.block_bytes());
        let handle = self.handle;
        // Readers of the headers validate their checksums each time, so they are made here and not only when the
        // blocks are written.
        let store = |sector: u32, block: &Block, crc_at: usize, change: &dyn Fn(&mut [u8])| {
            let at = (sector * sector_bytes % block_bytes) as usize;
            handle.change_block(block, Seal::GroupHeaders, |bytes| {
                let bytes = &mut bytes[at..at + sector_bytes as usize];
                change(bytes);
                crc::seal(bytes, crc_at);
            });
        };
        let state = &mut *self.state;
        let Some(headers) = &state.headers else { return };
        if std::mem::take(&mut state.agf_changed) {
            let fields = state.agf.as_bytes();
            store(AGF_SECTOR, &headers[0], agf::CRC_OFFSET, &|sector| {
                sector[..fields.len()].copy_from_slice(fields);
            });
        }
        if std::mem::take(&mut state.agi_changed) {
            let fields = state.agi.as_bytes();
            store(AGI_SECTOR, &headers[1], agi::CRC_OFFSET, &|sector| {
                sector[..fields.len()].copy_from_slice(fields);
            });
        }
        if let Some(blocks) = &mut state.blocks
            && blocks.list.take_changed()
        {
            let list = &blocks.list;
            store(AGFL_SECTOR, &headers[2], agfl::CRC_OFFSET, &|sector| list.store(sector));
        }
    }
}

impl Drop for ChangingGroup<'_> {
    fn drop(&mut self) {
        self.store_headers();
        let taken = self.taken_from_reservations;
        self.allocator.recount(self.group, &mut self.state, taken);
    }
}

/// The blocks in which the headers of a group lie.
fn header_blocks(volume: &Volume, number: AgNumber) -> Result<[Block; 3]> {
    let geometry = volume.geometry();
    let block = |sector: u32| {
        let within = AgBlock((sector * geometry.sector_bytes()) >> geometry.block_log());
        match geometry.join(number, within) {
            Some(block) => volume.block(block),
            None => Err(crate::error::corrupt("allocation group", format!("there is no group {number}"))),
        }
    };
    Ok([block(AGF_SECTOR)?, block(AGI_SECTOR)?, block(AGFL_SECTOR)?])
}
