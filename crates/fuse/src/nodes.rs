//! The inodes that the kernel knows: how many times each was handed out, and handles of those in use.
//!
//! The kernel names an inode by a node id and gives each id back with as many forgets as it was handed out. An
//! id is in the table exactly while its count is above zero. Node ids are inode numbers, except the root's, which
//! the protocol fixes at 1; the root is never counted and not in the table.
//!
//! Memory: the kernel may know millions of inodes, so an entry is a count and room for one pointer. A handle is
//! kept only for directories that are looked into and files that are read, and for no more than [`PINNED_MAX`]
//! of them; others are found again through the inode cache of the vfs, which has its own bound.
//!
//! No locks: the table is read and changed without waiting. States of an entry's count:
//!
//! | count | in the table | meaning                                                        |
//! | ----- | ------------ | -------------------------------------------------------------- |
//! | n > 0 | yes          | the kernel holds n                                             |
//! | 0     | for a moment | given back; never counts up again, whoever meets it removes it |
//!
//! A count changes by compare-and-swap so that zero is final; a thread that hands the inode out at that moment
//! makes a new entry.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use papaya::HashMap;
use undercroft_vfs::{Ino, Node};

/// How the kernel names an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// The root directory, by protocol.
    pub(crate) const ROOT: Self = Self(1);
}

/// Handles kept by the table: enough for the directories and files that are busy at one time, and a few
/// megabytes at most.
const PINNED_MAX: usize = 16 * 1024;

/// All inodes that the kernel knows, except the root.
pub(crate) struct NodeTable {
    entries: HashMap<u64, Entry>,
    pinned: Arc<AtomicUsize>,
}

struct Entry {
    lookups: AtomicU64,
    pin: OnceLock<Box<Pin>>,
}

/// A handle that is kept, and its place in the number of those.
struct Pin {
    node: Arc<Node>,
    pinned: Arc<AtomicUsize>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pinned.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NodeTable {
    pub(crate) fn new() -> Self {
        Self { entries: HashMap::new(), pinned: Arc::new(AtomicUsize::new(0)) }
    }

    /// Counts one more time that the inode was handed out. Comes before the reply that hands it out.
    pub(crate) fn acquire(&self, id: NodeId) {
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
            if entries.try_insert(id.0, Entry::handed_out_once()).is_ok() {
                return;
            }
        }
    }

    /// Takes `lookups` back; the last one frees the entry. More than were handed out count as all of them.
    pub(crate) fn release(&self, id: NodeId, lookups: u64) {
        let entries = self.entries.pin();
        if let Some(entry) = entries.get(&id.0)
            && entry.count_down(lookups)
        {
            let _ = entries.remove_if(&id.0, |_, entry| entry.is_given_back());
        }
    }

    /// The handle, if one is kept.
    pub(crate) fn pinned(&self, id: NodeId) -> Option<Arc<Node>> {
        let entries = self.entries.pin();
        Some(Arc::clone(&entries.get(&id.0)?.pin.get()?.node))
    }

    /// Keeps a handle for as long as the kernel knows the inode, if there is room.
    pub(crate) fn keep(&self, id: NodeId, node: &Arc<Node>) {
        let entries = self.entries.pin();
        let Some(entry) = entries.get(&id.0) else { return };
        let taken = self.pinned.fetch_add(1, Ordering::Relaxed);
        // From here on the pin's drop gives the place back, also when it is not kept.
        let pin = Box::new(Pin { node: Arc::clone(node), pinned: Arc::clone(&self.pinned) });
        if taken < PINNED_MAX {
            let _ = entry.pin.set(pin);
        }
    }

    /// How many inodes the kernel knows, without the root.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    fn handed_out_once() -> Self {
        Self { lookups: AtomicU64::new(1), pin: OnceLock::new() }
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
        table.acquire(NodeId(12));
        table.acquire(NodeId(12));
        table.acquire(NodeId(13));
        assert_eq!(table.len(), 2);
        table.release(NodeId(12), 1);
        assert_eq!(table.len(), 2);
        table.release(NodeId(12), 1);
        assert_eq!(table.len(), 1);
        table.acquire(NodeId(12));
        table.release(NodeId(12), 99);
        table.release(NodeId(12), 1);
        table.release(NodeId(13), 1);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn the_root_is_not_counted() {
        let table = NodeTable::new();
        table.acquire(NodeId::ROOT);
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

    /// Handing out and giving back the same few ids from several threads: every count arrives, whoever is
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
                        table.acquire(id);
                        table.acquire(id);
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
