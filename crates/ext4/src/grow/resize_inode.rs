//! The resize inode: it holds the blocks that are reserved for group descriptors, so that no file gets them.
//!
//! It is mapped like a file of ext2, by its double-indirect block only. The reserved blocks behind the primary
//! descriptors are the indirect blocks, and name the blocks at the same place in each group that has a copy of the
//! superblock. When a reserved block becomes one of descriptors, its entry is cleared; when a group gets a copy of the
//! superblock, all reserved blocks name one block more.
//!
//! Source: kernel documentation, "Special inodes", and what mke2fs and resize2fs leave in it.

use undercroft_vfs::{Error, Result};

use crate::alloc::Purpose;
use crate::error::corrupt_inode;
use crate::features::{Compat, RoCompat};
use crate::inode::{self, Inode, InodeFlags, Location};
use crate::numbers::{FsBlock, Group};
use crate::superblock::{Geometry, Superblock};
use crate::transaction::{Block, Handle, Seal};
use crate::volume::Volume;

const STRUCTURE: &str = "resize inode";
const NUMBER: u32 = 7;
/// The slot of the double-indirect block.
const DOUBLE_INDIRECT: usize = 13;

/// The resize inode, validated: it says what the superblock says.
pub(crate) struct ResizeInode {
    inode: Inode,
    location: Location,
    double: Block,
    /// Reserved blocks as they lie behind the descriptors, first to last.
    lists: Vec<Block>,
}

fn wrong<T>(block: Option<FsBlock>, detail: impl Into<String>) -> Result<T> {
    Err(corrupt_inode(STRUCTURE, NUMBER, block, detail.into()))
}

