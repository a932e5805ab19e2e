//! The allocator of a filesystem that grows.
//!
//! New groups are added in two steps, neither of which disturbs concurrent allocations: first they are entered with
//! nothing free, so that searches pass them over; then, when the volume's superblock counts them, their free blocks and
//! inodes are released. The last old group becomes longer in the same handle.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Result;

use super::Allocator;
use super::group::GroupCell;
use super::zone::Zone;
use crate::group::GroupDetails;
use crate::numbers::Group;
use crate::superblock::Superblock;
use crate::transaction::Handle;
use crate::volume::Volume;

impl Allocator {
    /// Refuses a last group that cannot become longer. To be asked before anything is changed.
    ///
    /// # Errors
    /// Corruption of its bitmap; I/O failure.
    pub(crate) fn check_last_group(&self, volume: &Volume) -> Result<()> {
        self.cells.last().lock_blocks(volume).map(drop)
    }

    /// Enters new groups, of which nothing is given out yet. The caller must serialize calls.
    pub(crate) fn add_closed(&self, superblock: &Superblock, details: &[GroupDetails]) {
        let geometry = superblock.geometry();
        let first = self.cells.len() as u32;
        let zone = Zone::of_new(geometry, Group(first), details);
        let groups = first + details.len() as u32;
        self.orders.lengthen(groups);
        self.groups_with_inodes.lengthen(groups);
        while self.dirty.len() < groups.div_ceil(64) as usize {
            self.dirty.push(0.into());
        }
        for (group, details) in (first..).map(Group).zip(details) {
            let cell = GroupCell::new(geometry, group, details, &zone);
            cell.free_inodes.store(0, Ordering::Relaxed);
            cell.free.store(0, Ordering::Relaxed);
            cell.longest.store(0, Ordering::Relaxed);
            self.cells.push(cell);
        }
    }

    /// Lets blocks and inodes of new groups be given out, by threads that join the handle's transaction or a later one.
    /// Changes the descriptor of the last one.
    ///
    /// # Errors
    /// I/O failure.
    pub(crate) fn open_groups(
        &self,
        handle: &Handle<'_>,
        first: Group,
        details: &[GroupDetails],
    ) -> Result<()> {
        let (mut blocks_on_disk, mut inodes_on_disk) = (0, 0);
        for (group, details) in (first.0 as usize..).zip(details) {
            let (cell, descriptor) = (&self.cells[group], &details.descriptor);
            blocks_on_disk += i64::from(descriptor.free_clusters);
            inodes_on_disk += i64::from(descriptor.free_inodes);
            // A thread that sees the free count takes the group's lock next, and sees what was done before the count was set.
            cell.open(descriptor, || {
                self.free.add(i64::from(descriptor.free_clusters));
                self.set_longest(cell, descriptor.free_clusters);
                self.free_inodes.add(i64::from(descriptor.free_inodes));
                self.groups_with_inodes.change(cell.number.0, 0, descriptor.free_inodes.min(1));
            });
        }
        self.blocks_on_disk.fetch_add(blocks_on_disk, Ordering::Relaxed);
        self.inodes_on_disk.fetch_add(inodes_on_disk, Ordering::Relaxed);
        self.mark_dirty(handle, Group(first.0 + details.len() as u32 - 1))
    }

    /// Makes a group, which was the last, as long as the superblock has it now. Changes
    /// [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks.
    ///
    /// # Errors
    /// Corruption of its bitmap; I/O failure.
    pub(crate) fn lengthen_group(&self, handle: &Handle<'_>, group: Group) -> Result<()> {
        let cell = &self.cells[group.0 as usize];
        let len = handle.volume().superblock().geometry().blocks_in(group);
        let added = len - cell.len();
        if added == 0 {
            return Ok(());
        }
        self.mark_dirty(handle, group)?;
        let mut blocks = cell.lock_blocks(handle.volume())?;
        cell.lengthen(handle, &mut blocks, len)?;
        let free = cell.free.load(Ordering::Relaxed) + added;
        cell.free.store(free, Ordering::Relaxed);
        self.free.add(i64::from(added));
        self.set_longest(cell, free);
        Ok(())
    }

    /// Holds nothing back, while the filesystem is not in use.
    pub(crate) fn hold_nothing_back(&self) {
        self.kept_for_maps.store(0, Ordering::Relaxed);
        self.held_back.store(0, Ordering::Relaxed);
    }

    /// Holds as many blocks back as the superblock says now.
    pub(crate) fn hold_back(&self, volume: &Volume) {
        let kept_for_maps = volume.superblock().kept_for_maps();
        let held_back = volume.superblock().geometry().reserved_blocks() + kept_for_maps;
        self.kept_for_maps.store(kept_for_maps, Ordering::Relaxed);
        self.held_back.store(held_back, Ordering::Relaxed);
    }
}
