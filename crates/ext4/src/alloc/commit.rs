//! Free counts on the disk: descriptors and the superblock, written once for each transaction.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Result;

use super::Allocator;
use crate::numbers::Group;
use crate::superblock::{self, State};
use crate::transaction::{Handle, Seal};

impl Allocator {
    /// Before a transaction is written: the descriptors of the groups that it changed, and the superblock's counts.
    ///
    /// # Errors
    /// I/O failure.
    pub(crate) fn prepare_commit(&self, handle: &Handle<'_>) -> Result<()> {
        let mut changed = false;
        for (word, dirty) in (0..).zip(self.dirty.iter()) {
            let mut groups = dirty.swap(0, Ordering::Relaxed);
            while groups != 0 {
                changed = true;
                self.write_descriptor(handle, Group(word * 64 + groups.trailing_zeros()))?;
                groups &= groups - 1;
            }
        }
        let damage =
            self.damaged.load(Ordering::Relaxed) && !self.damage_recorded.swap(true, Ordering::Relaxed);
        if changed || damage {
            let (blocks, inodes) =
                (self.blocks_on_disk.load(Ordering::Relaxed), self.inodes_on_disk.load(Ordering::Relaxed));
            superblock::change(handle, |raw| {
                raw.s_free_blocks_count_lo.set(blocks as u32);
                raw.s_free_blocks_count_hi.set((blocks >> 32) as u32);
                raw.s_free_inodes_count.set(inodes as u32);
                if damage {
                    raw.s_state.set(raw.s_state.get() | State::ERRORS.bits());
                }
            })?;
        }
        Ok(())
    }

    fn write_descriptor(&self, handle: &Handle<'_>, group: Group) -> Result<()> {
        let volume = handle.volume();
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let cell = &self.cells[group.0 as usize];
        let (details, more_blocks, more_inodes) = cell.record(volume)?;
        let (block, byte) = geometry.descriptor_location(group);
        let bytes = byte..byte + usize::from(geometry.descriptor_bytes());
        handle.change(block, Seal::Plain, |block| details.put(superblock, group, &mut block[bytes]))?;
        self.blocks_on_disk.fetch_add(more_blocks, Ordering::Relaxed);
        self.inodes_on_disk.fetch_add(more_inodes, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that a group's descriptor will change. Its block is entered into the transaction now, on account of the
    /// handle, and filled at the commit.
    pub(super) fn mark_dirty(&self, handle: &Handle<'_>, group: Group) -> Result<()> {
        let (word, bit) = (&self.dirty[group.0 as usize / 64], 1 << (group.0 % 64));
        // Test first: most changes are not the first in their transaction.
        if word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (block, _) = handle.volume().superblock().geometry().descriptor_location(group);
            handle.change(block, Seal::Plain, |_| ())?;
        }
        Ok(())
    }
}
