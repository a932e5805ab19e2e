//! What is locked while names change, and the one place where the plain form differs.
//!
//! Parallel directory operations lock *names*: whoever adds, removes or moves a name has that name for itself, and
//! nothing more of the directory. The plain form (`pdirops=off`) locks the directory instead, as Linux does; it is
//! chosen in [`NamespaceLocks`] and nobody else knows.
//!
//! **Removing a directory** must not race with adding names to it. Each directory has a [`Gate`]. Whoever adds a
//! name takes the name's lock and then looks at the gate; whoever removes the directory first closes its gate, then
//! waits until every name that is locked in it at that moment has been let go. Both change the word of the name's
//! bucket or go through its mutex, so either the one who adds sees the closed gate, or the one who removes sees the
//! locked name, waits for it, and finds the directory not empty. Adding costs one load of a cache line that nobody
//! writes.
//!
//! | gate      | means                                     | who adds a name          |
//! | --------- | ----------------------------------------- | ------------------------ |
//! | `OPEN`    | nobody removes the directory              | goes on                  |
//! | `CLOSING` | somebody tries                            | lets go of the name, waits, starts again |
//! | `REMOVED` | it is gone                                | is told so               |
//!
//! Lock order: the rename lock, then a gate, then names (or, in the plain form, directories). Nobody waits for a
//! gate while holding a name, in whichever directory, so who waits for names can count on their being let go.

use std::sync::atomic::{AtomicU8, Ordering};

use undercroft_sync::{
    Mutex, MutexGuard, NameGuard, NameLocks, NamePairGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    WaitQueue, order,
};

use crate::{Error, HashedName, Node, Result};

/// Everything that guards the namespace of one mounted filesystem.
pub(crate) struct NamespaceLocks {
    names: NameLocks,
    parallel: bool,
    rename: Mutex<()>,
    /// Woken when a gate is not closing any more.
    gates: WaitQueue,
}

/// Whether names may be added to a directory, and the directory's lock in the plain form.
pub(crate) struct Gate {
    state: AtomicU8,
    plain: RwLock<()>,
}

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const REMOVED: u8 = 2;

/// Names that are locked until this is dropped.
#[must_use = "the names are unlocked when this is dropped"]
pub(crate) enum Locked<'a> {
    Name { _guard: NameGuard<'a> },
    Names { _guard: NamePairGuard<'a> },
    SharedDirectory { _guard: RwLockReadGuard<'a, ()> },
    Directory { _guard: RwLockWriteGuard<'a, ()> },
    Directories { _second: RwLockWriteGuard<'a, ()>, _first: RwLockWriteGuard<'a, ()> },
}

/// A directory to which nobody adds names until this is dropped.
#[must_use = "the gate opens again when this is dropped"]
pub(crate) struct Closed<'a> {
    locks: &'a NamespaceLocks,
    gate: &'a Gate,
    removed: bool,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(OPEN), plain: RwLock::new(&order::DIRECTORY, ()) }
    }
}

impl NamespaceLocks {
    pub(crate) fn new(parallel: bool) -> Self {
        Self {
            names: NameLocks::new(),
            parallel,
            rename: Mutex::new(&order::RENAME, ()),
            gates: WaitQueue::new(),
        }
    }

