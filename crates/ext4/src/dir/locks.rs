//! The locks of directories: of the shape of each, and of all leaves.
//!
//! Locks: `index` (class `directory_index`) guards the shape of the directory: which leaf holds which names. Leaves are
//! changed under one of the locks of class `directory_leaf`, with `index` shared. All leaves of the filesystem share a
//! fixed number of these locks, by a hash of their block; a thread holds one at a time. Each lock keeps a handle of the
//! leaf that was last changed under it, so that the next thread need not look it up in the cache, where all threads
//! that change that leaf would contend again. It also notes where that leaf's bytes lie, so that a waiting thread
//! prefetches their cache lines. Lookups and listings take no leaf lock: they read a version of a block, which is
//! always consistent.

use undercroft_cache::Lines;
use undercroft_sync::{Mutex, MutexGuard, StripedRwLock, order, prefetch_for_write};
use undercroft_vfs::Result;

use crate::numbers::FsBlock;
use crate::transaction::Block;
use crate::volume::Volume;

/// What guards a directory's blocks.
#[derive(Debug)]
pub(crate) struct DirectoryLocks {
    pub(super) index: StripedRwLock,
}

impl DirectoryLocks {
    pub(crate) fn new() -> Self {
        Self { index: StripedRwLock::new(&order::DIRECTORY_INDEX, ()) }
    }
}

/// More than threads that change names at once, a power of two.
const LEAF_LOCKS: usize = 64;

/// The locks of all leaves of a filesystem.
#[derive(Debug)]
pub(crate) struct LeafLocks(Box<[LeafLock]>);

/// Padded to its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct LeafLock {
    /// What was last changed under it.
    last: Mutex<Option<Block>>,
    lines: Lines,
}

/// The lock of a leaf, and the leaf.
pub(super) struct LeafGuard<'a> {
    last: MutexGuard<'a, Option<Block>>,
    pub(super) lines: &'a Lines,
}

impl LeafLocks {
    pub(crate) fn new() -> Self {
        let lock = || LeafLock { last: Mutex::new(&order::DIRECTORY_LEAF, None), lines: Lines::new() };
        Self((0..LEAF_LOCKS).map(|_| lock()).collect())
    }

    /// Locks a leaf of a directory whose blocks are not freed meanwhile.
    pub(super) fn lock(&self, volume: &Volume, leaf: FsBlock) -> Result<LeafGuard<'_>> {
        // Fibonacci hashing, so that neighbours do not meet.
        let hash = leaf.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let LeafLock { last: lock, lines } = &self.0[(hash >> 58) as usize % LEAF_LOCKS];
        prefetch_for_write(lock);
        lines.fetch();
        let last = lock.lock();
        if last.as_ref().is_some_and(|block| block.number() == leaf.0 && block.is_current()) {
            return Ok(LeafGuard { last, lines });
        }
        drop(last);
        // Found without the lock: others wait while it is held.
        let block = volume.block(leaf)?;
        let mut last = lock.lock();
        *last = Some(block);
        Ok(LeafGuard { last, lines })
    }
}

impl LeafGuard<'_> {
    pub(super) fn block(&self) -> &Block {
        match &*self.last {
            Some(block) => block,
            None => unreachable!("a leaf's lock that is held has the leaf"),
        }
    }
}
