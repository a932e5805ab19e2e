//! The inode cache: one node for each inode number in use, and a bounded number of nodes kept for later.
//!
//! Each shard has a table and a clock. The table knows every live node of the shard weakly, so a node that the
//! clock let go is still found while anybody uses it. The clock holds nodes strongly and lets go of those that
//! were not used since it last passed, once their bytes exceed the shard's share of the bound.
//!
//! Several threads that miss on the same number read it once: the first puts a [`Load`] into the table, and
//! whoever finds it waits for its lock. If the read fails, the next waiter tries for itself.
//!
//! Locks: a shard's state (`inode_cache`) is never held over filesystem I/O; a load's (`inode_load`) is, and no
//! shard is locked meanwhile. Handles are dropped after every guard, because dropping a node locks its shard.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::vec_deque::VecDeque;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use undercroft_sync::{Mutex, order};

use crate::hash::InoHashBuilder;
use crate::name_cache::NameCache;
use crate::{FileSystem, Ino, Node, Result};

/// Whether a node is kept after its users are done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// As long as the memory bound allows.
    Cached,
    /// Only while in use: for callers that pass each inode once, such as a tree walk.
    WhileUsed,
}

pub(crate) struct InodeCache {
    shards: Box<[Arc<Shard>]>,
    hash: InoHashBuilder,
    names: Arc<NameCache>,
}

/// The part of the cache that serves some of the numbers.
pub(crate) struct Shard {
    state: Mutex<State>,
    bound_bytes: usize,
}

struct State {
    table: HashMap<Ino, Slot, InoHashBuilder>,
    clock: VecDeque<Resident>,
    clock_bytes: usize,
}

enum Slot {
    Known(Weak<Node>),
    Loading(Arc<Load>),
}

/// An inode that is being read. Its lock is held during the read; holds the node once that has succeeded.
struct Load(Mutex<Option<Arc<Node>>>);

/// A node that the clock keeps.
struct Resident {
    node: Arc<Node>,
    /// What was counted for it; an inode's own estimate may change while it lives.
    bytes: usize,
}

/// Table entry, clock entry and allocator overhead of one cached node.
const OVERHEAD_BYTES: usize = size_of::<(Ino, Slot)>() + size_of::<Resident>() + 48;

/// How many recently used nodes the clock passes over in one call before it takes one regardless, so that the
/// shard's lock is held shortly.
const SECOND_CHANCES: usize = 64;

/// More shards than any machine's threads collide on; a shard costs about 200 bytes.
const SHARDS: usize = 64;

impl InodeCache {
    pub(crate) fn new(bound_bytes: usize, names: Arc<NameCache>) -> Self {
        let hash = InoHashBuilder::random();
        let shard = || {
            Arc::new(Shard {
                state: Mutex::new(
                    &order::INODE_CACHE,
                    State { table: HashMap::with_hasher(hash), clock: VecDeque::new(), clock_bytes: 0 },
                ),
                bound_bytes: bound_bytes / SHARDS,
            })
        };
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), hash, names }
    }

    /// The node of `ino`: the one in use, the cached one, or a new one from the filesystem.
    pub(crate) fn get(&self, fs: &dyn FileSystem, ino: Ino, keep: Keep) -> Result<Arc<Node>> {
        let shard = &self.shards[self.hash.spread(ino, SHARDS)];
        match shard.find(ino, keep) {
            Ok(node) => Ok(node),
            Err(load) => self.load(fs, ino, keep, shard, &load),
        }
    }

    /// Reads the inode, or waits for whoever does.
    fn load(
        &self,
        fs: &dyn FileSystem,
        ino: Ino,
        keep: Keep,
        shard: &Arc<Shard>,
        load: &Arc<Load>,
    ) -> Result<Arc<Node>> {
        let mut loaded = load.0.lock();
        if let Some(node) = &*loaded {
            return Ok(Arc::clone(node));
        }
        match fs.read_inode(ino) {
            Ok(inode) => {
                let node = Node::new(ino, inode, Arc::downgrade(shard), &self.names);
                *loaded = Some(Arc::clone(&node));
                drop(loaded);
                shard.publish(load, &node, keep);
                Ok(node)
            }
            Err(error) => {
                drop(loaded);
                shard.give_up(load, ino);
                Err(error)
            }
        }
    }
}

