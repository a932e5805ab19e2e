//! Space and inodes of the allocation groups, as they change.
//!
//! TODO(header): modules, accounting, locks.

mod account;
mod allocator;
mod chunk;
mod free_list;
mod free_space;
mod group;
mod held;
#[cfg(all(test, feature = "oracle"))]
mod inode_tests;
mod inodes;
mod refcount;
mod rmap;
mod runs;
mod sharing;
mod space;
mod step;
#[cfg(all(test, feature = "oracle"))]
mod tests;
mod trees;
mod unlinked;

use std::sync::Arc;

use undercroft_vfs::{Ino, Result};

use crate::format::{FileBlock, FsBlock};
use crate::options::WriteOptions;
use crate::transaction::Handle;
use crate::volume::Volume;

pub(crate) use self::allocator::Allocator;
pub(crate) use self::held::Held;
pub(crate) use self::inodes::{FREE_INODE_CREDITS, chunk_space, new_inode_credits};
pub(crate) use self::unlinked::LeftUnlinked;

/// What a run of blocks belongs to, as the reverse map has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Blocks of a fork of an inode, from `at` on.
    Fork { ino: Ino, attr: bool, at: FileBlock, unwritten: bool },
    /// A B+tree block of a fork of an inode.
    ForkTree { ino: Ino, attr: bool },
    /// Blocks of the trees of free space and of reverse mappings, and of the free list.
    FreeSpace,
    /// Blocks of the trees of inode chunks.
    InodeTrees,
    /// Blocks of the tree of reference counts.
    RefcountTree,
    /// Inode chunks.
    Inodes,
}
