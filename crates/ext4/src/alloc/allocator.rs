//! The free space of a filesystem as it is kept in memory.

use std::sync::Arc;

use undercroft_sync::AppendList;
use undercroft_sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use undercroft_vfs::Result;

use super::counters::Counter;
use super::group::GroupCell;
use super::moved::Moved;
use super::orders::{BLOCK_ORDERS, Orders};
use super::zone::Zone;
use crate::group::{GroupDescriptor, GroupDetails};
use crate::numbers::{FsBlock, Group};
use crate::options::WriteOptions;
use crate::volume::Volume;

/// The free space of a writable filesystem.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(super) cells: AppendList<GroupCell>,
    /// Blocks that may be given out; freed blocks that wait for a commit; inodes.
    pub(super) free: Counter,
    pub(super) pending: Counter,
    pub(super) free_inodes: Counter,
    /// Which groups may have long runs, and which free inodes.
    pub(super) orders: Orders,
    pub(super) groups_with_inodes: Orders,
    /// Where threads make files.
    pub(super) moved: Moved,
    /// Groups whose descriptor has changed in the running transaction: a bit each.
    pub(super) dirty: AppendList<AtomicU64>,
    /// What the descriptors on disk add up to.
    pub(super) blocks_on_disk: AtomicI64,
    pub(super) inodes_on_disk: AtomicI64,
    /// Whether damage was found, and whether the superblock records it.
    pub(super) damaged: AtomicBool,
    pub(super) damage_recorded: AtomicBool,
    /// Free blocks that ordinary data must leave, and those that even the reserving user must leave to maps; the user
    /// ID that the blocks in between are reserved for.
    pub(super) held_back: AtomicU64,
    pub(super) kept_for_maps: AtomicU64,
    pub(super) reserved_for: u32,
    /// Blocks from here on are not given out: where a filesystem is to end that becomes smaller.
    pub(super) fence: AtomicU64,
    /// Groups that share a place for their tables, as the superblock has it; 1 where they do not.
    pub(super) flex_groups: u32,
    pub(super) inodes_per_group: u32,
    pub(super) blocks_per_group: u32,
    /// Blocks of a stripe of the array below; 0 when it is not known.
    pub(super) stripe: u32,
    /// What decides where directories in the root are looked for a place; random unless the generations of inodes have a
    /// seed.
    pub(super) first_place: Option<u32>,
    /// Whether freed blocks are discarded.
    pub(super) discards: bool,
}

/// Consecutive blocks that are reserved in memory. A drop frees those that are left.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(super) allocator: Arc<Allocator>,
    pub(super) first: FsBlock,
    pub(super) len: u64,
}

impl Reservation {
    /// The first block that is left.
    pub(crate) fn first(&self) -> FsBlock {
        self.first
    }

    /// Keeps the first `count` blocks and returns the rest. There must be at least `count`.
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
        let cells: AppendList<GroupCell> = (0..)
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
        // A filesystem that is being filled may be as small as its content.
        let kept_for_maps = if options.logged { superblock.kept_for_maps() } else { 0 };
        let reserved = if options.logged { geometry.reserved_blocks() } else { 0 };
        Ok(Self {
            damaged: AtomicBool::new(damaged),
            damage_recorded: AtomicBool::new(false),
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
            held_back: AtomicU64::new(reserved + kept_for_maps),
            kept_for_maps: AtomicU64::new(kept_for_maps),
            fence: AtomicU64::new(u64::MAX),
            reserved_for: u32::from(superblock.raw().s_def_resuid.get()),
            flex_groups: superblock.groups_per_flex(),
            inodes_per_group: geometry.inodes_per_group(),
            blocks_per_group: geometry.blocks_per_group(),
            stripe: if stripe <= geometry.blocks_per_group() / 2 { stripe } else { 0 },
            first_place: options.generation(0),
            discards: options.discard,
            cells,
        })
    }

    /// Where the inode table of each group begins.
    pub(crate) fn inode_tables(&self) -> impl Iterator<Item = FsBlock> {
        self.cells.iter().map(|cell| cell.inode_table)
    }

    /// A group's descriptor as it is now.
    pub(crate) fn descriptor(&self, group: Group) -> GroupDescriptor {
        self.cells[group.0 as usize].descriptor()
    }

    /// Groups that share a place for their tables: no more than there are, as a power of two, so that sums over them
    /// stay small.
    pub(super) fn flex_groups(&self) -> u32 {
        self.flex_groups.min((self.cells.len() as u32).next_power_of_two())
    }

    /// The group of a block, which lies within the filesystem.
    pub(super) fn cell_of(&self, block: FsBlock) -> &GroupCell {
        let index = (block.0 - self.cells[0].start.0) / u64::from(self.blocks_per_group);
        &self.cells[index as usize]
    }
}
