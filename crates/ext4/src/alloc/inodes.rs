//! Inode numbers: given out near the parent for files, spread for directories, and freed.
//!
//! Directories at the top are spread over the filesystem, so that what is used together has room to stay together;
//! others stay with their parent unless its part of the disk is fuller than most or crowded with directories. Files go
//! into the group of their directory, or its flex group: a thread that finds another at its directory's group goes to
//! the next one of the flex group and stays there, so that threads that make files in one directory do not take a
//! bitmap's cache lines from each other. The tables of a flex group lie together, so the files still do.
//!
//! A number that is freed can be given out again at once: its slot in the table is in the same transaction.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use undercroft_sync::atomic::Ordering;
use undercroft_sync::thread_number;
use undercroft_vfs::{Error, FileType, Result};

use super::Allocator;
use super::group::{GroupCell, InodesGuard};
use crate::error::corrupt;
use crate::inode::{self, Location, ROOT_INODE};
use crate::numbers::FsBlock;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Places that are compared before a directory at the top is put into the best of them.
const PLACES_COMPARED: u32 = 64;

/// A number for a new inode, and where its slot lies. What is in the slot means nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNumber {
    pub(crate) number: u32,
    pub(crate) location: Location,
}

/// What the groups of a flex group have together, or one group where there are none.
struct Usage {
    free_inodes: u64,
    free_blocks: u64,
    directories: u64,
}

impl Allocator {
    /// Gives out the number of an inode that is made for the sake of the directory `parent`. Changes
    /// [`NEW_INODE_CREDITS`](super::NEW_INODE_CREDITS) blocks.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace); corruption, when only damaged groups are left; I/O failure. Nothing has changed
    /// then.
    pub(crate) fn new_inode(&self, handle: &Handle<'_>, parent: u32, kind: FileType) -> Result<NewNumber> {
        let per_group = handle.volume().superblock().geometry().inodes_per_group();
        let home = (parent.max(1) - 1) / per_group % self.cells.len() as u32;
        let undisturbed = match kind {
            FileType::Directory => None,
            _ => self.take_undisturbed(handle, home, kind),
        };
        let number = match undisturbed {
            Some(number) => number,
            None => self.take_waiting(handle, home, parent, kind)?,
        };
        Ok(NewNumber { number, location: inode::locate(handle.volume(), number)? })
    }

    /// Takes an inode near where it belongs, and waits for other threads if it must.
    fn take_waiting(&self, handle: &Handle<'_>, home: u32, parent: u32, kind: FileType) -> Result<u32> {
        let first = if kind == FileType::Directory { self.group_for_directory(parent, home) } else { home };
        let mut damage = None;
        for group in self.groups_near(first) {
            let cell = &self.cells[group as usize];
            if cell.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            match self.take_inode(handle, cell, kind) {
                Ok(Some(number)) => return Ok(number),
                Ok(None) => {}
                Err(error) => {
                    self.note_inode_damage(cell, &error);
                    damage.get_or_insert(error);
                }
            }
        }
        Err(damage.unwrap_or(Error::NoSpace))
    }

    /// Gives out this very number, which the caller has chosen, for an inode of this kind. Changes
    /// [`NEW_INODE_CREDITS`](super::NEW_INODE_CREDITS) blocks, and all of the inode table that comes into use.
    ///
    /// # Errors
    /// Corruption: there is no such number for a file, or it is in use; I/O failure. Nothing has changed then.
    pub(crate) fn claim_inode(&self, handle: &Handle<'_>, number: u32, kind: FileType) -> Result<Location> {
        let (cell, bit) = self.place_of(handle.volume(), number, "claimed")?;
        let mut inodes = cell.lock_inodes(handle.volume())?;
        if !inodes.map().is_free(bit) {
            return Err(corrupt("inode number", format!("inode {number} is claimed, and in use")));
        }
        self.take_bit(handle, cell, &mut inodes, bit, kind)?;
        drop(inodes);
        inode::locate(handle.volume(), number)
    }

