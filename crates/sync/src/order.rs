//! The lock order of the whole house, outermost first, on one page.
//!
//! A lock may be taken only while every lock the thread holds has a lower rank. Debug builds check it.

use crate::{LockClass, Rank};

/// The shared state of one tree walk.
pub static WALK: LockClass = LockClass::new("walk", Rank(80));
/// The rename lock: taken first by a move of a directory to another directory.
pub static RENAME: LockClass = LockClass::new("rename", Rank(100));
/// A name within a directory.
pub static NAME: LockClass = LockClass::new("name", Rank(200));
/// An inode's own state.
pub static INODE: LockClass = LockClass::new("inode", Rank(300));
/// What an inode keeps in memory about its access control list.
pub static ACL_CACHE: LockClass = LockClass::new("acl_cache", Rank(320));
/// The name cache's list of directories that hold names.
pub static NAME_CLOCK: LockClass = LockClass::new("name_clock", Rank(330));
/// The children of one directory in the name cache.
pub static NAME_CACHE: LockClass = LockClass::new("name_cache", Rank(340));
/// A shard of the inode cache.
pub static INODE_CACHE: LockClass = LockClass::new("inode_cache", Rank(360));
/// One inode on its way from the filesystem into the inode cache.
pub static INODE_LOAD: LockClass = LockClass::new("inode_load", Rank(370));
/// The journal or log handle.
pub static JOURNAL: LockClass = LockClass::new("journal", Rank(400));
/// A block group or allocation group.
pub static GROUP: LockClass = LockClass::new("group", Rank(500));
/// An inode cluster or another index structure.
pub static INDEX: LockClass = LockClass::new("index", Rank(600));
/// A shard of the buffer cache, or one buffer.
pub static BUFFER: LockClass = LockClass::new("buffer", Rank(700));
/// A shard of the orphan list.
pub static ORPHAN: LockClass = LockClass::new("orphan", Rank(800));
/// A hash bucket of the RAID stripe cache.
pub static STRIPE: LockClass = LockClass::new("stripe", Rank(900));
/// A block device's own state.
pub static DEVICE: LockClass = LockClass::new("device", Rank(1000));
