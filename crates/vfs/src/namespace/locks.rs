//! The locks of operations that change names, and the only code that differs in the plain form.
//!
//! Parallel directory operations lock *names*: a thread that adds, removes or moves a name holds that name
//! exclusively, and nothing more of the directory. The plain form (`pdirops=off`) locks the directory instead, as Linux
//! does; it is chosen in [`NamespaceLocks`], and no other code depends on it.
//!
//! **Removing a directory** must not race with adding names to it. Each directory has a [`RemovalBarrier`]. An adding
//! thread takes the name's lock and then checks the barrier; the removing thread first raises the barrier, then waits
//! until every name that is locked in the directory at that moment has been released. Both change the word of the
//! name's bucket or go through its mutex, so either the adding thread sees the barrier, or the removing thread sees
//! the locked name, waits for it, and finds the directory not empty. Adding costs one load of a cache line that is not
//! written to.
//!
//! | barrier   | means                                     | a thread that adds a name |
//! | --------- | ----------------------------------------- | ------------------------ |
//! | `OPEN`    | the directory is not being removed        | goes on                  |
//! | `RAISED`  | a thread tries to remove it               | releases the name, waits, starts again |
//! | `REMOVED` | it is gone                                | gets `NotFound`          |
//!
//! Lock order: the rename lock, then a barrier, then names (or, in the plain form, directories). No thread waits for a
//! barrier while holding a name, in whichever directory, so the names that a removing thread waits for are released.

use std::sync::atomic::Ordering;

use undercroft_sync::{
    Mutex, MutexGuard, NameGuard, NameLocks, NamePairGuard, RwLockReadGuard, RwLockWriteGuard, WaitQueue,
    order,
};

use super::barrier::{OPEN, RAISED, REMOVED, RemovalBarrier};
use crate::{Error, HashedName, Node, Result};

/// Everything that guards the namespace of one mounted filesystem.
pub(crate) struct NamespaceLocks {
    names: NameLocks,
    parallel: bool,
    rename: Mutex<()>,
    /// Woken when a barrier is not raised any more.
    barriers: WaitQueue,
}