fn entry(bytes: &[u8], index: usize) -> u32 {
    bytes[index * 4..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn set_entry(bytes: &mut [u8], index: usize, value: u64) {
    bytes[index * 4..index * 4 + 4].copy_from_slice(&(value as u32).to_le_bytes());
}

/// Groups that have a copy of the superblock.
pub(crate) fn backups(geometry: &Geometry) -> impl Iterator<Item = Group> + '_ {
    (1..geometry.groups()).map(Group).filter(|&group| geometry.has_superblock(group))
}

/// Where block `index` of the primary descriptors lies, or is to lie.
fn primary(geometry: &Geometry, index: u32) -> FsBlock {
    FsBlock(geometry.descriptor_location(Group(0)).0.0 + u64::from(index))
}

/// Validates a block of block numbers.
fn check_names(bytes: &[u8], home: FsBlock, expected: &[u64]) -> Result<()> {
    for (at, &expected) in expected.iter().enumerate() {
        let found = entry(bytes, at);
        if u64::from(found) != expected {
            return wrong(Some(home), format!("names block {found} in place of block {expected}"));
        }
    }
    Ok(())
}

impl ResizeInode {
    /// Reads and validates it; `None` in a filesystem without one.
    ///
    /// # Errors
    /// Corruption: it does not hold the blocks that the superblock says are reserved. I/O failure.
    pub(crate) fn read(volume: &Volume, superblock: &Superblock) -> Result<Option<Self>> {
        if !superblock.features().compat.contains(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let geometry = superblock.geometry();
        let per_block = geometry.block_bytes() / 4;
        let (now, reserved) = (geometry.descriptor_blocks(), geometry.reserved_descriptor_blocks());
        if reserved > per_block || !has_few_backups(superblock) {
            let detail = format!("{reserved} reserved blocks are more than it can hold");
            return wrong(None, detail);
        }
        let location = inode::locate(volume, NUMBER)?;
        let inode = Inode::read_linked_or_not(volume, NUMBER, location).or_else(|error| match error {
            Error::Stale => wrong(None, "is not in use, and the superblock says that there is one"),
            error => Err(error),
        })?;
        let others = (0..15).filter(|&slot| slot != DOUBLE_INDIRECT);
        if inode.flags.contains(InodeFlags::EXTENTS)
            || others.map(|slot| entry(&inode.i_block, slot)).any(|block| block != 0)
        {
            return wrong(None, "it is mapped by more than a double-indirect block");
        }
        let double = FsBlock(entry(&inode.i_block, DOUBLE_INDIRECT).into());
        if !geometry.contains(double, 1) {
            return wrong(None, format!("its double-indirect block {double} lies outside the filesystem"));
        }
        let double_block = volume.block(double)?;
        let leads = double_block.buffer();
        let mut lists = Vec::with_capacity(reserved as usize);
        let mut expected_leads = vec![0; per_block as usize];
        for index in now..now + reserved {
            let home = primary(geometry, index);
            expected_leads[(index % per_block) as usize] = home.0;
            let list = volume.block(home)?;
            let mut expected: Vec<u64> =
                backups(geometry).map(|group| in_group(geometry, home, group)).collect();
            expected.resize(per_block as usize, 0);
            check_names(&list.buffer(), home, &expected)?;
            lists.push(list);
        }
        check_names(&leads, double, &expected_leads)?;
        Ok(Some(Self { inode, location, double: double_block, lists }))
    }

    /// Blocks that [`change`](Self::change) changes at most, those that become descriptors left out.
    pub(crate) fn credits(&self) -> u32 {
        // The inode, its double-indirect block, bitmaps and descriptors where that is freed or moved, and the lists.
        7 + self.lists.len() as u32
    }

    /// Makes it say what the new superblock says. Reserved blocks that become descriptors are left to the caller.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn change(mut self, handle: &Handle<'_>, old: &Superblock, new: &Superblock) -> Result<()> {
        let geometry = new.geometry();
        if !new.features().compat.contains(Compat::RESIZE_INODE) {
            return self.empty(handle);
        }
        let (before, now) = (old.geometry().descriptor_blocks(), geometry.descriptor_blocks());
        let per_block = geometry.block_bytes() / 4;
        if before != now {
            handle.change_block(&self.double, Seal::Plain, |leads| {
                (before..now).for_each(|index| set_entry(leads, (index % per_block) as usize, 0));
            });
        }
        let known = backups(old.geometry()).count();
        let copies = backups(geometry).count();
        if copies > known {
            for list in &self.lists[(now - before) as usize..] {
                let home = FsBlock(list.number());
                handle.change_block(list, Seal::Plain, |bytes| {
                    for (at, group) in backups(geometry).enumerate().skip(known) {
                        set_entry(bytes, at, in_group(geometry, home, group));
                    }
                });
            }
        }
        let blocks = 1 + u64::from(geometry.reserved_descriptor_blocks()) * (1 + copies as u64);
        self.inode.sectors = blocks << (geometry.block_bits() - 9);
        self.inode.store(handle, self.location)
    }

    /// Makes it say what the new superblock says, which has fewer groups: blocks of descriptors that it does not need are
    /// reserved. Reserved blocks that are too many for it are left to the caller. Changes [`credits`](Self::credits) blocks,
    /// and those of descriptors that are reserved.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn shrink(mut self, handle: &Handle<'_>, old: &Superblock, new: &Superblock) -> Result<()> {
        let geometry = new.geometry();
        let per_block = geometry.block_bytes() / 4;
        let (before, now) = (old.geometry().descriptor_blocks(), geometry.descriptor_blocks());
        let end = now + geometry.reserved_descriptor_blocks();
        handle.change_block(&self.double, Seal::Plain, |leads| {
            leads.fill(0);
            for index in now..end {
                set_entry(leads, (index % per_block) as usize, primary(geometry, index).0);
            }
        });
        let write_list = |home: FsBlock, bytes: &mut [u8]| {
            bytes.fill(0);
            for (at, group) in backups(geometry).enumerate() {
                set_entry(bytes, at, in_group(geometry, home, group));
            }
        };
        for home in (now..before.min(end)).map(|index| primary(geometry, index)) {
            handle.change(home, Seal::Plain, |bytes| write_list(home, bytes))?;
        }
        let kept = end.saturating_sub(before) as usize;
        for list in &self.lists[..kept] {
            handle.change_block(list, Seal::Plain, |bytes| write_list(FsBlock(list.number()), bytes));
        }
        for list in &self.lists[kept..] {
            handle.forget(FsBlock(list.number()));
        }
        let copies = backups(geometry).count() as u64;
        let blocks = 1 + u64::from(geometry.reserved_descriptor_blocks()) * (1 + copies);
        self.inode.sectors = blocks << (geometry.block_bits() - 9);
        self.inode.store(handle, self.location)
    }

    /// Moves its double-indirect block if it lies at or past `end`. Changes [`credits`](Self::credits) blocks at most.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace): nothing has changed then. Corruption; I/O failure.
    pub(crate) fn move_before(mut self, handle: &Handle<'_>, end: FsBlock) -> Result<()> {
        let old = FsBlock(self.double.number());
        if old < end {
            return Ok(());
        }
        let allocator = &handle.writer().allocator;
        let content = self.double.buffer().to_vec();
        let (new, _) = allocator.allocate(handle, FsBlock(0), 1, Purpose::Metadata)?;
        handle.make(new, Seal::Plain, |bytes| bytes.copy_from_slice(&content))?;
        set_entry(&mut self.inode.i_block, DOUBLE_INDIRECT, new.0);
        self.inode.store(handle, self.location)?;
        handle.forget(old);
        allocator.free(handle, old, 1)
    }

    /// All reserved blocks have become descriptors, and no more are reserved.
    fn empty(&mut self, handle: &Handle<'_>) -> Result<()> {
        let double = FsBlock(self.double.number());
        handle.forget(double);
        handle.writer().allocator.free(handle, double, 1)?;
        self.inode.i_block.fill(0);
        self.inode.sectors = 0;
        self.inode.size_bytes = 0;
        self.inode.store(handle, self.location)
    }
}

/// The block at the same place in a group that has a copy.
fn in_group(geometry: &Geometry, home: FsBlock, group: Group) -> u64 {
    home.0 + u64::from(group.0) * u64::from(geometry.blocks_per_group())
}

/// Whether so few groups have copies, whatever the size, that a block can name one of each.
fn has_few_backups(superblock: &Superblock) -> bool {
    let features = superblock.features();
    features.ro_compat.contains(RoCompat::SPARSE_SUPER) || features.compat.contains(Compat::SPARSE_SUPER2)
}
