//! The orphan file: slots of inode numbers, which threads take without waiting for each other.
//!
//! Which slots are taken is kept in memory, a bit each. A thread begins to look in the block that it was dealt, claims
//! a bit and writes its slot under its handle; to leave, it clears the slot and then the bit (`change`).

use undercroft_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use undercroft_vfs::Result;

use super::read::{TAIL_BYTES, blocks_of, validate_block};
use crate::features::RoCompat;
use crate::inode::{Inode, NamedBy};
use crate::numbers::FsBlock;
use crate::transaction::Block;
use crate::volume::Volume;

/// The file, whose blocks stay in memory.
#[derive(Debug)]
pub(super) struct OrphanFile {
    pub(super) seed: u32,
    pub(super) slots_per_block: u32,
    pub(super) blocks: Box<[FileBlock]>,
    /// The superblock says that there may be entries.
    pub(super) announced: AtomicBool,
}

/// One block of the file.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct FileBlock {
    pub(super) block: Block,
    free: AtomicU32,
    taken: Box<[AtomicU64]>,
}

impl OrphanFile {
    /// The file with what is in it; `None` where there is none.
    pub(super) fn new(volume: &Volume) -> Result<Option<Self>> {
        let Some(number) = volume.superblock().orphan_file_inode() else { return Ok(None) };
        let inode = Inode::read_own(volume, number, NamedBy::SuperblockAsOrphanFile)?;
        let slots_per_block = (volume.block_bytes() - TAIL_BYTES as u32) / 4;
        let blocks = blocks_of(volume, &inode)?
            .map(|home| FileBlock::new(volume, &inode, home, slots_per_block))
            .collect::<Result<_>>()?;
        let announced = volume.superblock().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        let announced = AtomicBool::new(announced);
        Ok(Some(Self { seed: inode.checksum_seed(volume), slots_per_block, blocks, announced }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.iter().all(|block| block.free.load(Ordering::Acquire) == self.slots_per_block)
    }

    /// The slots that are taken, with their numbers, a block at a time.
    pub(super) fn entries(&self) -> impl Iterator<Item = Vec<(u64, u32)>> + '_ {
        let per_block = u64::from(self.slots_per_block);
        (0..).zip(&self.blocks).map(move |(index, block)| {
            let buffer = block.block.buffer();
            let numbers = buffer.chunks_exact(4).take(per_block as usize);
            (0..)
                .zip(numbers)
                .map(|(slot, n)| (index * per_block + slot, u32::from_le_bytes([n[0], n[1], n[2], n[3]])))
                .filter(|(_, number)| *number != 0)
                .collect()
        })
    }
}

impl FileBlock {
    fn new(volume: &Volume, file: &Inode, home: FsBlock, slots: u32) -> Result<Self> {
        let block = volume.block(home)?;
        let taken: Box<[AtomicU64]> = (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let mut free = slots;
        for (slot, _) in
            (0..).zip(validate_block(volume, file, home, &block.buffer())?).filter(|(_, n)| *n != 0)
        {
            let slot: usize = slot;
            taken[slot / 64].fetch_or(1 << (slot % 64), Ordering::Relaxed);
            free -= 1;
        }
        // What lies past the last slot is never free.
        if !slots.is_multiple_of(64) {
            taken[slots as usize / 64].fetch_or(u64::MAX << (slots % 64), Ordering::Relaxed);
        }
        Ok(Self { block, free: AtomicU32::new(free), taken })
    }

    pub(super) fn claim(&self) -> Option<u32> {
        if self.free.load(Ordering::Relaxed) == 0 {
            return None;
        }
        for (index, word) in (0..).zip(&self.taken) {
            let mut taken = word.load(Ordering::Relaxed);
            while taken != u64::MAX {
                let bit = taken.trailing_ones();
                // Acquire: the inode that left the slot cleared it before.
                taken = word.fetch_or(1 << bit, Ordering::Acquire);
                if taken >> bit & 1 == 0 {
                    self.free.fetch_sub(1, Ordering::Relaxed);
                    return Some(index * 64 + bit);
                }
            }
        }
        None
    }

    pub(super) fn give(&self, slot: u32) {
        self.taken[slot as usize / 64].fetch_and(!(1 << (slot % 64)), Ordering::Release);
        self.free.fetch_add(1, Ordering::Release);
    }
}