/// Names that are locked until this is dropped.
#[must_use = "the names are unlocked when this is dropped"]
pub(crate) enum Locked<'a> {
    Name { _guard: NameGuard<'a> },
    Names { _guard: NamePairGuard<'a> },
    SharedDirectory { _guard: RwLockReadGuard<'a, ()> },
    Directory { _guard: RwLockWriteGuard<'a, ()> },
    Directories { _second: RwLockWriteGuard<'a, ()>, _first: RwLockWriteGuard<'a, ()> },
}

/// A directory to which no names are added until this is dropped.
#[must_use = "the barrier is lowered when this is dropped"]
pub(crate) struct Raised<'a> {
    locks: &'a NamespaceLocks,
    barrier: &'a RemovalBarrier,
    removed: bool,
}

impl NamespaceLocks {
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            names: NameLocks::new(),
            parallel,
            rename: Mutex::new(&order::RENAME, ()),
            barriers: WaitQueue::new(),
        }
    }

    /// The lock of moves of a directory to another directory.
    pub(crate) fn rename(&self) -> MutexGuard<'_, ()> {
        self.rename.lock()
    }

    /// Begins to fetch the lock of a name that is about to be locked.
    pub(crate) fn expect(&self, dir: &Node, name: &HashedName<'_>) {
        if self.parallel {
            self.names.prefetch(dir.ino().0, name.hash());
        }
    }

    /// Locks a name shared, so that it does not change while it is read.
    pub(crate) fn share<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Locked<'a> {
        match dir.directory() {
            Ok(directory) if !self.parallel => {
                Locked::SharedDirectory { _guard: directory.barrier().plain.read() }
            }
            _ => Locked::Name { _guard: self.names.lock_shared(dir.ino().0, name.hash()) },
        }
    }

    /// Locks a name that is to be removed.
    pub(crate) fn remove<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Result<Locked<'a>> {
        let barrier = dir.directory()?.barrier();
        if !self.parallel {
            return Ok(Locked::Directory { _guard: barrier.plain.write() });
        }
        Ok(Locked::Name { _guard: self.names.lock(dir.ino().0, name.hash()) })
    }

    /// Locks a name that is to be added.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound) when the directory has been removed.
    pub(crate) fn add<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Result<Locked<'a>> {
        let barrier = dir.directory()?.barrier();
        loop {
            let locked = self.remove(dir, name)?;
            match barrier.state.load(Ordering::Relaxed) {
                OPEN => return Ok(locked),
                REMOVED => return Err(Error::NotFound),
                _ => drop(locked),
            }
            self.wait_for(barrier);
        }
    }

    /// Locks the name that is removed and the name that is added.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub(crate) fn move_name<'a>(
        &'a self,
        from: (&'a Node, &HashedName<'_>),
        to: (&'a Node, &HashedName<'_>),
        raised: Option<&Raised<'_>>,
    ) -> Result<Locked<'a>> {
        let (from_barrier, barrier) = (from.0.directory()?.barrier(), to.0.directory()?.barrier());
        debug_assert!(raised.is_none_or(|raised| !std::ptr::eq(raised.barrier, barrier)));
        loop {
            let locked = if self.parallel {
                let (one, other) = ((from.0.ino().0, from.1.hash()), (to.0.ino().0, to.1.hash()));
                Locked::Names { _guard: self.names.lock_two(one, other) }
            } else if std::ptr::eq(from_barrier, barrier) {
                Locked::Directory { _guard: barrier.plain.write() }
            } else {
                let (first, second) =
                    if from.0.ino() < to.0.ino() { (from_barrier, barrier) } else { (barrier, from_barrier) };
                let first = first.plain.write();
                Locked::Directories { _second: second.plain.write_nested(1), _first: first }
            };
            match barrier.state.load(Ordering::Relaxed) {
                OPEN => return Ok(locked),
                REMOVED => return Err(Error::NotFound),
                _ => drop(locked),
            }
            if raised.is_some() {
                // Two threads that each have raised a barrier and wait for the other's would wait for ever.
                return Err(Error::Busy);
            }
            self.wait_for(barrier);
        }
    }

    /// Locks the name that is removed, if that can be done before the name that is added is locked: the plain form
    /// cannot.
    pub(crate) fn remove_first<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Option<NameGuard<'a>> {
        self.parallel.then(|| self.names.lock(dir.ino().0, name.hash()))
    }

    /// Locks the name that is added as well, unless it is held or its directory's barrier is not open.
    pub(crate) fn try_add_too<'a>(
        &'a self,
        removed: NameGuard<'a>,
        dir: &'a Node,
        name: &HashedName<'_>,
    ) -> Option<Locked<'a>> {
        let barrier = dir.directory().ok()?.barrier();
        let pair = self.names.try_lock_too(removed, dir.ino().0, name.hash())?;
        (barrier.state.load(Ordering::Relaxed) == OPEN).then_some(Locked::Names { _guard: pair })
    }

    /// Raises a directory's barrier: when this returns, no thread is adding a name to it.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound) when the directory has been removed.
    pub(crate) fn raise<'a>(&'a self, dir: &'a Node) -> Result<Raised<'a>> {
        let barrier = dir.directory()?.barrier();
        while let Err(found) =
            barrier.state.compare_exchange(OPEN, RAISED, Ordering::Relaxed, Ordering::Relaxed)
        {
            if found == REMOVED {
                return Err(Error::NotFound);
            }
            self.wait_for(barrier);
        }
        let raised = Raised { locks: self, barrier, removed: false };
        if self.parallel {
            self.names.drain(dir.ino().0);
        } else {
            drop(barrier.plain.write());
        }
        Ok(raised)
    }

    fn wait_for(&self, barrier: &RemovalBarrier) {
        self.barriers.wait(|| barrier.state.load(Ordering::Relaxed) != RAISED);
    }
}

impl Raised<'_> {
    /// The directory has been removed: its barrier stays.
    pub(crate) fn removed(mut self) {
        self.removed = true;
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.barrier.state.store(if self.removed { REMOVED } else { OPEN }, Ordering::Relaxed);
        self.locks.barriers.wake_all();
    }
}
