//! A block in the cache: its newest version, and what its owner keeps beside it.
//!
//! Versions let readers and writers work independently. A reader takes the current version, whose bytes do not change;
//! a log keeps the version that it commits; a writer changes the newest version in place, or makes a new one of it if
//! that version is held.
//!
//! Locks: one of class `block`, held while a version is taken or changed, never over I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, ptr};

use undercroft_sync::{Mutex, MutexGuard, order};

use crate::Buffer;

/// A shared handle of one block in the cache. Holding it keeps the block there. `T` is what the cache's owner, a
/// log, keeps beside each block.
pub struct Block<T = ()>(Arc<Inner<T>>);

struct Inner<T> {
    number: u64,
    /// Set by a look-up, cleared by the clock's hand: the second chance.
    referenced: AtomicBool,
    /// It is not in the cache any more.
    left: AtomicBool,
    state: Mutex<State<T>>,
}

struct State<T> {
    newest: Buffer,
    private: T,
}

impl<T: Default> Block<T> {
    pub(crate) fn new(newest: Buffer) -> Self {
        let number = newest.block();
        let state = Mutex::new(&order::BLOCK, State { newest, private: T::default() });
        Self(Arc::new(Inner {
            number,
            referenced: AtomicBool::new(true),
            left: AtomicBool::new(false),
            state,
        }))
    }
}

impl<T> Block<T> {
    /// The block's number, or the name of the span.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// The newest version.
    #[must_use]
    pub fn buffer(&self) -> Buffer {
        self.0.state.lock().newest.clone()
    }

    /// The block, to be changed. Nothing else of the cache is asked for while the guard lives.
    #[must_use]
    pub fn lock(&self) -> BlockGuard<'_, T> {
        BlockGuard(self.0.state.lock())
    }

    /// Whether both are handles of the same block.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the cache still has the block. A caller that keeps a handle from one change to the next asks before the
    /// next, and must make sure that the block is not [taken out](crate::BufferCache::forget) meanwhile.
    #[must_use]
    pub fn is_current(&self) -> bool {
        !self.0.left.load(Ordering::Acquire)
    }

    /// Where what changes with the block begins.
    pub(crate) fn state_place(&self) -> *const u8 {
        ptr::from_ref(&self.0.state).cast()
    }

    pub(crate) fn leave(&self) {
        self.0.left.store(true, Ordering::Release);
    }

    pub(crate) fn touch(&self) {
        // Test first: a hot block's line then stays shared between cores.
        if !self.0.referenced.load(Ordering::Relaxed) {
            self.0.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it may be dropped; takes its second chance away.
    pub(crate) fn look(&self) -> Look {
        if self.0.referenced.load(Ordering::Relaxed) {
            self.0.referenced.store(false, Ordering::Relaxed);
            return Look::HadSecondChance;
        }
        // The shard's lock is held, so the only handle that could be cloned into a new one is the cache's.
        match Arc::strong_count(&self.0) == 1 && !self.0.state.lock().newest.is_held() {
            true => Look::MayBeDropped,
            false => Look::IsHeld,
        }
    }
}

/// What an eviction finds of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    MayBeDropped,
    /// It was used since the last look, and has no second chance any more.
    HadSecondChance,
    /// The block or its newest version is held.
    IsHeld,
}

impl<T> Clone for Block<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("number", &self.0.number).finish_non_exhaustive()
    }
}

/// A block whose lock is held.
pub struct BlockGuard<'a, T>(MutexGuard<'a, State<T>>);

impl<T> BlockGuard<'_, T> {
    /// The newest version.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.0.newest
    }

    /// The newest version's bytes, to be changed. Versions that others hold stay as they are.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.newest.bytes_mut()
    }

    /// Validation of the old bytes no longer counts: the caller has made all of them.
    pub fn mark_all_validated(&mut self) {
        self.0.newest.bytes_mut();
        self.0.newest.mark_all_validated();
    }

    /// Validation of one kind counts for the newest version: the caller has made what it is about.
    pub fn mark_validated(&mut self, kind: u32) {
        self.0.newest.bytes_mut();
        self.0.newest.mark_validated(kind);
    }

    /// What the owner keeps beside the block.
    #[must_use]
    pub fn private(&self) -> &T {
        &self.0.private
    }

    /// What the owner keeps beside the block, to be changed.
    pub fn private_mut(&mut self) -> &mut T {
        &mut self.0.private
    }
}

impl<T> fmt::Debug for BlockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockGuard").field("number", &self.0.newest.block()).finish_non_exhaustive()
    }
}