    /// Frees an inode's number. Changes [`FREE_INODE_CREDITS`](super::FREE_INODE_CREDITS) blocks.
    ///
    /// # Errors
    /// Corruption: there is no such inode, or it is not in use. I/O failure. Nothing has changed then.
    pub(crate) fn free_inode(&self, handle: &Handle<'_>, number: u32, was_directory: bool) -> Result<()> {
        let volume = handle.volume();
        let (cell, bit) = self.place_of(volume, number, "freed")?;
        let mut inodes = match cell.lock_inodes(volume) {
            Ok(inodes) => inodes,
            Err(error @ Error::Corrupt(_)) => {
                // As for blocks: e2fsck finds what is unused.
                self.note_inode_damage(cell, &error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.mark_dirty(handle, cell.number)?;
        cell.mark_inode(handle, &mut inodes, bit, false)?;
        inodes.map().give(bit);
        if was_directory {
            change(&cell.used_directories, |count| count.saturating_sub(1));
        }
        self.set_free_inodes(cell, cell.free_inodes.load(Ordering::Relaxed) + 1);
        Ok(())
    }

    /// The group of a file's inode, and its place there.
    fn place_of(&self, volume: &Volume, number: u32, what: &str) -> Result<(&GroupCell, u32)> {
        let geometry = volume.superblock().geometry();
        if number < geometry.first_inode() || number > geometry.inodes() {
            return Err(corrupt("inode number", format!("inode {number} is {what}, which is no file's")));
        }
        let (group, bit) = ((number - 1) / self.inodes_per_group, (number - 1) % self.inodes_per_group);
        Ok((&self.cells[group as usize], bit))
    }

    /// Whether the bitmap says that an inode, which exists, is in use.
    ///
    /// # Errors
    /// Corruption of the bitmap; I/O failure.
    pub(crate) fn is_inode_used(&self, volume: &Volume, number: u32) -> Result<bool> {
        let cell = &self.cells[((number - 1) / self.inodes_per_group) as usize];
        let used = !cell.lock_inodes(volume)?.map().is_free((number - 1) % self.inodes_per_group);
        Ok(used)
    }

    /// Inodes that are not in use.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.free_inodes.sum()
    }

    /// Takes an inode of a group; `None` when it has none left.
    fn take_inode(&self, handle: &Handle<'_>, cell: &GroupCell, kind: FileType) -> Result<Option<u32>> {
        let inodes = cell.lock_inodes(handle.volume())?;
        self.take_any(handle, cell, inodes, kind)
    }

    /// Takes an inode of a group whose inodes are not locked: of the one where the calling thread went last if that is
    /// in the flex group of `home`, of `home` itself, or of another of its flex group. `None` when none of them can be
    /// had without waiting, or all are damaged or full.
    fn take_undisturbed(&self, handle: &Handle<'_>, home: u32, kind: FileType) -> Option<u32> {
        let flex = self.flex_group_of(home);
        let first = self.moved.first(&flex, home);
        for group in (first..flex.end).chain(flex.start..first) {
            let cell = &self.cells[group as usize];
            if cell.free_inodes.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let Some(inodes) = cell.try_lock_inodes(handle.volume()) else { continue };
            let number = match inodes.and_then(|inodes| self.take_any(handle, cell, inodes, kind)) {
                Ok(Some(number)) => number,
                Ok(None) => continue,
                Err(error) => {
                    self.note_inode_damage(cell, &error);
                    continue;
                }
            };
            if group != first {
                self.moved.to(group);
            }
            return Some(number);
        }
        None
    }

    fn take_any(
        &self,
        handle: &Handle<'_>,
        cell: &GroupCell,
        mut inodes: InodesGuard<'_>,
        kind: FileType,
    ) -> Result<Option<u32>> {
        let Some(bit) = inodes.map().choose(thread_number()) else { return Ok(None) };
        self.take_bit(handle, cell, &mut inodes, bit, kind)?;
        Ok(Some(cell.number.0 * self.inodes_per_group + bit + 1))
    }

    /// Takes an inode that is free.
    fn take_bit(
        &self,
        handle: &Handle<'_>,
        cell: &GroupCell,
        inodes: &mut InodesGuard<'_>,
        bit: u32,
        kind: FileType,
    ) -> Result<()> {
        self.mark_dirty(handle, cell.number)?;
        self.extend_used_table(handle, cell, inodes, bit)?;
        cell.mark_inode(handle, inodes, bit, true)?;
        inodes.map().take(bit);
        if kind == FileType::Directory {
            change(&cell.used_directories, |count| count + 1);
        }
        self.set_free_inodes(cell, cell.free_inodes.load(Ordering::Relaxed) - 1);
        Ok(())
    }

    /// Makes the part of the inode table that is in use reach past an inode. Blocks of the table that were never used
    /// are not read but made, all zeroes: what lies there may be anything.
    fn extend_used_table(
        &self,
        handle: &Handle<'_>,
        cell: &GroupCell,
        inodes: &mut InodesGuard<'_>,
        bit: u32,
    ) -> Result<()> {
        let zeroed = inodes.zeroed;
        let map = inodes.map();
        let used = map.len() - cell.unused_inodes.load(Ordering::Relaxed);
        if bit < used {
            return Ok(());
        }
        let block = bit / map.per_block();
        let first = if zeroed { block } else { used.div_ceil(map.per_block()) };
        for block in first.max(used.div_ceil(map.per_block()))..=block {
            handle.make(FsBlock(cell.inode_table.0 + u64::from(block)), Seal::Plain, |_| {})?;
        }
        cell.unused_inodes.store(map.len() - (bit + 1), Ordering::Release);
        Ok(())
    }

    /// Called with the group's inodes locked.
    fn set_free_inodes(&self, cell: &GroupCell, free: u32) {
        let before = cell.free_inodes.swap(free, Ordering::Relaxed);
        self.free_inodes.add(i64::from(free) - i64::from(before));
        self.groups_with_inodes.change(cell.number.0, before.min(1), free.min(1));
    }

    /// A damaged group is passed over; a caller that finds no other gets its error.
    fn note_inode_damage(&self, cell: &GroupCell, error: &Error) {
        if matches!(error, Error::Corrupt(_)) {
            self.groups_with_inodes.change(cell.number.0, 1, 0);
            self.damaged.store(true, Ordering::Relaxed);
        }
    }

    /// The group itself, its flex group, then every other that may have a free inode, once around.
    fn groups_near(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        let flex = self.flex_group_of(group);
        let elsewhere = self.groups_with_inodes.around(0, flex.end % self.cells.len() as u32);
        (group..flex.end).chain(flex.start..group).chain(elsewhere)
    }

    /// The groups of the flex group that `group` is in.
    fn flex_group_of(&self, group: u32) -> Range<u32> {
        let flex_groups = self.flex_groups();
        let first = group / flex_groups * flex_groups;
        first..(first + flex_groups).min(self.cells.len() as u32)
    }

    fn usage(&self, groups: Range<u32>) -> Usage {
        let mut usage = Usage { free_inodes: 0, free_blocks: 0, directories: 0 };
        for cell in groups.map(|group| &self.cells[group as usize]) {
            usage.free_inodes += u64::from(cell.free_inodes.load(Ordering::Relaxed));
            usage.free_blocks += u64::from(cell.free.load(Ordering::Relaxed));
            usage.directories += u64::from(cell.used_directories.load(Ordering::Relaxed));
        }
        usage
    }

    fn group_for_directory(&self, parent: u32, home: u32) -> u32 {
        let flex_groups = self.flex_groups();
        let places = (self.cells.len() as u32).div_ceil(flex_groups);
        let average_inodes = self.free_inodes.about() / u64::from(places);
        let average_blocks = self.free.about() / u64::from(places);
        let home_place = home / flex_groups;
        if parent == ROOT_INODE {
            return self.emptiest_place(average_inodes, average_blocks).unwrap_or(home);
        }
        // Crowded: more directories than a sixteenth of the inodes could hold beyond what is usual.
        let size = u64::from(self.inodes_per_group * flex_groups);
        let block_size = u64::from(self.blocks_per_group) * u64::from(flex_groups);
        let least_inodes = average_inodes.saturating_sub(size / 4).max(1);
        let least_blocks = average_blocks.saturating_sub(block_size / 4);
        for place in (home_place..places).chain(0..home_place).take(PLACES_COMPARED as usize) {
            let groups = self.flex_group_of(place * flex_groups);
            let usage = self.usage(groups.clone());
            let crowded = usage.directories >= size / 16 + usage.free_inodes / 16;
            if !crowded && usage.free_inodes >= least_inodes && usage.free_blocks >= least_blocks {
                return if groups.contains(&home) { home } else { groups.start };
            }
        }
        home
    }

    /// Of some places that are no fuller than usual, the one with the fewest directories. Which are looked at first is
    /// random, unless the new inodes of this filesystem are not.
    fn emptiest_place(&self, average_inodes: u64, average_blocks: u64) -> Option<u32> {
        let flex_groups = self.flex_groups();
        let places = (self.cells.len() as u32).div_ceil(flex_groups);
        let start = match self.first_place {
            Some(number) => number % places,
            None => RandomState::new().hash_one(()) as u32 % places,
        };
        (start..places)
            .chain(0..start)
            .take(PLACES_COMPARED as usize)
            .map(|place| (place * flex_groups, self.usage(self.flex_group_of(place * flex_groups))))
            .filter(|(_, usage)| usage.free_inodes > 0)
            .filter(|(_, usage)| usage.free_inodes >= average_inodes && usage.free_blocks >= average_blocks)
            .min_by_key(|(_, usage)| usage.directories)
            .map(|(group, _)| group)
    }
}

/// Changes a count that its group's lock guards.
fn change(count: &undercroft_sync::atomic::AtomicU32, change: impl FnOnce(u32) -> u32) {
    count.store(change(count.load(Ordering::Relaxed)), Ordering::Relaxed);
}
