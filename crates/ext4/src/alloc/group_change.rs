//! Changes of a group's bitmaps, under a handle. The guard of the group's blocks or inodes is held, so that a bitmap that was
//! validated does not change before its block's lock is taken for the change.

use std::ops::Range;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Result;

use super::bits;
use super::group::{BlocksGuard, GroupCell, InodesGuard};
use crate::error::corrupt_block;
use crate::transaction::{Handle, Seal};

impl GroupCell {
    /// Marks blocks as used on disk. They are taken in the map.
    ///
    /// # Errors
    /// I/O failure; nothing has changed then.
    pub(super) fn occupy(
        &self,
        handle: &Handle<'_>,
        blocks: &mut BlocksGuard<'_>,
        range: Range<u32>,
    ) -> Result<()> {
        let count = range.end - range.start;
        if blocks.uninit {
            self.make_bitmap(handle, range)?;
            blocks.uninit = false;
        } else {
            let bitmap = self.block_bitmap(handle.volume(), blocks)?;
            handle.change_block(&bitmap, Seal::Plain, |bitmap| {
                debug_assert!(bits::none_set(bitmap, range.clone()), "{range:?} is given out twice");
                bits::set(bitmap, range);
            });
        }
        self.free_on_disk.fetch_sub(count, Ordering::Relaxed);
        blocks.changed = true;
        Ok(())
    }

    /// Writes the bitmap of a group that has none yet, with a range in use besides the filesystem's own blocks.
    ///
    /// # Errors
    /// I/O failure; nothing has changed then.
    pub(super) fn make_bitmap(&self, handle: &Handle<'_>, range: Range<u32>) -> Result<()> {
        handle.make(self.block_bitmap, Seal::Plain, |bitmap| {
            self.own.iter().for_each(|own| bits::set(bitmap, own.clone()));
            bits::set(bitmap, self.len()..bitmap.len() as u32 * 8);
            bits::set(bitmap, range);
        })
    }

    /// Makes the group longer by blocks that are free. They are in its map, and given out when the allocator counts
    /// them.
    ///
    /// # Errors
    /// Corruption of the bitmap; I/O failure. Nothing has changed then.
    pub(super) fn lengthen(&self, handle: &Handle<'_>, blocks: &mut BlocksGuard<'_>, len: u32) -> Result<()> {
        let added = self.len()..len;
        if !blocks.uninit {
            let bitmap = self.block_bitmap(handle.volume(), blocks)?;
            handle.change_block(&bitmap, Seal::Plain, |bitmap| bits::clear(bitmap, added.clone()));
            blocks.changed = true;
        }
        self.free_on_disk.fetch_add(added.len() as u32, Ordering::Relaxed);
        blocks.map().lengthen(len);
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Marks blocks as free on disk. They stay taken in the map.
    ///
    /// # Errors
    /// Corruption: some of them are free already; I/O failure. Nothing has changed then.
    pub(super) fn vacate(
        &self,
        handle: &Handle<'_>,
        blocks: &mut BlocksGuard<'_>,
        range: Range<u32>,
    ) -> Result<()> {
        let count = range.end - range.start;
        let freed_already = || {
            let range = self.absolute(&range);
            let detail =
                format!("blocks {} to {} are freed, but not all are in use", range.start, range.end - 1);
            Err(corrupt_block("block bitmap", self.block_bitmap, detail))
        };
        if blocks.uninit {
            return freed_already();
        }
        let bitmap = self.block_bitmap(handle.volume(), blocks)?;
        handle.validate_and_change_block(
            &bitmap,
            Seal::Plain,
            |bitmap| if bits::all_set(bitmap, range.clone()) { Ok(()) } else { freed_already() },
            |bitmap| bits::clear(bitmap, range.clone()),
        )?;
        self.free_on_disk.fetch_add(count, Ordering::Relaxed);
        blocks.changed = true;
        Ok(())
    }

    /// Marks an inode as used or free on disk, as `used` says.
    ///
    /// # Errors
    /// Corruption: it is so already; I/O failure. Nothing has changed then.
    pub(super) fn mark_inode(
        &self,
        handle: &Handle<'_>,
        inodes: &mut InodesGuard<'_>,
        bit: u32,
        used: bool,
    ) -> Result<()> {
        let range = bit..bit + 1;
        let per_group = inodes.map().len();
        if inodes.uninit && used {
            handle.make(self.inode_bitmap, Seal::Plain, |bitmap| {
                bits::set(bitmap, per_group..bitmap.len() as u32 * 8);
                bits::set(bitmap, range);
            })?;
            inodes.uninit = false;
            inodes.changed = true;
            return Ok(());
        }
        let so_already = || {
            let number = self.number.0 * per_group + bit + 1;
            let state = if used { "used" } else { "freed" };
            let detail = format!("inode {number} is {state}, but it is so already");
            Err(corrupt_block("inode bitmap", self.inode_bitmap, detail))
        };
        if inodes.uninit {
            return so_already();
        }
        let bitmap = self.inode_bitmap(handle.volume(), inodes)?;
        handle.validate_and_change_block(
            &bitmap,
            Seal::Plain,
            |bitmap| if bits::all_set(bitmap, range.clone()) == used { so_already() } else { Ok(()) },
            |bitmap| {
                if used { bits::set(bitmap, range.clone()) } else { bits::clear(bitmap, range.clone()) }
            },
        )?;
        inodes.changed = true;
        Ok(())
    }
}
