//! A group in memory: what its descriptor says, and the maps of what is free in it.
//!
//! The maps are loaded when the group is first used. A bitmap on disk shows the running
//! transaction; the map in memory shows what may be given out. They differ by what is reserved and by what the running
//! transaction has freed: both are clear on disk and not free in memory.
//!
//! In a group whose bitmap is wrong nothing is allocated and nothing freed; the superblock's state asks for e2fsck.
//!
//! Locks, class `group`: one for a group's blocks, one for its inodes; a thread holds one at a time.

use std::ops::Range;

use undercroft_sync::atomic::{AtomicU32, Ordering};
use undercroft_sync::{Mutex, MutexGuard, order};
use undercroft_vfs::{Error, Result};

use super::bits::FreeMap;
use super::inode_map::{InodeMap, SLOTS};
use super::zone::Zone;
use crate::error::corrupt_block;
use crate::group::{GroupDescriptor, GroupDetails, GroupFlags, bitmap_checksum};
use crate::numbers::{FsBlock, Group};
use crate::superblock::Geometry;
use crate::transaction::{Block, Tid};
use crate::volume::{Validated, Volume};

/// One block group.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct GroupCell {
    pub(super) number: Group,
    pub(super) start: FsBlock,
    /// Blocks in the group: more when the filesystem grows and the group is its last.
    pub(super) len: AtomicU32,
    /// The filesystem's own blocks in the group, which are never given out: ranges that rise and do not touch.
    pub(super) own: Box<[Range<u32>]>,
    pub(super) block_bitmap: FsBlock,
    pub(super) inode_bitmap: FsBlock,
    pub(super) inode_table: FsBlock,
    /// What the locks guard, for readers without them.
    pub(super) free_inodes: AtomicU32,
    pub(super) used_directories: AtomicU32,
    pub(super) unused_inodes: AtomicU32,
    /// Free blocks by the bitmap on disk.
    pub(super) free_on_disk: AtomicU32,
    /// Blocks that may be given out, and a length that no run of them passes.
    pub(super) free: AtomicU32,
    pub(super) longest: AtomicU32,
    /// Where threads found their last blocks.
    pub(super) cursors: [AtomicU32; SLOTS],
    blocks: Mutex<Blocks>,
    inodes: Mutex<Inodes>,
}

/// The state of a group's blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    /// The bitmap was never written.
    pub(super) uninit: bool,
    checksum: u32,
    /// The bitmap has changed since its checksum was made.
    pub(super) changed: bool,
    map: Option<FreeMap>,
    /// What transactions freed that are not durable yet.
    pub(super) freed: Vec<Freed>,
    /// Free blocks when the descriptor was written last.
    recorded: u32,
    corrupt: bool,
}

/// Blocks that become free when a transaction is durable.
#[derive(Debug)]
pub(super) struct Freed {
    pub(super) tid: Tid,
    pub(super) range: Range<u32>,
}

/// The state of a group's inodes.
#[derive(Debug)]
pub(super) struct Inodes {
    pub(super) uninit: bool,
    /// All of the table has been written.
    pub(super) zeroed: bool,
    checksum: u32,
    pub(super) changed: bool,
    map: Option<InodeMap>,
    /// Free inodes when the descriptor was written last.
    recorded: u32,
    corrupt: bool,
}

/// A group's blocks, locked, with the map loaded.
pub(super) struct BlocksGuard<'a>(MutexGuard<'a, Blocks>);

/// A group's inodes, locked, with the map loaded.
pub(super) struct InodesGuard<'a>(MutexGuard<'a, Inodes>);

impl BlocksGuard<'_> {
    pub(super) fn map(&mut self) -> &mut FreeMap {
        match &mut self.0.map {
            Some(map) => map,
            None => unreachable!("the map was loaded when the lock was taken"),
        }
    }
}

impl std::ops::Deref for BlocksGuard<'_> {
    type Target = Blocks;
    fn deref(&self) -> &Blocks {
        &self.0
    }
}

impl std::ops::DerefMut for BlocksGuard<'_> {
    fn deref_mut(&mut self) -> &mut Blocks {
        &mut self.0
    }
}

