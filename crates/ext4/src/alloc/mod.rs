//! Allocation: which blocks and inodes are free, which are allocated, and how that is recorded on the disk.
//!
//! What changes on disk with each allocation is one bitmap block. Counts, flags and checksums are kept in memory and
//! go into the group descriptors and the superblock once for each transaction, when it is committed. What is freed
//! stays taken in memory until the transaction that freed it is durable: a crash before that brings its old owner back.
//!
//! Two threads that allocate in different groups share nothing but counters in shards. Locks, class `group`: each group
//! has one for its blocks and one for its inodes; a thread holds one at a time.
//!
//! Left out: bigalloc. A filesystem that has it is not opened for writing.

mod allocator;
mod bits;
mod blocks;
mod commit;
mod counters;
mod group;
mod group_change;
mod grow;
mod inode_map;
mod inodes;
mod moved;
mod orders;
mod shrink;
mod trim;
mod zone;

#[cfg(test)]
mod tests;

pub(crate) use allocator::{Allocator, Reservation};

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
    /// What any user stores: a file's bytes, a block of a directory, a symbolic link's target, attributes.
    /// Stops where the reserved blocks begin.
    Data,
    /// As `Data`, by the user whom the superblock reserves blocks for: stops where the blocks begin that Linux keeps
    /// for maps.
    Reserved,
    /// A node of a map: a write to blocks that are allocated already must not fail for lack of one.
    Metadata,
}
