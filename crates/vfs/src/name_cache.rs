//! The name cache: each directory's node keeps the names that were looked up in it.
//!
//! A lookup that hits takes the directory's own lock for reading and nothing else; no global lock or table is
//! touched, and the node comes straight from the entry. An entry holds its node weakly: the inode cache decides
//! how long a node lives, and an entry whose node is gone still knows the number. Names that do not exist are
//! kept as well.
//!
//! The bytes of all entries are counted in one relaxed counter. Above the bound, a clock over the directories
//! that hold names drops the names of those that were not used since it last passed, a directory at a time.
//!
//! Locks: the clock (`name_clock`), then one directory's table (`name_cache`). Neither is held over filesystem
//! I/O. Nothing is removed yet except under memory pressure, because nothing changes a directory.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::vec_deque::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use undercroft_sync::{Mutex, RwLock, order};

use crate::{Ino, Node};

/// What is common to all directories of a mounted filesystem.
pub(crate) struct NameCache {
    bytes: AtomicUsize,
    bound_bytes: usize,
    clock: Mutex<VecDeque<Weak<Node>>>,
}

/// The known names of one directory.
pub(crate) struct Children {
    table: RwLock<Table>,
    /// Used since the clock last passed.
    referenced: AtomicBool,
    /// The directory itself.
    dir: Weak<Node>,
    cache: Arc<NameCache>,
}

#[derive(Default)]
struct Table {
    names: HashMap<Box<[u8]>, Child>,
    bytes: usize,
    /// The clock knows the directory.
    in_clock: bool,
}

enum Child {
    Present { ino: Ino, node: Weak<Node> },
    Absent,
}

/// What the cache knows of a name.
pub(crate) enum Known {
    /// The node it stands for.
    Node(Arc<Node>),
    /// The number it stands for; the node has left memory.
    Ino(Ino),
    /// There is no such name.
    Absent,
}

/// What an entry costs beside its name: the table's slot and, in the worst case, the memory of a dead node
/// that its weak handle holds.
const ENTRY_BYTES: usize = size_of::<(Box<[u8]>, Child)>() + 32 + size_of::<Node>();

impl NameCache {
    pub(crate) fn new(bound_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            bound_bytes,
            clock: Mutex::new(&order::NAME_CLOCK, VecDeque::new()),
        })
    }

    /// Lets the clock run until the bytes are below the bound. One thread does it for all.
    fn shrink(&self) {
        let Some(mut clock) = self.clock.try_lock() else { return };
        let mut dropped = Vec::new();
        let mut steps = 2 * clock.len();
        while steps > 0 && self.bytes.load(Ordering::Relaxed) > self.bound_bytes {
            steps -= 1;
            let Some(entry) = clock.pop_front() else { break };
            // Should this be the node's last handle, its drop locks a shard of the inode cache, which may be
            // taken inside the clock.
            let Some(dir) = entry.upgrade() else { continue };
            let Some(children) = dir.children() else { continue };
            if children.referenced.swap(false, Ordering::Relaxed) {
                clock.push_back(entry);
            } else {
                dropped.push(children.take_all());
            }
        }
        drop(clock);
        drop(dropped);
    }
}

impl Children {
    pub(crate) fn new(dir: Weak<Node>, cache: Arc<NameCache>) -> Self {
        Self {
            table: RwLock::new(&order::NAME_CACHE, Table::default()),
            referenced: AtomicBool::new(false),
            dir,
            cache,
        }
    }

    /// A handle of the directory itself, for those who have only a reference.
    pub(crate) fn dir(&self) -> Option<Arc<Node>> {
        self.dir.upgrade()
    }

    /// What is known of `name`.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Known> {
        let known = match self.table.read().names.get(name)? {
            Child::Present { ino, node } => node.upgrade().map_or(Known::Ino(*ino), Known::Node),
            Child::Absent => Known::Absent,
        };
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
        Some(known)
    }

    /// Remembers the node that `name` stands for.
    pub(crate) fn insert(&self, name: &[u8], node: &Arc<Node>) {
        self.put(name, Child::Present { ino: node.ino(), node: Arc::downgrade(node) });
    }

    /// Remembers that `name` does not exist.
    pub(crate) fn insert_absent(&self, name: &[u8]) {
        self.put(name, Child::Absent);
    }

    fn put(&self, name: &[u8], child: Child) {
        let mut table = self.table.write();
        let replaced = match table.names.entry(name.into()) {
            Entry::Occupied(mut entry) => Some(entry.insert(child)),
            Entry::Vacant(entry) => {
                entry.insert(child);
                None
            }
        };
        let added = if replaced.is_none() { name.len() + ENTRY_BYTES } else { 0 };
        table.bytes += added;
        let first = !mem::replace(&mut table.in_clock, true);
        drop(table);
        drop(replaced);

        let total = self.cache.bytes.fetch_add(added, Ordering::Relaxed) + added;
        if first {
            self.cache.clock.lock().push_back(Weak::clone(&self.dir));
        }
        if total > self.cache.bound_bytes {
            self.cache.shrink();
        }
    }

    /// Takes all names out, to be dropped without the clock's lock. The caller has taken the directory out of
    /// the clock.
    fn take_all(&self) -> HashMap<Box<[u8]>, Child> {
        let mut table = self.table.write();
        self.cache.bytes.fetch_sub(table.bytes, Ordering::Relaxed);
        table.bytes = 0;
        table.in_clock = false;
        mem::take(&mut table.names)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.cache.bytes.fetch_sub(self.table.read().bytes, Ordering::Relaxed);
    }
}
