//! Allocation: which blocks and inodes are free, who gets which, and how the disk learns of it.
//!
//! What changes on disk with each allocation is one bitmap block. Counts, flags and checksums are kept in memory and
//! go into the group descriptors and the superblock once for each transaction, when it is committed. What is freed
//! stays taken in memory until the transaction that freed it is durable: a crash before that brings its old owner back.
//!
//! Two threads that allocate in different groups share nothing but counters in shards. Locks, class `group`: each group
//! has one for its blocks and one for its inodes; a thread holds one at a time.
//!
//! Left out: bigalloc. A filesystem that has it is not opened for writing.

mod bits;
mod blocks;
mod counters;
mod group;
mod grow;
mod inode_map;
mod inodes;
mod moved;
mod orders;
mod trim;
mod zone;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use undercroft_sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use undercroft_vfs::Result;

use crate::append::Append;
use crate::group::{GroupDescriptor, GroupDetails};
use crate::numbers::{FsBlock, Group};
use crate::superblock::{self, State};
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;
use crate::writer::WriteOptions;
use counters::Counter;
use group::GroupCell;
use moved::Moved;
use orders::{BLOCK_ORDERS, Orders};
use zone::Zone;

/// Blocks that one allocation, one take, or one free within a group changes: the bitmap, and the descriptor's block
/// at the commit.
pub(crate) const ALLOCATE_CREDITS: u32 = 2;

/// Blocks that giving out an inode's number changes: the bitmap, the descriptor's block, and blocks of the inode table
/// that come into use. The inode's own slot lies in the last of these.
pub(crate) const NEW_INODE_CREDITS: u32 = 4;

/// Blocks that freeing an inode's number changes.
pub(crate) const FREE_INODE_CREDITS: u32 = 2;

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What a user stores, whoever it is: a file's bytes, a block of a directory, a symbolic link's target, attributes.
    /// Stops where the reserved blocks begin.
    Data,
    /// As `Data`, by the user whom the superblock reserves blocks for: stops where the blocks begin that Linux keeps for
    /// maps.
    Reserved,
    /// A node of a map: what is written where blocks are allocated already must not fail for want of one.
    Metadata,
}

/// The free space of a filesystem that takes changes.
#[derive(Debug)]
pub(crate) struct Allocator {
    cells: Append<GroupCell>,
    /// Blocks that may be given out; freed blocks that wait for a commit; inodes.
    free: Counter,
    pending: Counter,
    free_inodes: Counter,
    /// Which groups may have long runs, and which free inodes.
    orders: Orders,
    groups_with_inodes: Orders,
    /// Where threads make files.
    moved: Moved,
    /// Groups whose descriptor has changed in the running transaction: a bit each.
    dirty: Append<AtomicU64>,
    /// What the descriptors on disk add up to.
    blocks_on_disk: AtomicI64,
    inodes_on_disk: AtomicI64,
    /// Damage was met, and whether the superblock says so.
    damaged: AtomicBool,
    damage_told: AtomicBool,
    /// Blocks that ordinary data does not get; those among them that nothing but maps gets; the user who gets the others.
    held_back: AtomicU64,
    kept_for_maps: AtomicU64,
    reserved_for: u32,
    /// Groups that share a place for their tables, as the superblock has it; 1 where they do not.
    flex_groups: u32,
    inodes_per_group: u32,
    blocks_per_group: u32,
    /// Blocks of a stripe of the array below; 0 when it is not known.
    stripe: u32,
    /// Whether the device is told of what is freed.
    discards: bool,
}

/// Blocks that lie together and are set aside in memory. What is left of them is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    allocator: Arc<Allocator>,
    first: FsBlock,
    len: u64,
}

impl Reservation {
    /// The first block that is left.
    pub(crate) fn first(&self) -> FsBlock {
        self.first
    }

    /// Cuts off what follows the first `count` blocks, of which there are as many.
    pub(crate) fn split_off(&mut self, count: u64) -> Self {
        assert!(count <= self.len, "{self:?} is cut after {count} blocks");
        let len = std::mem::replace(&mut self.len, count) - count;
        Self { allocator: Arc::clone(&self.allocator), first: FsBlock(self.first.0 + count), len }
    }

    /// How many are left.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.allocator.give_back(self.first, self.len);
    }
}

