//! The locked names of a bucket as a list, with the waiters of each; guarded by the bucket's mutex.
//!
//! A name has at most one entry, and it has one exactly while it is held by this list. Waiters queue at the entry,
//! first come first served, and a release hands the name over: the next holders have it before they are woken.

use std::collections::VecDeque;
use std::sync::Arc;

use super::key::Key;
use crate::stats::Mode;
use crate::waiter::Waiter;

pub(super) struct Names {
    next_id: EntryId,
    /// In no order. Seldom more than two: as many as there are threads at work in this bucket.
    entries: Vec<Entry>,
}

/// Numbers the entries of a bucket as they come. A name that is handed on keeps its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId(u64);

/// A name that is locked.
pub(super) struct Entry {
    pub(super) id: EntryId,
    pub(super) key: Key,
    /// How it is held now.
    mode: Mode,
    /// By how many; never 0, and 1 if exclusive.
    holders: usize,
    /// In the order they came.
    queue: VecDeque<Queued>,
}

struct Queued {
    mode: Mode,
    waiter: Arc<Waiter>,
}

/// What became of a name that a holder released.
pub(super) enum Released {
    StillShared,
    /// Its entry, to be freed outside the bucket's mutex.
    Free(Entry),
    /// It belongs to these threads now, which must be woken.
    HandedOver(Vec<Arc<Waiter>>),
}

impl EntryId {
    pub(super) const FIRST: Self = Self(0);

    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Names {
    pub(super) fn new() -> Self {
        Self { next_id: EntryId::FIRST, entries: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number that the next entry will get: all that are here have lower ones.
    pub(super) fn next_id(&self) -> EntryId {
        self.next_id
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// Adds a name, which has no entry, as held by one.
    pub(super) fn push(&mut self, key: Key, mode: Mode) {
        let id = self.next_id;
        self.next_id = id.next();
        self.entries.push(Entry { id, key, mode, holders: 1, queue: VecDeque::new() });
    }

    /// Takes a name that is free, or shared and to be shared. Otherwise its entry, to queue at.
    pub(super) fn try_take(&mut self, key: Key, mode: Mode) -> Result<(), &mut Entry> {
        let Some(at) = self.entries.iter().position(|entry| entry.key == key) else {
            self.push(key, mode);
            return Ok(());
        };
        let entry = &mut self.entries[at];
        // Readers do not overtake queued waiters.
        if mode == Mode::Shared && entry.mode == Mode::Shared && entry.queue.is_empty() {
            entry.holders += 1;
            return Ok(());
        }
        Err(entry)
    }

    /// Lets one holder of the name go.
    pub(super) fn release(&mut self, key: Key) -> Released {
        let at = self.entries.iter().position(|entry| entry.key == key).expect("a held name has an entry");
        let entry = &mut self.entries[at];
        entry.holders -= 1;
        if entry.holders > 0 {
            return Released::StillShared;
        }
        let heirs = entry.hand_over();
        if heirs.is_empty() {
            return Released::Free(self.entries.swap_remove(at));
        }
        Released::HandedOver(heirs)
    }
}

impl Entry {
    /// The thread that sleeps on `waiter` holds the name in `mode` when woken.
    pub(super) fn enqueue(&mut self, mode: Mode, waiter: Arc<Waiter>) {
        self.queue.push_back(Queued { mode, waiter });
    }

    /// Gives the name, which is free now, to the first in the queue, or to all the readers at its head.
    fn hand_over(&mut self) -> Vec<Arc<Waiter>> {
        let Some(first) = self.queue.pop_front() else {
            return Vec::new();
        };
        self.mode = first.mode;
        let mut heirs = vec![first.waiter];
        if first.mode == Mode::Shared {
            while let Some(next) = self.queue.pop_front_if(|next| next.mode == Mode::Shared) {
                heirs.push(next.waiter);
            }
        }
        self.holders = heirs.len();
        heirs
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl Names {
    /// How many threads queue for a name.
    pub(super) fn queued(&self, key: Key) -> usize {
        self.entries.iter().find(|entry| entry.key == key).map_or(0, |entry| entry.queue.len())
    }
}
