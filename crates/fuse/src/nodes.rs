//! The inodes that the kernel knows: how many times each was handed out, and handles of those in use.
//!
//! The kernel names an inode by a node id and gives each id back with as many forgets as it was handed out. An
//! id is in the table exactly while its count is above zero. Node ids are inode numbers, except the root's, which
//! the protocol fixes at 1; the root is never counted and not in the table.
//!
//! **Handles.** On a mount that can be written to, every inode that the kernel knows is held: it may have lost its
//! last name and must live on until the kernel lets go. The kernel alone bounds their number. On a read-only mount
//! inodes are found again by number, so a handle is kept only for directories that are looked into and files that
//! are read, and for no more than [`PINNED_MAX`] of them.
//!
//! The table is read and changed without waiting. States of an entry's count:
//!
//! | count | in the table | meaning                                                        |
//! | ----- | ------------ | -------------------------------------------------------------- |
//! | n > 0 | yes          | the kernel holds n                                             |
//! | 0     | for a moment | given back; never counts up again; the thread that finds it removes it |
//!
//! A count changes by compare-and-swap so that zero is final; a thread that hands the inode out at that moment
//! makes a new entry. The thread that takes the count to zero takes the handle out and drops it then and there, since the
//! table frees its entries at leisure and the space of a deleted file must not wait for that.
//!
//! Locks: the one of a handle (`kernel_inode`), only to copy, put or take it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use papaya::HashMap;
use undercroft_sync::{Mutex, order};
use undercroft_vfs::{Ino, Node};

use crate::space::Returning;

/// How the kernel names an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// The root directory's.
    pub(crate) const ROOT: Self = Self(1);
}

/// Handles kept for a read-only mount: enough for the directories and files that are busy at one time, and a few
/// megabytes at most.
const PINNED_MAX: usize = 16 * 1024;

/// All inodes that the kernel knows, except the root.
pub(crate) struct NodeTable {
    entries: HashMap<u64, Entry>,
    pinned: AtomicUsize,
    returning: Returning,
}

struct Entry {
    lookups: AtomicU64,
    handle: Mutex<Option<Handle>>,
    /// It has no name, and has been waited for in vain: a program has it open.
    stays: AtomicBool,
}

/// A node, and whether it is one of those whose number is bounded.
struct Handle {
    node: Arc<Node>,
    pinned: bool,
}

impl NodeTable {
    pub(crate) fn new() -> Self {
        Self { entries: HashMap::new(), pinned: AtomicUsize::new(0), returning: Returning::new() }
    }

    /// Counts one more time that the inode was handed out, and holds `node`, if there is one, until the last is
    /// given back. Comes before the reply that hands it out.
    pub(crate) fn acquire(&self, id: NodeId, node: Option<&Arc<Node>>) {
        if id == NodeId::ROOT {
            return;
        }
        let entries = self.entries.pin();
        loop {
            if let Some(entry) = entries.get(&id.0) {
                if entry.count_up() {
                    return;
                }
                let _ = entries.remove_if(&id.0, |_, entry| entry.is_given_back());
            }
            let entry = Entry::handed_out_once(node);
            if let Err(refused) = entries.try_insert(id.0, entry) {
                drop(refused);
            } else {
                return;
            }
        }
    }

    /// Takes `lookups` back; the last one frees the entry. More than were handed out count as all of them.
    pub(crate) fn release(&self, id: NodeId, lookups: u64) {
        // Until the handle is dropped, and with it perhaps the inode.
        let mut going = None;
        let handle = {
            let entries = self.entries.pin();
            let Some(entry) = entries.get(&id.0).filter(|entry| entry.count_down(lookups)) else { return };
            let mut held = entry.handle.lock();
            if held.as_ref().is_some_and(|handle| handle.node.links() == 0) {
                going = Some(self.returning.going());
            }
            let handle = held.take();
            drop(held);
            if entry.stays.swap(false, Ordering::Relaxed) {
                self.returning.stays_no_longer();
            }
            let _ = entries.remove_if(&id.0, |_, entry| entry.is_given_back());
            handle
        };
        if handle.is_some_and(|handle| handle.pinned) {
            self.pinned.fetch_sub(1, Ordering::Relaxed);
        }
        drop(going);
    }

    /// The handle, if one is kept.
    pub(crate) fn held(&self, id: NodeId) -> Option<Arc<Node>> {
        let entries = self.entries.pin();
        let handle = entries.get(&id.0)?.handle.lock();
        Some(Arc::clone(&handle.as_ref()?.node))
    }

    /// Keeps a handle for as long as the kernel knows the inode, if there is room.
    pub(crate) fn keep(&self, id: NodeId, node: &Arc<Node>) {
        let entries = self.entries.pin();
        let Some(entry) = entries.get(&id.0) else { return };
        if self.pinned.fetch_add(1, Ordering::Relaxed) < PINNED_MAX {
            let mut handle = entry.handle.lock();
            // Under the lock, so that the thread that gives the last one back finds what is put here.
            if handle.is_none() && !entry.is_given_back() {
                *handle = Some(Handle { node: Arc::clone(node), pinned: true });
                return;
            }
        }
        self.pinned.fetch_sub(1, Ordering::Relaxed);
    }