impl Allocator {
    /// Reads all group descriptors.
    ///
    /// # Errors
    /// Corruption of a descriptor, or of the journal's map; I/O failure.
    pub(crate) fn new(volume: &Volume, options: &WriteOptions) -> Result<Self> {
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let descriptors: Vec<GroupDetails> = (0..geometry.groups())
            .map(|group| {
                let details = GroupDetails::read_on_disk(volume, Group(group))?;
                details.check_bitmaps(volume, Group(group))?;
                Ok(details)
            })
            .collect::<Result<_>>()?;
        let zone = Zone::new(volume, &descriptors)?;
        let cells: Append<GroupCell> = (0..)
            .map(Group)
            .zip(&descriptors)
            .map(|(group, details)| GroupCell::new(geometry, group, details, &zone))
            .collect();
        let (orders, with_inodes) =
            (Orders::new(geometry.groups(), BLOCK_ORDERS), Orders::new(geometry.groups(), 1));
        let (mut free, mut free_inodes) = (0, 0);
        for cell in cells.iter() {
            let blocks = cell.free.load(Ordering::Relaxed);
            let inodes = if cell.has_inodes() { cell.free_inodes.load(Ordering::Relaxed) } else { 0 };
            orders.change(cell.number.0, 0, blocks);
            with_inodes.change(cell.number.0, 0, inodes.min(1));
            free += u64::from(blocks);
            free_inodes += u64::from(inodes);
        }
        let damaged = cells.iter().any(GroupCell::has_wrong_counts);
        let raw = superblock.raw();
        let stripe = match raw.s_raid_stripe_width.get() {
            0 => u32::from(raw.s_raid_stride.get()),
            width => width,
        };
        let kept_for_maps = crate::statfs::reserved_by_linux(volume);
        Ok(Self {
            damaged: AtomicBool::new(damaged),
            damage_told: AtomicBool::new(false),
            free: Counter::new(free),
            pending: Counter::new(0),
            free_inodes: Counter::new(free_inodes),
            orders,
            groups_with_inodes: with_inodes,
            moved: Moved::new(),
            dirty: (0..geometry.groups().div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            blocks_on_disk: AtomicI64::new(
                descriptors.iter().map(|d| i64::from(d.descriptor.free_clusters)).sum(),
            ),
            inodes_on_disk: AtomicI64::new(
                descriptors.iter().map(|d| i64::from(d.descriptor.free_inodes)).sum(),
            ),
            held_back: AtomicU64::new(geometry.reserved_blocks() + kept_for_maps),
            kept_for_maps: AtomicU64::new(kept_for_maps),
            reserved_for: u32::from(superblock.raw().s_def_resuid.get()),
            flex_groups: superblock.groups_per_flex(),
            inodes_per_group: geometry.inodes_per_group(),
            blocks_per_group: geometry.blocks_per_group(),
            stripe: if stripe <= geometry.blocks_per_group() / 2 { stripe } else { 0 },
            discards: options.discard,
            cells,
        })
    }

    /// A group's descriptor as it is now.
    pub(crate) fn descriptor(&self, group: Group) -> GroupDescriptor {
        self.cells[group.0 as usize].descriptor()
    }

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
        let damage = self.damaged.load(Ordering::Relaxed) && !self.damage_told.swap(true, Ordering::Relaxed);
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
    fn mark_dirty(&self, handle: &Handle<'_>, group: Group) -> Result<()> {
        let (word, bit) = (&self.dirty[group.0 as usize / 64], 1 << (group.0 % 64));
        // Test first: most changes are not the first in their transaction.
        if word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (block, _) = handle.volume().superblock().geometry().descriptor_location(group);
            handle.change(block, Seal::Plain, |_| ())?;
        }
        Ok(())
    }

    /// Groups that share a place for their tables: no more than there are, as a power of two, so that sums over them stay
    /// small.
    fn flex_groups(&self) -> u32 {
        self.flex_groups.min((self.cells.len() as u32).next_power_of_two())
    }

    /// The group of a block, which lies within the filesystem.
    fn cell_of(&self, block: FsBlock) -> &GroupCell {
        let index = (block.0 - self.cells[0].start.0) / u64::from(self.blocks_per_group);
        &self.cells[index as usize]
    }
}
