//! The least log that a filesystem may have: Linux refuses to mount one whose largest transaction might not fit.
//!
//! The largest transaction is found among all kinds that Linux reserves log space for. Each kind reserves the blocks that
//! its B+trees and directories may change at most, so it depends on block, inode and directory sizes and on the height
//! that the trees of a group of this size may reach. Reservations are those with which reflink began, larger than Linux's
//! of today, because kernels of that time must be able to mount the filesystem.
//!
//! Source: the minimum that mkfs.xfs 6.1 names when a log is too small, over block, inode, directory and group sizes and
//! features (`crates/oracle/tests/xfs_mkfs`); the reservations of Linux 6.1.

use super::features::Chosen;

/// A log has no fewer blocks.
const BLOCKS_MIN: u64 = 512;
const BASIC_BLOCK: u64 = 512;
/// Bytes of the log that describe a buffer, beside its content.
const BUFFER_OVERHEAD: u64 = 128;
/// The same of an inode: four operation headers, its description, and the headers of its two maps' blocks.
const INODE_OVERHEAD: u64 = 4 * OPERATION_HEADER + 56 + 2 * LONG_HEADER;
const OPERATION_HEADER: u64 = 12;
const TRANSACTION_HEADER: u64 = 16;
/// Changes of three quotas of each of two owners.
const QUOTA: u64 = 6 * (24 + 104);
/// Levels of a hash tree at most.
const HASH_TREE_LEVELS: u64 = 5;
/// The longest name.
const NAME_MAX: u64 = 256;
/// The largest record, and its headers: one block for each 32 KiB.
const RECORD_BYTES: u64 = 256 << 10;
const RECORD_HEADER_BYTES: u64 = RECORD_BYTES / (32 << 10) * BASIC_BLOCK;
/// The longest symbolic link.
const LINK_BYTES: u64 = 1024;
/// Levels that Linux once allowed for every tree of reverse mappings where files share blocks.
const OLD_RMAP_LEVELS: u64 = 9;
/// Headers of a block of a B+tree: of a group, and of a file's extents.
const SHORT_HEADER: u64 = 56;
const LONG_HEADER: u64 = 72;

/// Sizes that reservations depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) block_bytes: u64,
    pub(super) sector_bytes: u64,
    pub(super) inode_bytes: u64,
    pub(super) dir_block_bytes: u64,
    pub(super) group_blocks: u64,
    /// 0 without a stripe unit.
    pub(super) log_stripe_bytes: u64,
    pub(super) chosen: Chosen,
}

/// A reservation, and how often a transaction may take it anew before it ends.
struct Reservation {
    bytes: u64,
    count: u64,
}

/// Least records of a block of a tree of a group: half of what it has room for, in leaves and in nodes.
struct Fill {
    leaf: u64,
    node: u64,
}

impl Sizes {
    fn fill(&self, record: u64, key_and_pointer: u64) -> Fill {
        let room = self.block_bytes - SHORT_HEADER;
        Fill { leaf: room / record / 2, node: room / key_and_pointer / 2 }
    }

    /// Height of the trees of free space, at most.
    pub(super) fn free_space_levels(&self) -> u64 {
        levels(&self.fill(8, 12), self.group_blocks.div_ceil(2))
    }

    fn inode_levels(&self) -> u64 {
        let inodes = self.group_blocks.next_power_of_two() * (self.block_bytes / self.inode_bytes);
        levels(&self.fill(16, 8), inodes / 64)
    }

    fn refcount_levels(&self) -> u64 {
        if self.chosen.reflink { levels(&self.fill(12, 8), self.group_blocks) } else { 0 }
    }

    /// Height of the tree of reverse mappings at most; where files share blocks it may fill the whole group.
    pub(super) fn rmap_levels(&self) -> u64 {
        let fill = self.fill(24, 44);
        match (self.chosen.rmapbt, self.chosen.reflink) {
            (false, _) => 0,
            (true, false) => levels(&fill, self.group_blocks),
            (true, true) => levels_that_fit(&fill, self.group_blocks),
        }
    }

    /// Height of a file's tree of extents at most; its root lies in the inode and has `root` pointers.
    fn extent_levels(&self, extents: u64, root: u64) -> u64 {
        let least = (self.block_bytes - LONG_HEADER) / 16 / 2;
        let mut blocks = extents.div_ceil(least);
        let mut levels = 1;
        while blocks > 1 {
            blocks = if blocks <= root { 1 } else { blocks.div_ceil(least) };
            levels += 1;
        }
        levels
    }