    /// The lock of those who move a directory to another directory.
    pub(crate) fn rename(&self) -> MutexGuard<'_, ()> {
        self.rename.lock()
    }

    /// Begins to fetch the lock of a name that is about to be locked.
    pub(crate) fn expect(&self, dir: &Node, name: &HashedName<'_>) {
        if self.parallel {
            self.names.prefetch(dir.ino().0, name.hash());
        }
    }

    /// Keeps `name` as it is while it is read.
    pub(crate) fn share<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Locked<'a> {
        match dir.directory() {
            Ok(directory) if !self.parallel => {
                Locked::SharedDirectory { _guard: directory.gate().plain.read() }
            }
            _ => Locked::Name { _guard: self.names.lock_shared(dir.ino().0, name.hash()) },
        }
    }

    /// Locks a name that is to be removed.
    pub(crate) fn remove<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Result<Locked<'a>> {
        let gate = dir.directory()?.gate();
        if !self.parallel {
            return Ok(Locked::Directory { _guard: gate.plain.write() });
        }
        Ok(Locked::Name { _guard: self.names.lock(dir.ino().0, name.hash()) })
    }

    /// Locks a name that is to be added.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound) when the directory has been removed.
    pub(crate) fn add<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Result<Locked<'a>> {
        let gate = dir.directory()?.gate();
        loop {
            let locked = self.remove(dir, name)?;
            match gate.state.load(Ordering::Relaxed) {
                OPEN => return Ok(locked),
                REMOVED => return Err(Error::NotFound),
                _ => drop(locked),
            }
            self.wait_for(gate);
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
        closed: Option<&Closed<'_>>,
    ) -> Result<Locked<'a>> {
        let (from_gate, gate) = (from.0.directory()?.gate(), to.0.directory()?.gate());
        debug_assert!(closed.is_none_or(|closed| !std::ptr::eq(closed.gate, gate)));
        loop {
            let locked = if self.parallel {
                let (one, other) = ((from.0.ino().0, from.1.hash()), (to.0.ino().0, to.1.hash()));
                Locked::Names { _guard: self.names.lock_two(one, other) }
            } else if std::ptr::eq(from_gate, gate) {
                Locked::Directory { _guard: gate.plain.write() }
            } else {
                let (first, second) =
                    if from.0.ino() < to.0.ino() { (from_gate, gate) } else { (gate, from_gate) };
                let first = first.plain.write();
                Locked::Directories { _second: second.plain.write_nested(1), _first: first }
            };
            match gate.state.load(Ordering::Relaxed) {
                OPEN => return Ok(locked),
                REMOVED => return Err(Error::NotFound),
                _ => drop(locked),
            }
            if closed.is_some() {
                // Two who each hold a gate and wait for the other's would wait for ever.
                return Err(Error::Busy);
            }
            self.wait_for(gate);
        }
    }

    /// Locks the name that is removed, if that can be done before the name that is added is locked: the plain form
    /// cannot.
    pub(crate) fn remove_first<'a>(&'a self, dir: &'a Node, name: &HashedName<'_>) -> Option<NameGuard<'a>> {
        self.parallel.then(|| self.names.lock(dir.ino().0, name.hash()))
    }

    /// Locks the name that is added as well, unless somebody has it or its directory's gate is not open.
    pub(crate) fn try_add_too<'a>(
        &'a self,
        removed: NameGuard<'a>,
        dir: &'a Node,
        name: &HashedName<'_>,
    ) -> Option<Locked<'a>> {
        let gate = dir.directory().ok()?.gate();
        let pair = self.names.try_lock_too(removed, dir.ino().0, name.hash())?;
        (gate.state.load(Ordering::Relaxed) == OPEN).then_some(Locked::Names { _guard: pair })
    }

    /// Closes a directory's gate: when this returns, nobody is adding a name to it.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound) when the directory has been removed.
    pub(crate) fn close<'a>(&'a self, dir: &'a Node) -> Result<Closed<'a>> {
        let gate = dir.directory()?.gate();
        while let Err(found) =
            gate.state.compare_exchange(OPEN, CLOSING, Ordering::Relaxed, Ordering::Relaxed)
        {
            if found == REMOVED {
                return Err(Error::NotFound);
            }
            self.wait_for(gate);
        }
        let closed = Closed { locks: self, gate, removed: false };
        if self.parallel {
            self.names.drain(dir.ino().0);
        } else {
            drop(gate.plain.write());
        }
        Ok(closed)
    }

    fn wait_for(&self, gate: &Gate) {
        self.gates.wait(|| gate.state.load(Ordering::Relaxed) != CLOSING);
    }
}

impl Closed<'_> {
    /// The directory has been removed: its gate stays closed.
    pub(crate) fn removed(mut self) {
        self.removed = true;
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.state.store(if self.removed { REMOVED } else { OPEN }, Ordering::Relaxed);
        self.locks.gates.wake_all();
    }
}
