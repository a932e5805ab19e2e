//! Times that are newer in memory than on the disk.
//!
//! A write over what is there changes nothing but times, and starts no handle for them. They reach the disk with the
//! next change of the inode, with a sync, when its last user goes, and with the next timed commit: an inode with late
//! times is listed, so that it is found then.
//!
//! A thread that stores late times may hold an inode longer than the inode cache does, and the inode may be loaded anew
//! meanwhile. So a thread stores times only while it holds the fields and the inode has not been released; the release
//! takes the fields exclusively, which waits for a store that is under way, and stores what is still late itself. Times
//! count as late until they are stored: an inode whose store fails stays in its list.
//!
//! Locks: one of class `late_times` for each list; entries are stored without it. The inode's fields, shared, for a
//! store, under a handle; exclusive for a release.

use std::sync::Weak;

use undercroft_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Result;

use super::InUse;

/// More than threads that a machine runs at once.
const LISTS: usize = 16;

/// Inodes whose times are late.
#[derive(Debug)]
pub(crate) struct LateTimes {
    lists: [Mutex<Vec<Weak<dyn InUse>>>; LISTS],
    next: AtomicUsize,
}

/// Whether an inode's times are late.
#[derive(Debug, Default)]
pub(crate) struct Late(AtomicBool);

impl Late {
    /// Notes that the times are stored. Called with the fields that were stored still locked.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// `true` for the first caller.
    pub(crate) fn set(&self) -> bool {
        !self.is_set() && !self.0.swap(true, Ordering::Relaxed)
    }
}

impl LateTimes {
    pub(crate) fn new() -> Self {
        let lists = std::array::from_fn(|_| Mutex::new(&order::LATE_TIMES, Vec::new()));
        Self { lists, next: AtomicUsize::new(0) }
    }

    /// Stores all of them. Under no handle. If one cannot be stored, the others are stored all the same.
    ///
    /// # Errors
    /// The first failure; what was not stored is late still.
    pub(crate) fn store_all(&self) -> Result<()> {
        let mut outcome = Ok(());
        for list in &self.lists {
            let late = std::mem::take(&mut *list.lock());
            for next in late {
                let Some(inode) = next.upgrade() else { continue };
                if let Err(error) = inode.store_late_times() {
                    list.lock().push(next);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// Stores as many as the running transaction has room for, and waits for nothing: for the thread that commits.
    /// Returns whether that was all of them.
    ///
    /// # Errors
    /// The first failure; what was not stored is late still.
    pub(crate) fn store_what_fits(&self) -> Result<bool> {
        let mut outcome = Ok(true);
        for list in &self.lists {
            let mut late = std::mem::take(&mut *list.lock());
            while let Some(next) = late.pop() {
                let Some(inode) = next.upgrade() else { continue };
                let stored = match inode.store_late_times_if_room() {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        late.push(next);
                        list.lock().append(&mut late);
                        return outcome.and(Ok(false));
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = stored {
                    list.lock().push(next);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// Lists an inode whose times have become late.
    pub(crate) fn add(&self, inode: Weak<dyn InUse>) {
        let list = self.next.fetch_add(1, Ordering::Relaxed) % LISTS;
        self.lists[list].lock().push(inode);
    }
}
