//! Per-thread slots: open handles and what they changed.
//!
//! Each thread uses one slot of a fixed number, and each slot counts its own handles and lists its own items, so two
//! threads that change different items share no cache line. The transaction is locked for commit in two steps: the
//! commit thread sets the barrier, then waits until no slot has a handle. A joining thread counts its handle first and
//! looks at the barrier second. Whichever comes second sees the other.
//!
//! Locks: one of class `transaction` for each slot's lists.

use undercroft_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use undercroft_sync::{Mutex, WaitQueue, order, thread_number};

use crate::client::HomeOf;
use crate::room::Pool;
use crate::{Client, Item};

/// Slots: more than a machine runs threads at once; a power of two.
pub(crate) const SLOTS: usize = 32;

/// What runs once a transaction is durable.
pub(crate) type AfterCommit<C> = Box<dyn FnOnce(&C) + Send>;

/// Which slot a thread uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotId(usize);

impl SlotId {
    /// The calling thread's.
    pub(crate) fn here() -> Self {
        Self(thread_number() % SLOTS)
    }
}

/// Padded to its own cache lines.
#[repr(align(128))]
pub(crate) struct Slot<C: Client> {
    handles: AtomicU32,
    /// Reserved units that no handle has; see [`Room`](crate::room::Room).
    pub(crate) pool: Pool,
    /// Handles ever started in this slot. Tests and benchmarks use it to show that overwrites start none.
    started: AtomicU64,
    changes: Mutex<Changes<C>>,
}

/// What the handles of one slot, or of all of them, have done in the running transaction.
pub(crate) struct Changes<C: Client> {
    pub(crate) items: Vec<C::Item>,
    /// Homes that stopped being metadata.
    pub(crate) cancelled: Vec<HomeOf<C>>,
    pub(crate) after_commit: Vec<AfterCommit<C>>,
}

/// All slots, and the barrier that locks the running transaction for commit.
pub(crate) struct Slots<C: Client> {
    slots: Box<[Slot<C>]>,
    barrier: AtomicBool,
    /// The commit thread waits here for the open handles to finish.
    drained: WaitQueue,
}

impl<C: Client> Slots<C> {
    pub(crate) fn new() -> Self {
        let slot = || Slot {
            handles: AtomicU32::new(0),
            pool: Pool::default(),
            started: AtomicU64::new(0),
            changes: Mutex::new(&order::TRANSACTION, Changes::default()),
        };
        Self {
            slots: (0..SLOTS).map(|_| slot()).collect(),
            barrier: AtomicBool::new(false),
            drained: WaitQueue::new(),
        }
    }

    pub(crate) fn get(&self, slot: SlotId) -> &Slot<C> {
        &self.slots[slot.0]
    }

    /// Counts a handle, unless the transaction is locked for commit.
    pub(crate) fn join(&self, slot: SlotId) -> bool {
        self.get(slot).handles.fetch_add(1, Ordering::SeqCst);
        if self.is_locked() {
            self.leave(slot);
            return false;
        }
        true
    }

    pub(crate) fn leave(&self, slot: SlotId) {
        self.get(slot).handles.fetch_sub(1, Ordering::SeqCst);
        if self.is_locked() {
            self.drained.wake_all();
        }
    }

    pub(crate) fn count_started(&self, slot: SlotId) {
        self.get(slot).started.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn started(&self) -> u64 {
        self.slots.iter().map(|slot| slot.started.load(Ordering::Relaxed)).sum()
    }

    /// Whether the running transaction is locked for commit.
    pub(crate) fn is_locked(&self) -> bool {
        self.barrier.load(Ordering::SeqCst)
    }

    /// Locks the running transaction for commit: no handle joins, and the open handles have finished on return. Counts
    /// one handle in `slot` for the commit thread.
    pub(crate) fn lock(&self, slot: SlotId) {
        self.barrier.store(true, Ordering::SeqCst);
        self.drained.wait(|| self.slots.iter().all(|slot| slot.handles.load(Ordering::SeqCst) == 0));
        self.get(slot).handles.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets handles join. The pools are empty: they belonged to the last transaction.
    pub(crate) fn unlock(&self) {
        self.barrier.store(false, Ordering::SeqCst);
    }

    pub(crate) fn empty_pools(&self) {
        for slot in &self.slots {
            slot.pool.empty();
        }
    }

    pub(crate) fn add_item(&self, slot: SlotId, item: C::Item) {
        self.get(slot).changes.lock().items.push(item);
    }

    pub(crate) fn add_after_commit(&self, slot: SlotId, then: AfterCommit<C>) {
        self.get(slot).changes.lock().after_commit.push(then);
    }

    /// Returns the number of homes that the slot has cancelled.
    pub(crate) fn add_cancelled(&self, slot: SlotId, home: <C::Item as Item>::Home) -> usize {
        let mut changes = self.get(slot).changes.lock();
        changes.cancelled.push(home);
        changes.cancelled.len()
    }

    /// Takes everything that the running transaction has changed. Its handles have finished.
    pub(crate) fn take_changes(&self) -> Changes<C> {
        let mut all = Changes::default();
        for slot in &self.slots {
            let mut changes = slot.changes.lock();
            all.items.append(&mut changes.items);
            all.cancelled.append(&mut changes.cancelled);
            all.after_commit.append(&mut changes.after_commit);
        }
        all
    }

    /// Whether the running transaction has anything to write.
    pub(crate) fn has_changes(&self) -> bool {
        self.slots.iter().any(|slot| !slot.changes.lock().is_empty())
    }
}

impl<C: Client> Changes<C> {
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.cancelled.is_empty() && self.after_commit.is_empty()
    }
}

impl<C: Client> Default for Changes<C> {
    fn default() -> Self {
        Self { items: Vec::new(), cancelled: Vec::new(), after_commit: Vec::new() }
    }
}