impl InodesGuard<'_> {
    pub(super) fn map(&mut self) -> &mut InodeMap {
        match &mut self.0.map {
            Some(map) => map,
            None => unreachable!("the map was loaded when the lock was taken"),
        }
    }
}

impl std::ops::Deref for InodesGuard<'_> {
    type Target = Inodes;
    fn deref(&self) -> &Inodes {
        &self.0
    }
}

impl std::ops::DerefMut for InodesGuard<'_> {
    fn deref_mut(&mut self) -> &mut Inodes {
        &mut self.0
    }
}

impl GroupCell {
    pub(super) fn new(geometry: &Geometry, number: Group, details: &GroupDetails, zone: &Zone) -> Self {
        let start = geometry.group_start(number);
        let len = geometry.blocks_in(number);
        let own = zone
            .within(start.0..start.0 + u64::from(len))
            .map(|range| (range.start - start.0) as u32..(range.end - start.0) as u32)
            .collect();
        let descriptor = &details.descriptor;
        let blocks = Blocks {
            uninit: details.flags.contains(GroupFlags::BLOCK_UNINIT),
            checksum: details.block_bitmap_checksum,
            changed: false,
            map: None,
            freed: Vec::new(),
            recorded: descriptor.free_clusters,
            corrupt: descriptor.free_clusters > len,
        };
        let inodes = Inodes {
            uninit: details.flags.contains(GroupFlags::INODE_UNINIT),
            zeroed: details.flags.contains(GroupFlags::INODE_ZEROED),
            checksum: details.inode_bitmap_checksum,
            changed: false,
            map: None,
            recorded: descriptor.free_inodes,
            corrupt: descriptor.free_inodes > geometry.inodes_per_group()
                || details.used_directories > geometry.inodes_per_group(),
        };
        let free = if blocks.corrupt { 0 } else { descriptor.free_clusters };
        Self {
            number,
            start,
            len: AtomicU32::new(len),
            own,
            block_bitmap: details.block_bitmap,
            inode_bitmap: details.inode_bitmap,
            inode_table: descriptor.inode_table,
            free_inodes: AtomicU32::new(descriptor.free_inodes),
            used_directories: AtomicU32::new(details.used_directories),
            unused_inodes: AtomicU32::new(descriptor.unused_inodes),
            free_on_disk: AtomicU32::new(descriptor.free_clusters),
            free: AtomicU32::new(free),
            longest: AtomicU32::new(free),
            cursors: Default::default(),
            blocks: Mutex::new(&order::GROUP, blocks),
            inodes: Mutex::new(&order::GROUP, inodes),
        }
    }

    /// Whether its counts were wrong when it was opened.
    pub(super) fn has_wrong_counts(&self) -> bool {
        self.blocks.lock().corrupt || self.inodes.lock().corrupt
    }

    /// Whether any inode of the group may be given out.
    pub(super) fn has_inodes(&self) -> bool {
        self.free_inodes.load(Ordering::Relaxed) > 0 && !self.inodes.lock().corrupt
    }

    /// The descriptor as it is now.
    pub(super) fn descriptor(&self) -> GroupDescriptor {
        GroupDescriptor {
            inode_table: self.inode_table,
            free_clusters: self.free_on_disk.load(Ordering::Relaxed),
            free_inodes: self.free_inodes.load(Ordering::Relaxed),
            unused_inodes: self.unused_inodes.load(Ordering::Acquire),
        }
    }