    fn data_levels(&self) -> u64 {
        self.extent_levels(if self.chosen.nrext64 { (1 << 48) - 1 } else { (1 << 31) - 1 }, 3)
    }

    fn attr_levels(&self) -> u64 {
        self.extent_levels(if self.chosen.nrext64 { (1 << 32) - 1 } else { (1 << 15) - 1 }, 2)
    }

    /// Blocks that entering `count` extents into a map may add to it.
    fn map_growth(&self, count: u64, levels: u64) -> u64 {
        let room = (self.block_bytes - SHORT_HEADER) / 8;
        count.div_ceil(room - room / 2) * (levels - 1)
    }

    /// Blocks that `count` allocations or releases may change in a group's trees.
    fn allocations(&self, count: u64) -> u64 {
        let rmap = match (self.chosen.rmapbt, self.chosen.reflink) {
            (false, _) => 0,
            (true, false) => 2 * self.rmap_levels() - 1,
            (true, true) => 2 * OLD_RMAP_LEVELS - 1,
        };
        count * (2 * (2 * self.free_space_levels() - 1) + rmap)
    }

    fn buffers(count: u64, bytes: u64) -> u64 {
        count * (bytes + BUFFER_OVERHEAD)
    }

    fn blocks(&self, count: u64) -> u64 {
        Self::buffers(count, self.block_bytes)
    }

    fn sectors(&self, count: u64) -> u64 {
        Self::buffers(count, self.sector_bytes)
    }

    fn inodes(&self, count: u64) -> u64 {
        count * (INODE_OVERHEAD + self.inode_bytes)
    }

    /// Inodes are written in clusters of so many bytes.
    fn cluster_bytes(&self) -> u64 {
        (32 * self.inode_bytes).max(self.block_bytes)
    }

    /// All kinds of transactions, as when reflink began.
    fn transactions(&self) -> Vec<Reservation> {
        let Self { block_bytes: block, sector_bytes: sector, chosen, .. } = *self;
        let tree_of_inodes = self.blocks(self.inode_levels()) + self.blocks(self.allocations(1));
        let tree_of_free_inodes = if chosen.finobt { tree_of_inodes } else { 0 };
        // A change in a directory: each level of its hash tree, its data and its index of free space.
        let per_dir_block = self.dir_block_bytes / block;
        let changed = HASH_TREE_LEVELS + 2;
        let directory = self.blocks(
            changed * per_dir_block + changed * self.map_growth(per_dir_block, self.data_levels()) + 1,
        );
        let shared =
            |count| if chosen.reflink { self.blocks(count * (2 * self.refcount_levels() - 1)) } else { 0 };
        let write = QUOTA
            + (self.inodes(1)
                + self.blocks(self.data_levels())
                + self.sectors(3)
                + self.blocks(self.allocations(2))
                + shared(2))
            .max(self.sectors(5) + self.blocks(self.allocations(2)) + shared(2));
        let truncate = QUOTA
            + (self.inodes(1) + self.blocks(self.data_levels() + 1))
                .max(self.sectors(9) + self.blocks(self.allocations(4)) + shared(4));
        let rename =
            QUOTA + (self.inodes(5) + 2 * directory).max(self.sectors(7) + self.blocks(self.allocations(3)));
        let unlinked_add = self.sectors(2) + self.cluster_bytes();
        let unlinked_remove = self.sectors(1) + 2 * self.cluster_bytes();
        let link = QUOTA
            + unlinked_remove
            + (self.inodes(2) + directory).max(self.sectors(3) + self.blocks(self.allocations(1)));
        let remove = QUOTA
            + unlinked_add
            + (self.inodes(2) + directory).max(self.sectors(4) + self.blocks(self.allocations(2)));
        let chunk = self.blocks(self.allocations(1));
        let new_inodes = self.sectors(2) + sector + chunk + tree_of_inodes + tree_of_free_inodes;
        let create = QUOTA
            + new_inodes.max(self.inodes(2) + self.sectors(1) + block + directory + tree_of_free_inodes);
        let chunk_blocks = (64 * self.inode_bytes / block).max(1);
        let free_inode = QUOTA
            + self.inodes(1)
            + self.sectors(3)
            + unlinked_remove
            + chunk
            + Self::buffers(chunk_blocks, 0)
            + tree_of_inodes
            + tree_of_free_inodes;
        let add_attributes = QUOTA
            + self.inodes(1)
            + self.sectors(2)
            + Self::buffers(1, self.dir_block_bytes)
            + self.blocks(self.map_growth(per_dir_block, self.data_levels()) + 1)
            + self.blocks(self.allocations(1));
        let remove_attribute = QUOTA
            + (self.inodes(1)
                + self.blocks(HASH_TREE_LEVELS)
                + block * self.attr_levels()
                + Self::buffers(self.data_levels(), 0))
            .max(self.sectors(5) + self.blocks(self.allocations(2)));
        let often = if chosen.reflink { 8 } else { 2 };
        [
            (write, often),
            (truncate, often),
            (write + Self::buffers(1, block - 1), often),
            (rename, 2),
            (link, 2),
            (remove, 2),
            (create + Self::buffers(1, LINK_BYTES), 3),
            (create, 3),
            (QUOTA + new_inodes + unlinked_add, 2),
            (free_inode, 2),
            (add_attributes, 2),
            (self.set_attribute(), 3),
            (remove_attribute, 3),
        ]
        .map(|(bytes, count)| Reservation { bytes, count })
        .into()
    }

