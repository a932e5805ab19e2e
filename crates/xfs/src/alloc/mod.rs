//! Space and inodes of the allocation groups, as they change.
//!
//! | module | what |
//! | --- | --- |
//! | `allocator` | all groups |
//! | `group` | a group: its headers' fields and its lock |
//! | `changing` | the guard under which a group changes; it stores the headers |
//! | `trees` | the group's trees: where they begin, where they get blocks from |
//! | `step` | changes of a tree that are planned before the first is made |
//! | `free_list`, `list_change` | the blocks that the trees of free space and of reverse mappings grow into; filling and shortening that list |
//! | `free_space`, `runs` | free blocks in memory: those in the trees, and those of them that may be given out |
//! | `space` | blocks taken and freed |
//! | `held` | blocks held in memory for data |
//! | `account`, `set_aside` | what can be reserved; what each group keeps for its own trees |
//! | `rmap` | what each block belongs to |
//! | `room` | whether trees can grow, asked before a change |
//! | `refcount`, `sharing` | how many files share blocks |
//! | `inodes`, `chunk` | inodes allocated and freed, in chunks |
//! | `open_chunks`, `chunk_records` | records of chunks that are newer in memory than in the trees |
//! | `trim` | telling the device what is free |
//! | `unlinked` | inodes in use without a name |
//! | `interrupted` | what a crash left in the groups, finished at opening |
//! | `grow` | the last group becomes longer, and groups are added |
//!
//! # Space
//!
//! A free block goes one of two ways. Data is written to blocks that are *held*: reserved and chosen in memory, while the
//! disk still has them free. They are *taken* under a handle, in the transaction that enters them into a map. Metadata is
//! *taken* at once, out of what its handle has reserved. A block that is freed is free on the disk, in the transaction
//! that freed it, and *busy* in memory: not given out before that transaction is durable, because a crash would bring its
//! old owner back, and because the log cancels what was metadata. One exception: in a full group its own trees may take
//! busy blocks. That is safe: metadata is written back only after its transaction is durable, and a block that becomes
//! metadata again in the transaction that cancelled it is not cancelled.
//!
//! A reservation finds its blocks, wherever they lie; `account` says how, and what is set aside so that a deletion, which
//! reserves nothing, finds blocks for trees that grow. [`Allocator::reserve`] answers `false` although blocks are busy:
//! [`Allocator::busy_blocks`] says whether a commit and a second try are of use.
//!
//! Searches read no tree: a group's free space is loaded when the group's blocks are first used, and validated then.
//!
//! # Order
//!
//! - Everything that is done to blocks of a group under one handle is one change for a crash. Callers say what blocks
//!   belong to ([`Allocator::note_owner`], [`Allocator::note_no_owner`]) under the handle under which they take or free
//!   them: freed are blocks that belong to nothing any more.
//! - A block that was metadata is [forgotten](Handle::forget) before it is freed.
//! - One extent taken, freed, noted or counted changes at most [`Allocator::extent_credits`] blocks.
//! - What is wrongly freed (free already, on the free list, a header, the log, a root) is corruption, before anything
//!   changes.
//!
//! # Locks
//!
//! Each group has one lock, of class `group`. A thread holds one at a time, and only while it makes one change or one
//! search: between two calls it has none, and other threads come in. Inside it are the locks of the cache and of its
//! blocks. A change is made under a handle; holding blocks and letting go of them is not. The sums over all groups are
//! atomic numbers, and so is what a search looks at before it locks a group. A reader of a group that the superblock has and
//! the list of groups does not have yet holds the lock under which groups are appended, of the same class.

mod account;
mod allocator;
mod changing;
mod chunk;
mod chunk_records;
mod free_list;
mod free_space;
mod group;
mod grow;
mod held;
#[cfg(all(test, feature = "oracle"))]
mod inode_tests;
mod inodes;
mod interrupted;
mod list_change;
mod open_chunks;
mod refcount;
mod rmap;
mod room;
mod runs;
mod set_aside;
#[cfg(all(test, feature = "oracle"))]
mod shared_tests;
mod sharing;
mod space;
mod step;
#[cfg(all(test, feature = "oracle"))]
mod tests;
mod trees;
mod trim;
mod unlinked;

use std::sync::Arc;

use undercroft_vfs::{Ino, Result};

use crate::format::{FileBlock, FsBlock};
use crate::transaction::Handle;
use crate::volume::Volume;

pub(crate) use self::allocator::{Allocator, GROUPS_MAX};
use self::free_space::Was;
pub(crate) use self::held::Held;
pub(crate) use self::inodes::{
    FREE_INODE_CREDITS, GIVE_BACK_CREDITS, NewNumber, chunk_space, new_inode_credits,
};
pub(crate) use self::interrupted::{Changes, too_much};
pub(crate) use self::set_aside::{all_list_blocks, extent_credits};
pub(crate) use self::space::Goal;

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
    /// Copies of shared blocks that Linux was making: here they are in no tree before a file has them.
    Copies,
}