    /// The whole descriptor, to be written, with checksums of the bitmaps as they are; and by how many blocks and
    /// inodes more are free than when this was last asked for. No handle is joined.
    ///
    /// # Errors
    /// I/O failure.
    pub(super) fn record(&self, volume: &Volume) -> Result<(GroupDetails, i64, i64)> {
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let mut flags = GroupFlags::empty();
        let descriptor = self.descriptor();
        let mut blocks = self.blocks.lock();
        if std::mem::take(&mut blocks.changed) && superblock.has_metadata_checksums() {
            let bitmap = volume.read_block(self.block_bitmap)?;
            blocks.checksum = bitmap_checksum(superblock, &bitmap, geometry.blocks_per_group());
        }
        flags.set(GroupFlags::BLOCK_UNINIT, blocks.uninit);
        let more_blocks = i64::from(descriptor.free_clusters) - i64::from(blocks.recorded);
        blocks.recorded = descriptor.free_clusters;
        let block_bitmap_checksum = blocks.checksum;
        drop(blocks);
        let mut inodes = self.inodes.lock();
        if std::mem::take(&mut inodes.changed) && superblock.has_metadata_checksums() {
            let bitmap = volume.read_block(self.inode_bitmap)?;
            inodes.checksum = bitmap_checksum(superblock, &bitmap, geometry.inodes_per_group());
        }
        flags.set(GroupFlags::INODE_UNINIT, inodes.uninit);
        flags.set(GroupFlags::INODE_ZEROED, inodes.zeroed);
        let more_inodes = i64::from(descriptor.free_inodes) - i64::from(inodes.recorded);
        inodes.recorded = descriptor.free_inodes;
        let details = GroupDetails {
            descriptor,
            block_bitmap: self.block_bitmap,
            inode_bitmap: self.inode_bitmap,
            used_directories: self.used_directories.load(Ordering::Relaxed),
            flags,
            block_bitmap_checksum,
            inode_bitmap_checksum: inodes.checksum,
        };
        Ok((details, more_blocks, more_inodes))
    }

    /// The range of the filesystem's blocks that a range of the group's stands for.
    pub(super) fn absolute(&self, range: &Range<u32>) -> Range<u64> {
        self.start.0 + u64::from(range.start)..self.start.0 + u64::from(range.end)
    }

    /// Blocks in the group.
    pub(super) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    /// The filesystem's own blocks in the group.
    #[cfg(test)]
    pub(super) fn own_blocks(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.own.iter().map(|own| self.absolute(own))
    }

    /// Whether any of a range is part of the filesystem itself.
    pub(super) fn is_own(&self, range: &Range<u32>) -> bool {
        let first = self.own.partition_point(|own| own.end <= range.start);
        self.own.get(first).is_some_and(|own| own.start < range.end)
    }

