//! The allocator of a filesystem that becomes smaller, and is not in use meanwhile.
//!
//! From [`fence`](Allocator::fence) on no block at or past the new end is given out; files' blocks there are moved away.
//! In the transaction that makes the filesystem smaller, the last group is [cut](Allocator::cut) and blocks of structures
//! that it does not need any more are [freed](Allocator::free_own) on the disk. In memory they stay taken: the filesystem
//! is closed afterwards.

use std::ops::Range;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Result;

use super::Allocator;
use super::bits;
use super::group::{BlocksGuard, GroupCell};
use crate::error::corrupt_block;
use crate::numbers::{FsBlock, Group};
use crate::transaction::Handle;
use crate::volume::Volume;

impl Allocator {
    /// Gives out no block from `end` on any more, and before it also those that are held back from ordinary data.
    ///
    /// # Errors
    /// Corruption of a bitmap; I/O failure.
    pub(crate) fn fence(&self, volume: &Volume, end: FsBlock) -> Result<()> {
        self.held_back.store(0, Ordering::Relaxed);
        self.kept_for_maps.store(0, Ordering::Relaxed);
        self.fence.store(end.0, Ordering::Relaxed);
        for cell in self.past(end) {
            let mut blocks = cell.lock_blocks(volume)?;
            let free: Vec<_> = blocks.map().runs_of(offset(cell, end)..cell.len(), 1).collect();
            for range in free {
                self.take_from_map(cell, &mut blocks, range);
            }
        }
        Ok(())
    }

    /// Refuses an end past which a block is in use that is not a structure of a group.
    ///
    /// # Errors
    /// Corruption: such a block, which no file owns; I/O failure.
    pub(crate) fn check_vacant(&self, volume: &Volume, end: FsBlock) -> Result<()> {
        for cell in self.past(end) {
            let blocks = cell.lock_blocks(volume)?;
            if blocks.uninit {
                continue;
            }
            let bitmap = cell.block_bitmap(volume, &blocks)?.buffer();
            let used = |bit: u32| bits::all_set(&bitmap, bit..bit + 1) && !cell.is_own(&(bit..bit + 1));
            if let Some(bit) = (offset(cell, end)..cell.len()).find(|&bit| used(bit)) {
                let home = FsBlock(cell.start.0 + u64::from(bit));
                return Err(corrupt_block("block bitmap", home, "the block is in use, and no file has it"));
            }
        }
        Ok(())
    }

    /// Blocks that may be given out now.
    pub(crate) fn free_now(&self) -> u64 {
        self.free.sum()
    }

    /// Frees blocks that were the filesystem's own, on the disk only. Changes
    /// [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks for each group that they touch.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn free_own(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        self.by_group(first, count, |cell, range| {
            self.mark_dirty(handle, cell.number)?;
            let mut blocks = cell.lock_blocks(handle.volume())?;
            cell.write_uninit(handle, &mut blocks)?;
            cell.vacate(handle, &mut blocks, range)
        })
    }

    /// Makes the group that becomes the last as long as the superblock `blocks` says, and no longer counts those after
    /// it, in which nothing is in use but their own structures. Changes [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks.
    ///
    /// # Errors
    /// Corruption of a bitmap; I/O failure.
    pub(crate) fn cut(&self, handle: &Handle<'_>, last: Group, len: u32) -> Result<()> {
        let cell = &self.cells[last.0 as usize];
        self.mark_dirty(handle, last)?;
        let mut blocks = cell.lock_blocks(handle.volume())?;
        cell.write_uninit(handle, &mut blocks)?;
        cell.shorten(handle, &mut blocks, len)?;
        drop(blocks);
        let (mut free_blocks, mut free_inodes) = (0, 0);
        for gone in self.cells.iter().skip(last.0 as usize + 1) {
            free_blocks += i64::from(gone.free_on_disk.load(Ordering::Relaxed));
            free_inodes += i64::from(gone.free_inodes.load(Ordering::Relaxed));
        }
        self.blocks_on_disk.fetch_sub(free_blocks, Ordering::Relaxed);
        self.inodes_on_disk.fetch_sub(free_inodes, Ordering::Relaxed);
        Ok(())
    }

    /// The part of a range of a group that lies before the fence.
    pub(super) fn before_fence(&self, cell: &GroupCell, range: Range<u32>) -> Range<u32> {
        let fence = self.fence.load(Ordering::Relaxed);
        if cell.start.0 + u64::from(range.end) <= fence {
            return range;
        }
        range.start..(fence.saturating_sub(cell.start.0) as u32).max(range.start)
    }

    /// Groups that end past `end`.
    fn past(&self, end: FsBlock) -> impl Iterator<Item = &GroupCell> {
        self.cells.iter().filter(move |cell| cell.start.0 + u64::from(cell.len()) > end.0)
    }
}

/// Where the end lies in a group that ends past it.
fn offset(cell: &GroupCell, end: FsBlock) -> u32 {
    end.0.saturating_sub(cell.start.0) as u32
}

impl GroupCell {
    /// Writes the bitmap of a group that has none yet.
    fn write_uninit(&self, handle: &Handle<'_>, blocks: &mut BlocksGuard<'_>) -> Result<()> {
        if blocks.uninit {
            self.make_bitmap(handle, 0..0)?;
            blocks.uninit = false;
            blocks.changed = true;
        }
        Ok(())
    }

    /// Makes the group shorter. Its bitmap has been written.
    fn shorten(&self, handle: &Handle<'_>, blocks: &mut BlocksGuard<'_>, len: u32) -> Result<()> {
        let cut = len..self.len();
        let bitmap = self.block_bitmap(handle.volume(), blocks)?;
        let free = {
            let buffer = bitmap.buffer();
            cut.clone().filter(|&bit| bits::none_set(&buffer, bit..bit + 1)).count() as u32
        };
        handle.change_block(&bitmap, crate::transaction::Seal::Plain, |bitmap| bits::set(bitmap, cut));
        self.free_on_disk.fetch_sub(free, Ordering::Relaxed);
        blocks.changed = true;
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }
}