impl Shard {
    /// The node, or the load to take part in.
    fn find(&self, ino: Ino, keep: Keep) -> std::result::Result<Arc<Node>, Arc<Load>> {
        let mut state = self.state.lock();
        let mut slot = match state.table.entry(ino) {
            Entry::Occupied(slot) => slot,
            Entry::Vacant(slot) => {
                let load = Load::new();
                slot.insert(Slot::Loading(Arc::clone(&load)));
                return Err(load);
            }
        };
        let node = match slot.get() {
            Slot::Loading(load) => return Err(Arc::clone(load)),
            Slot::Known(node) => node.upgrade(),
        };
        let Some(node) = node else {
            // Its last handle is being dropped right now; `forget` will see that the slot is no longer its own.
            let load = Load::new();
            slot.insert(Slot::Loading(Arc::clone(&load)));
            return Err(load);
        };
        node.touch();
        if keep == Keep::Cached && !node.resident().load(Ordering::Relaxed) {
            let evicted = self.admit(&mut state, &node);
            drop(state);
            drop(evicted);
        }
        Ok(node)
    }

    /// Turns a finished load into a known node.
    fn publish(&self, load: &Arc<Load>, node: &Arc<Node>, keep: Keep) {
        let mut state = self.state.lock();
        let mut replaced = None;
        if let Some(slot) = state.table.get_mut(&node.ino())
            && matches!(slot, Slot::Loading(current) if Arc::ptr_eq(current, load))
        {
            replaced = Some(std::mem::replace(slot, Slot::Known(Arc::downgrade(node))));
        }
        let evicted = match keep {
            Keep::Cached => self.admit(&mut state, node),
            Keep::WhileUsed => Vec::new(),
        };
        drop(state);
        drop((replaced, evicted));
    }

    /// Removes a load that failed, unless it succeeded for somebody else meanwhile.
    fn give_up(&self, load: &Arc<Load>, ino: Ino) {
        let mut state = self.state.lock();
        if let Entry::Occupied(slot) = state.table.entry(ino)
            && matches!(slot.get(), Slot::Loading(current) if Arc::ptr_eq(current, load))
        {
            let removed = slot.remove();
            drop(state);
            drop(removed);
        }
    }

    /// Removes a node whose last handle is gone.
    pub(crate) fn forget(&self, node: &Node) {
        let mut state = self.state.lock();
        if let Entry::Occupied(slot) = state.table.entry(node.ino())
            && matches!(slot.get(), Slot::Known(known) if ptr::eq(known.as_ptr(), node))
        {
            slot.remove();
            // A burst of many live nodes must not leave its table behind.
            if state.table.capacity() > 8 * (state.table.len() + 32) {
                state.table.shrink_to_fit();
            }
        }
    }

    /// Puts a node into the clock and returns those that had to leave, to be dropped without the lock.
    #[must_use]
    fn admit(&self, state: &mut State, node: &Arc<Node>) -> Vec<Arc<Node>> {
        if node.resident().swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let bytes = node.memory_bytes() + OVERHEAD_BYTES;
        state.clock.push_back(Resident { node: Arc::clone(node), bytes });
        state.clock_bytes += bytes;
        let mut evicted = Vec::new();
        let mut chances = SECOND_CHANCES.min(state.clock.len());
        while state.clock_bytes > self.bound_bytes
            && let Some(Resident { node, bytes }) = state.clock.pop_front()
        {
            state.clock_bytes -= bytes;
            if chances > 0 && node.take_referenced() {
                chances -= 1;
                let bytes = node.memory_bytes() + OVERHEAD_BYTES;
                state.clock_bytes += bytes;
                state.clock.push_back(Resident { node, bytes });
            } else {
                node.resident().store(false, Ordering::Relaxed);
                evicted.push(node);
            }
        }
        evicted
    }
}

impl Load {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(&order::INODE_LOAD, None)))
    }
}
