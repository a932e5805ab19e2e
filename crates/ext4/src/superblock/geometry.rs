//! Sizes and counts, validated against each other and against the device.

use undercroft_vfs::Result;

use super::raw::{REVISION_ORIGINAL, RawSuperblock};
use crate::error::corrupt;
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::numbers::{FsBlock, Group};

const STRUCTURE: &str = "superblock";

/// What mke2fs decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    block_bits: u32,
    cluster_bits: u32,
    blocks: u64,
    reserved_blocks: u64,
    first_data_block: u32,
    blocks_per_group: u32,
    clusters_per_group: u32,
    groups: u32,
    inodes: u32,
    inodes_per_group: u32,
    inode_bytes: u16,
    first_inode: u32,
    descriptor_bytes: u16,
    /// First group-descriptor block that lies in its own meta group; `u32::MAX` without `meta_bg`.
    first_meta_group: u32,
    backups: Backups,
    reserved_descriptor_blocks: u16,
}

/// Which groups begin with a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    EveryGroup,
    PowersOf357,
    Two([u32; 2]),
}

impl Geometry {
    pub(super) fn validate(raw: &RawSuperblock, features: &Features, device_bytes: u64) -> Result<Self> {
        let wrong = |detail: String| Err(corrupt(STRUCTURE, detail));
        let original = raw.s_rev_level.get() == REVISION_ORIGINAL;

        let log_block_size = raw.s_log_block_size.get();
        if log_block_size > 6 {
            return wrong(format!("block size is 1 KiB << {log_block_size}; the largest is 64 KiB"));
        }
        let block_bits = 10 + log_block_size;
        let block_bytes = 1u32 << block_bits;

        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let log_cluster_size = raw.s_log_cluster_size.get();
        let cluster_bits = if bigalloc { 10u32.saturating_add(log_cluster_size) } else { block_bits };
        if cluster_bits < block_bits || cluster_bits > 29 {
            return wrong(format!(
                "cluster size is 1 KiB << {log_cluster_size} with blocks of {block_bytes} bytes"
            ));
        }

        let sixty_four_bit = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        let wide = |lo: u32, hi: u32| u64::from(lo) | if sixty_four_bit { u64::from(hi) << 32 } else { 0 };
        let blocks = wide(raw.s_blocks_count_lo.get(), raw.s_blocks_count_hi.get());
        let device_blocks = device_bytes >> block_bits;
        if blocks > device_blocks {
            return wrong(format!(
                "the filesystem has {blocks} blocks of {block_bytes} bytes, the device only {device_blocks}; \
                 the image may be cut short"
            ));
        }
        let first_data_block = raw.s_first_data_block.get();
        let expected_first = u32::from(block_bits == 10 && cluster_bits == 10);
        if u64::from(first_data_block) >= blocks || first_data_block > 1 || first_data_block < expected_first
        {
            return wrong(format!("first data block is {first_data_block} of {blocks}"));
        }

        let blocks_per_group = raw.s_blocks_per_group.get();
        let clusters_per_group = if bigalloc { raw.s_clusters_per_group.get() } else { blocks_per_group };
        let per_bitmap = block_bytes * 8;
        if clusters_per_group == 0
            || clusters_per_group > per_bitmap
            || u64::from(clusters_per_group) << (cluster_bits - block_bits) != u64::from(blocks_per_group)
        {
            return wrong(format!("{blocks_per_group} blocks and {clusters_per_group} clusters per group"));
        }
        let groups = (blocks - u64::from(first_data_block)).div_ceil(u64::from(blocks_per_group));
        let Ok(groups) = u32::try_from(groups) else {
            return wrong(format!("{groups} block groups"));
        };

        let inode_bytes = if original { 128 } else { raw.s_inode_size.get() };
        if inode_bytes < 128 || !inode_bytes.is_power_of_two() || u32::from(inode_bytes) > block_bytes {
            return wrong(format!("inode size is {inode_bytes} bytes"));
        }
        let first_inode = if original { 11 } else { raw.s_first_ino.get() };
        if first_inode < 11 {
            return wrong(format!("first inode for files is {first_inode}"));
        }
        let inodes_per_group = raw.s_inodes_per_group.get();
        if inodes_per_group == 0 || inodes_per_group > per_bitmap {
            return wrong(format!("{inodes_per_group} inodes per group"));
        }
        let inodes = raw.s_inodes_count.get();
        if u64::from(groups) * u64::from(inodes_per_group) != u64::from(inodes) {
            return wrong(format!("{inodes} inodes, but {groups} groups with {inodes_per_group} each"));
        }

        let descriptor_bytes = if sixty_four_bit { raw.s_desc_size.get() } else { 32 };
        if sixty_four_bit && !(descriptor_bytes.is_power_of_two() && (64..=1024).contains(&descriptor_bytes))
        {
            return wrong(format!("group descriptors are {descriptor_bytes} bytes long"));
        }
        let meta_bg = features.incompat.contains(Incompat::META_BG);
        let descriptor_blocks = groups.div_ceil(block_bytes / u32::from(descriptor_bytes));
        let first_meta_group = if meta_bg { raw.s_first_meta_bg.get() } else { u32::MAX };
        if meta_bg && first_meta_group > descriptor_blocks {
            return wrong(format!("first meta group is {first_meta_group} of {descriptor_blocks}"));
        }

        let backups = if features.compat.contains(Compat::SPARSE_SUPER2) {
            Backups::Two(raw.s_backup_bgs.map(zerocopy::little_endian::U32::get))
        } else if features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            Backups::PowersOf357
        } else {
            Backups::EveryGroup
        };
        let reserved_blocks = wide(raw.s_r_blocks_count_lo.get(), raw.s_r_blocks_count_hi.get());
        Ok(Self {
            block_bits,
            cluster_bits,
            blocks,
            reserved_blocks: reserved_blocks.min(blocks),
            first_data_block,
            blocks_per_group,
            clusters_per_group,
            groups,
            inodes,
            inodes_per_group,
            inode_bytes,
            first_inode,
            descriptor_bytes,
            first_meta_group,
            backups,
            reserved_descriptor_blocks: raw.s_reserved_gdt_blocks.get(),
        })
    }

    /// Block size in bytes: 1 KiB to 64 KiB.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_bits
    }

    /// Base-2 logarithm of the block size.
    #[must_use]
    pub fn block_bits(&self) -> u32 {
        self.block_bits
    }

    /// Unit of allocation in bytes: the block size, or more with `bigalloc`.
    #[must_use]
    pub fn cluster_bytes(&self) -> u32 {
        1 << self.cluster_bits
    }

    /// Blocks in a cluster.
    #[must_use]
    pub fn blocks_per_cluster(&self) -> u32 {
        1 << (self.cluster_bits - self.block_bits)
    }

    /// Blocks in the filesystem, from the device's first byte on.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size of the filesystem in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.blocks << self.block_bits
    }

    /// Blocks kept for the superuser.
    #[must_use]
    pub fn reserved_blocks(&self) -> u64 {
        self.reserved_blocks
    }

    /// Where the first group begins: 1 with blocks of 1 KiB, otherwise 0.
    #[must_use]
    pub fn first_data_block(&self) -> u32 {
        self.first_data_block
    }

    /// Block groups.
    #[must_use]
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Blocks in every group but perhaps the last.
    #[must_use]
    pub fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Units of allocation in every group but perhaps the last: what one block bitmap counts.
    pub(crate) fn clusters_per_group(&self) -> u32 {
        self.clusters_per_group
    }

    /// Inodes, used or not.
    #[must_use]
    pub fn inodes(&self) -> u32 {
        self.inodes
    }

    /// Inodes in each group.
    #[must_use]
    pub fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Size of an inode on disk in bytes.
    #[must_use]
    pub fn inode_bytes(&self) -> u16 {
        self.inode_bytes
    }

    /// The first inode number that is not reserved.
    #[must_use]
    pub fn first_inode(&self) -> u32 {
        self.first_inode
    }

    pub(crate) fn descriptor_bytes(&self) -> u16 {
        self.descriptor_bytes
    }

    pub(crate) fn inode_table_blocks(&self) -> u32 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_bytes))
            .div_ceil(u64::from(self.block_bytes())) as u32
    }

    /// The first block of a group.
    pub(crate) fn group_start(&self, group: Group) -> FsBlock {
        FsBlock(u64::from(self.first_data_block) + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Blocks in a group: the last may have fewer than the others.
    pub(crate) fn blocks_in(&self, group: Group) -> u32 {
        (self.blocks - self.group_start(group).0).min(u64::from(self.blocks_per_group)) as u32
    }

    /// Whether `count` blocks from `first` on lie within the filesystem, after its first superblock.
    pub(crate) fn contains(&self, first: FsBlock, count: u64) -> bool {
        first.0 > u64::from(self.first_data_block)
            && first.0.checked_add(count).is_some_and(|end| end <= self.blocks)
    }

    /// The block that holds a group's descriptor, and the byte at which it begins there.
    pub(crate) fn descriptor_location(&self, group: Group) -> (FsBlock, usize) {
        let per_block = self.descriptors_per_block();
        let (index, slot) = (group.0 / per_block, group.0 % per_block);
        let byte = slot as usize * usize::from(self.descriptor_bytes);
        // Where the superblock's own block is: 1 KiB into the device.
        let superblock_block = u64::from(self.block_bits == 10);
        if index < self.first_meta_group {
            return (FsBlock(superblock_block + 1 + u64::from(index)), byte);
        }
        let first_of_meta = Group(index * per_block);
        let mut after_superblock = u64::from(self.has_superblock(first_of_meta));
        if self.block_bits == 10 && index == 0 && self.first_data_block == 0 {
            // Group 0 begins a block before the superblock.
            after_superblock += 1;
        }
        (FsBlock(self.group_start(first_of_meta).0 + after_superblock), byte)
    }

    /// Blocks of group descriptors that lie together after each copy of the superblock.
    pub(crate) fn descriptor_blocks_before_meta_groups(&self) -> u32 {
        self.descriptor_blocks().min(self.first_meta_group)
    }

    /// Blocks that all descriptors fill, wherever they lie.
    pub(crate) fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descriptors_per_block())
    }

    /// Blocks behind the descriptors, at the start of each group that has a superblock, into which these may grow.
    pub(crate) fn reserved_descriptor_blocks(&self) -> u32 {
        u32::from(self.reserved_descriptor_blocks)
    }

    /// The first block of descriptors that lies in its own meta group; `u32::MAX` without `meta_bg`.
    pub(crate) fn first_meta_group(&self) -> u32 {
        self.first_meta_group
    }

    pub(crate) fn descriptors_per_block(&self) -> u32 {
        self.block_bytes() / u32::from(self.descriptor_bytes)
    }

    /// Whether a group begins with the superblock or a copy of it.
    pub(crate) fn has_superblock(&self, group: Group) -> bool {
        let g = group.0;
        g == 0
            || match self.backups {
                Backups::EveryGroup => true,
                Backups::Two(backups) => backups.contains(&g),
                Backups::PowersOf357 => g == 1 || [3, 5, 7].into_iter().any(|base| is_power_of(g, base)),
            }
    }

    /// Blocks of group descriptors, and reserved for more, at the start of a group.
    pub(crate) fn descriptor_blocks_in(&self, group: Group) -> u32 {
        let per_block = self.descriptors_per_block();
        let all = self.groups.div_ceil(per_block);
        if group.0 / per_block >= self.first_meta_group {
            // In a meta group its first, second and last group hold a copy of its one descriptor block.
            let place = group.0 % per_block;
            return u32::from(place == 0 || place == 1 || place == per_block - 1);
        }
        if !self.has_superblock(group) {
            return 0;
        }
        all.min(self.first_meta_group) + u32::from(self.reserved_descriptor_blocks)
    }
}

fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers() {
        let groups: Vec<u32> = (1..130).filter(|&g| [3, 5, 7].iter().any(|&b| is_power_of(g, b))).collect();
        assert_eq!(groups, [1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert!(!is_power_of(0, 3));
    }
}
