//! The locks of leaves of hash indexes and of blocks of names.
//!
//! Locks: all leaves of a filesystem share a fixed number of locks (class `directory_leaf`), by their place, and all blocks
//! of names others (class `directory_data`). A thread holds one of each at most, the leaf's first, with the directory's
//! names shared. They are held while blocks of the directory are read that are not cached.

use undercroft_sync::{Mutex, MutexGuard, order};

use crate::format::FsBlock;

/// More than threads that change names at once, a power of two.
const LOCKS: usize = 64;

/// The locks of a filesystem.
#[derive(Debug)]
pub(crate) struct BlockLocks {
    leaves: Box<[BlockLock]>,
    data: Box<[BlockLock]>,
}

/// Padded to its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct BlockLock(Mutex<()>);

impl BlockLocks {
    pub(crate) fn new() -> Self {
        let locks = |class| (0..LOCKS).map(|_| BlockLock(Mutex::new(class, ()))).collect();
        Self { leaves: locks(&order::DIRECTORY_LEAF), data: locks(&order::DIRECTORY_DATA) }
    }

    pub(super) fn leaf(&self, home: FsBlock) -> MutexGuard<'_, ()> {
        self.leaves[place(home)].0.lock()
    }

    pub(super) fn data(&self, home: FsBlock) -> MutexGuard<'_, ()> {
        self.data[place(home)].0.lock()
    }

    /// The same unless another thread has it.
    pub(super) fn try_data(&self, home: FsBlock) -> Option<MutexGuard<'_, ()>> {
        self.data[place(home)].0.try_lock()
    }
}

/// Fibonacci hashing, so that neighbours do not meet.
fn place(home: FsBlock) -> usize {
    (home.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % LOCKS
}