    /// Locks the group's blocks, and loads their map if it is not there.
    ///
    /// # Errors
    /// Corruption of the bitmap, now or before; I/O failure.
    pub(super) fn lock_blocks(&self, volume: &Volume) -> Result<BlocksGuard<'_>> {
        let mut blocks = self.blocks.lock();
        if blocks.corrupt {
            let detail = format!("group {} has a wrong bitmap or count of blocks; run e2fsck", self.number);
            return Err(corrupt_block("block bitmap", self.block_bitmap, detail));
        }
        if blocks.map.is_none() {
            match self.load_blocks(volume, &blocks) {
                Ok(map) => blocks.map = Some(map),
                Err(error) => {
                    blocks.corrupt = matches!(error, Error::Corrupt(_));
                    return Err(error);
                }
            }
        }
        Ok(BlocksGuard(blocks))
    }

    fn load_blocks(&self, volume: &Volume, blocks: &Blocks) -> Result<FreeMap> {
        let wrong = |detail: String| {
            let detail = format!("group {}: {detail}", self.number);
            Err(corrupt_block("block bitmap", self.block_bitmap, detail))
        };
        let mut metadata = self.own.iter().cloned();
        let map = if blocks.uninit {
            let mut map = FreeMap::empty(self.len());
            metadata.for_each(|range| map.take(range));
            map
        } else {
            let map = FreeMap::of_bitmap(&self.block_bitmap(volume, blocks)?.buffer(), self.len());
            if let Some(range) = metadata.find(|range| !map.none_free(range.clone())) {
                let range = self.absolute(&range);
                return wrong(format!(
                    "blocks {} to {} of the filesystem itself are free",
                    range.start,
                    range.end - 1
                ));
            }
            map
        };
        let count = map.count();
        let stated = self.free_on_disk.load(Ordering::Relaxed);
        if count != stated {
            return wrong(format!("{count} blocks are free, the descriptor says {stated}"));
        }
        Ok(map)
    }

    /// The block of the bitmap, validated.
    pub(super) fn block_bitmap(&self, volume: &Volume, blocks: &Blocks) -> Result<Block> {
        let bits = volume.superblock().geometry().blocks_per_group();
        validated_bitmap(
            volume,
            self.number,
            "block bitmap",
            self.block_bitmap,
            Validated::BlockBitmap,
            blocks.checksum,
            bits,
        )
    }

    pub(super) fn inode_bitmap(&self, volume: &Volume, inodes: &Inodes) -> Result<Block> {
        let bits = volume.superblock().geometry().inodes_per_group();
        validated_bitmap(
            volume,
            self.number,
            "inode bitmap",
            self.inode_bitmap,
            Validated::InodeBitmap,
            inodes.checksum,
            bits,
        )
    }

    /// Releases the free blocks of a group that was entered with nothing free; `then` runs before any of them is
    /// allocated.
    pub(super) fn open(&self, descriptor: &GroupDescriptor, then: impl FnOnce()) {
        let _blocks = self.blocks.lock();
        self.free.store(descriptor.free_clusters, Ordering::Relaxed);
        self.free_inodes.store(descriptor.free_inodes, Ordering::Release);
        then();
    }

    /// Locks the group's blocks, whose map has been loaded.
    pub(super) fn relock_blocks(&self) -> BlocksGuard<'_> {
        BlocksGuard(self.blocks.lock())
    }

    /// Locks the group's inodes, and loads their map if it is not there.
    ///
    /// # Errors
    /// Corruption of the bitmap, now or before; I/O failure.
    pub(super) fn lock_inodes(&self, volume: &Volume) -> Result<InodesGuard<'_>> {
        self.with_map(volume, self.inodes.lock())
    }

    /// The same; `None` if another thread holds the lock.
    pub(super) fn try_lock_inodes(&self, volume: &Volume) -> Option<Result<InodesGuard<'_>>> {
        self.inodes.try_lock().map(|inodes| self.with_map(volume, inodes))
    }

    fn with_map<'a>(&self, volume: &Volume, mut inodes: MutexGuard<'a, Inodes>) -> Result<InodesGuard<'a>> {
        if inodes.corrupt {
            let detail = format!("group {} has a wrong bitmap or count of inodes; run e2fsck", self.number);
            return Err(corrupt_block("inode bitmap", self.inode_bitmap, detail));
        }
        if inodes.map.is_none() {
            match self.load_inodes(volume, &inodes) {
                Ok(map) => inodes.map = Some(map),
                Err(error) => {
                    inodes.corrupt = matches!(error, Error::Corrupt(_));
                    return Err(error);
                }
            }
        }
        Ok(InodesGuard(inodes))
    }

    fn load_inodes(&self, volume: &Volume, inodes: &Inodes) -> Result<InodeMap> {
        let geometry = volume.superblock().geometry();
        let per_group = geometry.inodes_per_group();
        let mut map = if inodes.uninit {
            FreeMap::empty(per_group)
        } else {
            FreeMap::of_bitmap(&self.inode_bitmap(volume, inodes)?.buffer(), per_group)
        };
        let count = map.count();
        let stated = self.free_inodes.load(Ordering::Relaxed);
        if count != stated {
            let detail =
                format!("group {}: {count} inodes are free, the descriptor says {stated}", self.number);
            return Err(corrupt_block("inode bitmap", self.inode_bitmap, detail));
        }
        let first = self.number.0 * per_group + 1;
        let reserved = geometry.first_inode().saturating_sub(first).min(per_group);
        for bit in 0..reserved {
            // A bitmap that has a reserved inode free is damaged, but that inode is not given out all the same.
            if map.is_free(bit) {
                map.take(bit..bit + 1);
            }
        }
        Ok(InodeMap::new(map, geometry.block_bytes() / u32::from(geometry.inode_bytes())))
    }
}

/// A bitmap's block, whose checksum holds if it has one.
fn validated_bitmap(
    volume: &Volume,
    group: Group,
    name: &'static str,
    home: FsBlock,
    kind: Validated,
    stored: u32,
    bits: u32,
) -> Result<Block> {
    let superblock = volume.superblock();
    let block = volume.block(home)?;
    if superblock.has_metadata_checksums() {
        let guard = block.lock();
        guard.buffer().verify_once(kind as u32, || {
            let computed = bitmap_checksum(superblock, guard.buffer(), bits);
            if computed == stored {
                return Ok(());
            }
            let detail =
                format!("group {group}: checksum is {stored:#010x}, its content gives {computed:#010x}");
            Err(corrupt_block(name, home, detail))
        })?;
    }
    Ok(block)
}