    /// The kernel is gone: lets go of everything that it has not given back, so that what has lost its last name is
    /// deleted while the filesystem is still open.
    pub(crate) fn let_go(&self) {
        let entries = self.entries.pin();
        // Taken out one by one, as in `release`: the table frees its entries at leisure.
        entries.iter().for_each(|(_, entry)| {
            let handle = entry.handle.lock().take();
            drop(handle);
        });
    }

    /// Inodes that go with the kernel's forgets.
    pub(crate) fn returning(&self) -> &Returning {
        &self.returning
    }

    /// Whether an unlinked inode will be deleted when the kernel forgets it, or is being deleted. Looks at all
    /// inodes that the kernel knows.
    pub(crate) fn has_unlinked(&self) -> bool {
        let entries = self.entries.pin();
        // In this order: what begins to go while it is looked for is found one way or the other.
        entries.values().any(|entry| !entry.stays.load(Ordering::Relaxed) && entry.is_unlinked())
            || self.returning.is_any_going()
    }

    /// The unlinked inodes have been waited for in vain.
    pub(crate) fn note_staying(&self) {
        for entry in self.entries.pin().values() {
            if entry.is_unlinked() && !entry.stays.swap(true, Ordering::Relaxed) {
                self.returning.stays();
            }
        }
    }

    /// A program has closed a file: the kernel may forget it soon.
    pub(crate) fn note_closed(&self, id: NodeId) {
        let entries = self.entries.pin();
        if let Some(entry) = entries.get(&id.0)
            && entry.stays.swap(false, Ordering::Relaxed)
        {
            self.returning.expect();
            self.returning.stays_no_longer();
        }
    }

    /// How many inodes the kernel knows, without the root.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    fn handed_out_once(node: Option<&Arc<Node>>) -> Self {
        let handle = node.map(|node| Handle { node: Arc::clone(node), pinned: false });
        let handle = Mutex::new(&order::KERNEL_INODE, handle);
        Self { lookups: AtomicU64::new(1), handle, stays: AtomicBool::new(false) }
    }

    /// Whether the count was above zero and is one higher now.
    fn count_up(&self) -> bool {
        self.lookups
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lookups| (lookups > 0).then(|| lookups + 1))
            .is_ok()
    }

    /// Whether this was the last.
    fn count_down(&self, lookups: u64) -> bool {
        let before = self.lookups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            (held > 0).then(|| held.saturating_sub(lookups))
        });
        before.is_ok_and(|held| held <= lookups)
    }

    fn is_unlinked(&self) -> bool {
        self.handle.lock().as_ref().is_some_and(|handle| handle.node.links() == 0)
    }

    fn is_given_back(&self) -> bool {
        self.lookups.load(Ordering::Relaxed) == 0
    }
}

/// The id for an inode number; `None` for the two numbers that may not be handed out by name: the root's, which
/// nothing but the root directory itself may claim, and 1, which would be taken for the root.
pub(crate) fn node_id(ino: Ino, root: Ino) -> Option<NodeId> {
    (ino != root && ino.0 != NodeId::ROOT.0 && ino.0 != 0).then_some(NodeId(ino.0))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn an_inode_is_known_until_the_last_forget() {
        let table = NodeTable::new();
        table.acquire(NodeId(12), None);
        table.acquire(NodeId(12), None);
        table.acquire(NodeId(13), None);
        assert_eq!(table.len(), 2);
        table.release(NodeId(12), 1);
        assert_eq!(table.len(), 2);
        table.release(NodeId(12), 1);
        assert_eq!(table.len(), 1);
        table.acquire(NodeId(12), None);
        table.release(NodeId(12), 99);
        table.release(NodeId(12), 1);
        table.release(NodeId(13), 1);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn the_root_is_not_counted() {
        let table = NodeTable::new();
        table.acquire(NodeId::ROOT, None);
        table.release(NodeId::ROOT, 5);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn no_other_inode_gets_the_roots_id() {
        assert_eq!(node_id(Ino(11), Ino(2)), Some(NodeId(11)));
        assert_eq!(node_id(Ino(2), Ino(2)), None);
        assert_eq!(node_id(Ino(1), Ino(2)), None);
        assert_eq!(node_id(Ino(0), Ino(2)), None);
    }

    /// Handing out and giving back the same few ids from several threads: every count arrives, whichever thread is
    /// removing an entry at that moment.
    #[test]
    fn counts_are_exact_when_threads_meet() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 20_000;
        let table = NodeTable::new();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let id = NodeId(2 + round % 3);
                        table.acquire(id, None);
                        table.acquire(id, None);
                        table.release(id, 1);
                        // While this thread holds one, the entry is there.
                        assert!(table.entries.pin().get(&id.0).is_some_and(|entry| !entry.is_given_back()));
                        if round % 100 != 0 {
                            table.release(id, 1);
                        }
                    }
                });
            }
        });
        let kept: u64 = table.entries.pin().values().map(|entry| entry.lookups.load(Ordering::Relaxed)).sum();
        assert_eq!(kept, THREADS * ROUNDS / 100);
        for id in 2..5 {
            table.release(NodeId(id), kept);
        }
        assert_eq!(table.len(), 0);
    }
}