    fn set_attribute(&self) -> u64 {
        QUOTA + self.inodes(1) + self.sectors(1) + self.blocks(HASH_TREE_LEVELS)
    }

    /// The reservation for the largest attribute. Linux counts its bytes as extents here, and so the minimum does.
    fn largest_attribute(&self) -> u64 {
        let levels = self.attr_levels();
        let bytes = self.block_bytes / 2 + self.block_bytes / 4 - NAME_MAX - 1;
        let blocks = HASH_TREE_LEVELS
            + HASH_TREE_LEVELS * self.map_growth(1, levels)
            + bytes.div_ceil(self.block_bytes)
            + self.map_growth(bytes, levels);
        self.set_attribute() + (self.sectors(1) + self.blocks(levels)) * blocks
    }

    /// What a reservation takes of the log, with the headers of its records and what fills them up to the stripe unit.
    fn in_log(&self, reserved: u64) -> u64 {
        let room = RECORD_BYTES - RECORD_HEADER_BYTES;
        let mut bytes = reserved + 2 * OPERATION_HEADER + TRANSACTION_HEADER;
        let mut records = bytes.div_ceil(room);
        bytes += OPERATION_HEADER * records;
        while records == 0 || bytes.div_ceil(room) > records {
            bytes += OPERATION_HEADER;
            records += 1;
        }
        // One more record for the end of the transaction; it and the last one before may need filling up.
        bytes + RECORD_HEADER_BYTES * (records + 1) + 2 * self.log_stripe_bytes.max(BASIC_BLOCK)
    }

    /// The least log in blocks.
    pub(super) fn least_log_blocks(&self) -> u64 {
        let mut largest = Reservation { bytes: 0, count: 1 };
        for one in self.transactions() {
            if one.bytes * one.count > largest.bytes * largest.count {
                largest = one;
            }
        }
        let attribute = self.largest_attribute();
        if attribute > largest.bytes * largest.count {
            largest = Reservation { bytes: attribute, count: 3 };
        }
        let transaction = (self.in_log(largest.bytes) * largest.count).div_ceil(BASIC_BLOCK);
        let stripe = self.log_stripe_bytes / BASIC_BLOCK;
        // Two transactions must fit, with room to spare.
        let needed = 3 * if stripe > 0 {
            transaction.next_multiple_of(stripe) + 2 * stripe
        } else {
            transaction + 2 * BASIC_BLOCK
        };
        needed.div_ceil(self.block_bytes / BASIC_BLOCK).max(BLOCKS_MIN)
    }
}

/// Height of a tree whose blocks are filled to their minimum.
fn levels(fill: &Fill, records: u64) -> u64 {
    let mut blocks = records.div_ceil(fill.leaf);
    let mut levels = 1;
    while blocks > 1 {
        blocks = blocks.div_ceil(fill.node);
        levels += 1;
    }
    levels
}

/// Height of the highest tree that fits in so many blocks.
fn levels_that_fit(fill: &Fill, blocks: u64) -> u64 {
    let (mut level_blocks, mut left, mut levels) = (fill.node, blocks.saturating_sub(1), 1);
    while level_blocks < left {
        left -= level_blocks;
        level_blocks *= fill.node;
        levels += 1;
    }
    levels + u64::from(left > 0)
}
