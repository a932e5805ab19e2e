//! The guard under which a group changes.
//!
//! It holds the group's lock, and stores the headers that have changed, once, when it is dropped.

use undercroft_sync::MutexGuard;
use undercroft_vfs::Result;
use zerocopy::IntoBytes;

use super::group::{Group, GroupState};
use super::*;
use crate::ag::agf::RawAgf;
use crate::ag::agi::RawAgi;
use crate::ag::{agf, agfl, agi};
use crate::format::{AgBlock, AgNumber, Geometry, crc};
use crate::transaction::{Block, Seal, Tid};

/// The sectors of a group that hold its headers.
const AGF_SECTOR: u32 = 1;
const AGI_SECTOR: u32 = 2;
const AGFL_SECTOR: u32 = 3;

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
