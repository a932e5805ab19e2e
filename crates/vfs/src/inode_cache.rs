//! The inode cache: one node for each inode number in use, and a bounded number of nodes kept for later.
//!
//! Each shard has a table and a clock. The table has a weak reference to every live node of the shard, so that a node
//! is found while it is in use, and for some nodes the strong reference that keeps them cached. Once the bytes of
//! cached nodes exceed the shard's share of the bound, the clock goes round their numbers and drops the nodes that were
//! not used since it last passed. A node without names is not kept: its inode must be deleted with its last user.
//!
//! Several threads that miss on the same number read it once: the first puts a [`Load`] into the table, and the others
//! wait for its lock. If the read fails, the next waiter tries for itself.
//!
//! The filesystem is never asked for an inode whose last handle is still being dropped: the dead table entry stays
//! until the drop is done (see [`Departure`]), and a lookup that finds it waits. So does a lookup that finds a node
//! that is [leaving](Leaving): its only user is removing its last name, and may delete the inode in the same step,
//! since no other thread can get a handle of it meanwhile.
//!
//! An inode that is being made is not loaded: the thread that makes it puts its node into the table, and threads that
//! asked for the number meanwhile get that one (see `inode_making.rs`).
//!
//! Locks: a shard's state (`inode_cache`) is never held over filesystem I/O; a load's (`inode_load`) is, and no
//! shard is locked meanwhile. Handles are dropped after every guard, because dropping a node locks its shard.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::vec_deque::VecDeque;
use std::sync::{Arc, Weak};

use undercroft_sync::{Mutex, WaitQueue, order};

use crate::hash::InoHashBuilder;
use crate::inode_making::Announced;
use crate::name_cache::NameCache;
use crate::{Corruption, Error, FileSystem, Ino, Inode, Node, Result};

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
    /// The numbers of inodes that are being made.
    announced: Announced,
}

/// The part of the cache that serves some of the numbers.
pub(crate) struct Shard {
    state: Mutex<State>,
    /// Woken when a dead entry has left the table.
    departures: WaitQueue,
    bound_bytes: usize,
}

struct State {
    table: HashMap<Ino, Slot, InoHashBuilder>,
    /// The numbers of the nodes that are kept, and of some that were: see `forgotten`.
    clock: VecDeque<Ino>,
    /// How many of the clock's numbers are of nodes that are not kept any more, at least.
    forgotten: usize,
    kept_bytes: usize,
}

enum Slot {
    Known {
        node: Weak<Node>,
        kept: Option<Kept>,
        /// No further handle is given out; see [`Leaving`].
        leaving: bool,
    },
    Loading(Arc<Load>),
}

/// An inode that is being read. Its lock is held during the read; holds the node once that has succeeded.
struct Load(Mutex<Option<Arc<Node>>>);

/// A node that is kept while it is not in use.
struct Kept {
    node: Arc<Node>,
    /// What was counted for it; an inode's own estimate may change while it lives.
    bytes: usize,
}

/// Table entry, clock entry and allocator overhead of one cached node.
const OVERHEAD_BYTES: usize = size_of::<(Ino, Slot)>() + 2 * size_of::<Ino>() + 48;

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
                    State {
                        table: HashMap::with_hasher(hash),
                        clock: VecDeque::new(),
                        forgotten: 0,
                        kept_bytes: 0,
                    },
                ),
                departures: WaitQueue::new(),
                bound_bytes: bound_bytes / SHARDS,
            })
        };
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), hash, names, announced: Announced::new() }
    }

    /// The node of `ino`: the one in use, the cached one, or a new one from the filesystem.
    pub(crate) fn get(&self, fs: &dyn FileSystem, ino: Ino, keep: Keep) -> Result<Arc<Node>> {
        let shard = &self.shards[self.hash.spread(ino, SHARDS)];
        match shard.find(ino, keep) {
            Ok(node) => Ok(node),
            Err(load) => self.load(fs, ino, keep, shard, load),
        }
    }

    /// The numbers of inodes that are being made.
    pub(crate) fn announced(&self) -> &Announced {
        &self.announced
    }

    /// The node of an inode that the filesystem has just made, and whose number is still announced.
    ///
    /// # Errors
    /// Corruption, when the number belongs to an inode in use: the disk called it free.
    pub(crate) fn adopt(&self, ino: Ino, inode: Arc<dyn Inode>) -> Result<Arc<Node>> {
        let shard = &self.shards[self.hash.spread(ino, SHARDS)];
        let node = Node::cached(ino, inode, Arc::downgrade(shard), &self.names);
        shard.adopt(&node)?;
        Ok(node)
    }

    /// Stops caching a node that has lost its last name: it lives only while it is in use.
    pub(crate) fn release(&self, ino: Ino) {
        let kept = self.shards[self.hash.spread(ino, SHARDS)].release(ino);
        drop(kept);
    }

    /// Keeps other threads from getting a handle of a node whose only user the caller is, and drops the cache's;
    /// `None` if there are other users.
    ///
    /// The caller removes the node's last name, which the name cache has forgotten.
    pub(crate) fn leave<'a>(&'a self, node: &'a Arc<Node>) -> Option<Leaving<'a>> {
        let shard = &self.shards[self.hash.spread(node.ino(), SHARDS)];
        shard.leave(node).then_some(Leaving { shard, node, is_gone: false })
    }

    /// Reads the inode, or waits for the thread that does.
    fn load(
        &self,
        fs: &dyn FileSystem,
        ino: Ino,
        keep: Keep,
        shard: &Arc<Shard>,
        load: Arc<Load>,
    ) -> Result<Arc<Node>> {
        let mut loaded = load.0.lock();
        let read = loop {
            if let Some(node) = &*loaded {
                return Ok(Arc::clone(node));
            }
            let read = fs.read_inode(ino);
            if !self.announced.contains(ino) {
                break read;
            }
            // What was read may be a part of an inode. Its maker puts the node into the load.
            drop(loaded);
            drop(read);
            self.announced.wait(ino);
            loaded = load.0.lock();
        };
        match read {
            Ok(inode) => {
                let node = Node::cached(ino, inode, Arc::downgrade(shard), &self.names);
                *loaded = Some(Arc::clone(&node));
                drop(loaded);
                shard.publish(&load, &node, keep);
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
        loop {
            let mut state = self.state.lock();
            let (node, is_kept) = match state.table.entry(ino) {
                Entry::Vacant(slot) => {
                    let load = Load::new();
                    slot.insert(Slot::Loading(Arc::clone(&load)));
                    return Err(load);
                }
                Entry::Occupied(slot) => match slot.get() {
                    Slot::Loading(load) => return Err(Arc::clone(load)),
                    Slot::Known { leaving: true, .. } => (None, false),
                    Slot::Known { node, kept, .. } => (node.upgrade(), kept.is_some()),
                },
            };
            let Some(node) = node else {
                drop(state);
                self.departures.wait(|| !self.is_departing(ino));
                continue;
            };
            node.touch();
            if keep == Keep::Cached && !is_kept && node.inode().links() > 0 {
                let evicted = self.keep(&mut state, &node);
                drop(state);
                drop(evicted);
            }
            return Ok(node);
        }
    }

    /// Whether the last handle of an inode is being dropped right now, or will be at once.
    fn is_departing(&self, ino: Ino) -> bool {
        let state = self.state.lock();
        state.table.get(&ino).is_some_and(Slot::is_departing)
    }

    fn adopt(&self, node: &Arc<Node>) -> Result<()> {
        let ino = node.ino();
        loop {
            let mut state = self.state.lock();
            let load = match state.table.entry(ino) {
                Entry::Vacant(slot) => {
                    slot.insert(Slot::known(node));
                    let evicted = self.keep(&mut state, node);
                    drop(state);
                    drop(evicted);
                    return Ok(());
                }
                Entry::Occupied(slot) => match slot.get() {
                    Slot::Loading(load) => Some(Arc::clone(load)),
                    known if known.is_departing() => None,
                    Slot::Known { .. } => return Err(called_free(ino)),
                },
            };
            drop(state);
            let Some(load) = load else {
                self.departures.wait(|| !self.is_departing(ino));
                continue;
            };
            // Threads that asked for the number get this node, unless the last of them gives up at this moment.
            let mut loaded = load.0.lock();
            if loaded.is_some() {
                // Read before the number was announced.
                return Err(called_free(ino));
            }
            *loaded = Some(Arc::clone(node));
            drop(loaded);
            if self.publish(&load, node, Keep::Cached) {
                return Ok(());
            }
        }
    }

    fn release(&self, ino: Ino) -> Option<Kept> {
        self.state.lock().release(ino)
    }

    /// Stops giving out handles of a node, unless there is one beside the caller's and the cache's.
    ///
    /// Handles come from the table, whose lock is held, and from the name cache, which may still lead here if the disk
    /// is damaged and has a wrong count of names. A thread that got one there checks whether the node is leaving. Both
    /// threads change the handle count, and the later one sees what the earlier one did: a thread that gets a handle
    /// after ours was dropped acquires what that drop released, and sees the mark; a handle that was got before is
    /// counted.
    fn leave(&self, node: &Arc<Node>) -> bool {
        let mut state = self.state.lock();
        let Some(Slot::Known { kept, .. }) = state.table.get(&node.ino()) else { return false };
        if Arc::strong_count(node) > 1 + usize::from(kept.is_some()) {
            return false;
        }
        node.set_leaving(true);
        let ours = state.release(node.ino()).map_or_else(|| Arc::clone(node), |kept| kept.node);
        // Not the last one.
        drop(ours);
        let is_alone = Arc::strong_count(node) == 1;
        match state.table.get_mut(&node.ino()) {
            Some(Slot::Known { leaving, .. }) if is_alone => *leaving = true,
            _ => node.set_leaving(false),
        }
        is_alone
    }

    /// The node has not left.
    fn stay(&self, node: &Arc<Node>) {
        let mut state = self.state.lock();
        if let Some(Slot::Known { leaving, .. }) = state.table.get_mut(&node.ino()) {
            *leaving = false;
        }
        node.set_leaving(false);
        drop(state);
        self.departures.wake_all();
    }

    /// Turns a finished load into a known node. `false` if the load is not in the table any more.
    fn publish(&self, load: &Arc<Load>, node: &Arc<Node>, keep: Keep) -> bool {
        let mut state = self.state.lock();
        let mut replaced = None;
        if let Some(slot) = state.table.get_mut(&node.ino())
            && matches!(slot, Slot::Loading(current) if Arc::ptr_eq(current, load))
        {
            replaced = Some(std::mem::replace(slot, Slot::known(node)));
        }
        let evicted = match keep {
            Keep::Cached => self.keep(&mut state, node),
            Keep::WhileUsed => Vec::new(),
        };
        drop(state);
        let was_there = replaced.is_some();
        drop((replaced, evicted));
        was_there
    }

    /// Leaves a load that failed to its other waiters, or removes it when there are none.
    fn give_up(&self, load: Arc<Load>, ino: Ino) {
        let mut state = self.state.lock();
        let Entry::Occupied(slot) = state.table.entry(ino) else { return };
        if !matches!(slot.get(), Slot::Loading(current) if Arc::ptr_eq(current, &load)) {
            // Another thread succeeded. This may be the last handle of the load and through it of the node, so it is
            // dropped after the lock: parameters are dropped after local variables.
            return;
        }
        // Handles of a load are made only under this lock, so if only the table has one there are no waiters. Ours
        // goes before the lock does, or of two that fail at once each would leave the load to the other.
        drop(load);
        if matches!(slot.get(), Slot::Loading(current) if Arc::strong_count(current) == 1) {
            slot.remove();
        }
    }

    /// Removes the entry of a node that is gone. A dead entry can only be this node's: a new node comes only after it.
    fn forget(&self, ino: Ino) {
        let mut state = self.state.lock();
        if let Entry::Occupied(slot) = state.table.entry(ino)
            && matches!(slot.get(), Slot::Known { node, .. } if node.strong_count() == 0)
        {
            slot.remove();
            // A burst of many live nodes must not leave its table behind.
            if state.table.capacity() > 8 * (state.table.len() + 32) {
                state.table.shrink_to_fit();
            }
        }
        drop(state);
        self.departures.wake_all();
    }

    /// Keeps a node and returns those that had to leave, to be dropped without the lock.
    #[must_use]
    fn keep(&self, state: &mut State, node: &Arc<Node>) -> Vec<Kept> {
        let bytes = node.memory_bytes() + OVERHEAD_BYTES;
        match state.table.get_mut(&node.ino()) {
            Some(Slot::Known { kept: kept @ None, .. }) => {
                *kept = Some(Kept { node: Arc::clone(node), bytes });
            }
            _ => return Vec::new(),
        }
        state.clock.push_back(node.ino());
        state.kept_bytes += bytes;
        let mut evicted = Vec::new();
        let mut chances = SECOND_CHANCES.min(state.clock.len());
        while state.kept_bytes > self.bound_bytes
            && let Some(ino) = state.clock.pop_front()
        {
            let Some(Slot::Known { kept: slot, .. }) = state.table.get_mut(&ino) else {
                state.forgotten = state.forgotten.saturating_sub(1);
                continue;
            };
            let Some(kept) = slot else {
                state.forgotten = state.forgotten.saturating_sub(1);
                continue;
            };
            if chances > 0 && kept.node.take_referenced() {
                chances -= 1;
                let bytes = kept.node.memory_bytes() + OVERHEAD_BYTES;
                state.kept_bytes = state.kept_bytes - kept.bytes + bytes;
                kept.bytes = bytes;
                state.clock.push_back(ino);
            } else {
                state.kept_bytes -= kept.bytes;
                evicted.extend(slot.take());
            }
        }
        evicted
    }
}

impl State {
    fn release(&mut self, ino: Ino) -> Option<Kept> {
        let kept = match self.table.get_mut(&ino) {
            Some(Slot::Known { kept, .. }) => kept.take()?,
            _ => return None,
        };
        self.kept_bytes -= kept.bytes;
        self.forgotten += 1;
        if self.forgotten > 32 + self.clock.len() / 2 {
            let Self { clock, table, .. } = self;
            clock.retain(|ino| matches!(table.get(ino), Some(Slot::Known { kept: Some(_), .. })));
            self.forgotten = 0;
        }
        Some(kept)
    }
}

impl Slot {
    fn known(node: &Arc<Node>) -> Self {
        Self::Known { node: Arc::downgrade(node), kept: None, leaving: false }
    }

    /// Whether the number will be free in a moment.
    fn is_departing(&self) -> bool {
        matches!(self, Self::Known { node, leaving, .. } if *leaving || node.strong_count() == 0)
    }
}

/// The number of a new inode belongs to one in use.
fn called_free(ino: Ino) -> Error {
    Corruption {
        structure: "inode bitmap",
        ino: Some(ino),
        block: None,
        detail: "the inode is in use, and was called free".into(),
    }
    .into()
}

/// A node of which no further handle is given out. When this is dropped, handles are given out again, unless
/// [`gone`](Self::gone) was called.
#[must_use = "the node stays when this is dropped"]
pub(crate) struct Leaving<'a> {
    shard: &'a Shard,
    node: &'a Arc<Node>,
    is_gone: bool,
}

impl Leaving<'_> {
    /// The last name is gone: the number is free when the caller has dropped its handle.
    pub(crate) fn gone(mut self) {
        self.is_gone = true;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.is_gone {
            self.shard.stay(self.node);
        }
    }
}

/// A node's last field: takes the number out of the table after everything else of the node is dropped.
pub(crate) struct Departure {
    ino: Ino,
    home: Weak<Shard>,
}

impl Departure {
    pub(crate) fn new(ino: Ino, home: Weak<Shard>) -> Self {
        Self { ino, home }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if let Some(shard) = self.home.upgrade() {
            shard.forget(self.ino);
        }
    }
}

impl Load {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(&order::INODE_LOAD, None)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::Ordering;
    use std::thread;

    use super::*;
    use crate::Vfs;
    use crate::cached_inode::CachedInode;
    use crate::conformance::{Content, Object, Tree, mix};
    use crate::memory_fs::{MemoryFs, ROOT};

    fn files(count: u64) -> Tree {
        let mut tree = Tree::new();
        for number in 0..count {
            tree.add(format!("{number}"), Object::File(Content::default()));
        }
        tree
    }

    fn mount(count: u64, inode_cache_bytes: usize) -> (Arc<Vfs>, Arc<MemoryFs>, Vec<Ino>) {
        let (vfs, fs) = MemoryFs::new(&files(count)).mount(inode_cache_bytes, 1 << 20);
        let mut inos: Vec<Ino> = fs.inodes.keys().copied().filter(|&ino| ino != ROOT).collect();
        inos.sort_unstable();
        (vfs, fs, inos)
    }

    fn reads(fs: &MemoryFs) -> u64 {
        fs.calls.read_inode.load(Ordering::Relaxed)
    }

    #[test]
    fn a_node_leaves_only_if_it_has_no_other_user_and_is_there_again_if_it_stays() {
        let (vfs, fs, inos) = mount(1, 1 << 20);
        let node = vfs.lookup(&vfs.root().unwrap(), b"0").unwrap();
        let other = Arc::clone(&node);
        assert!(vfs.inodes().leave(&node).is_none());
        drop(other);
        let leaving = vfs.inodes().leave(&node).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| vfs.node(inos[0]).unwrap());
            let name = scope.spawn(|| vfs.lookup(&vfs.root().unwrap(), b"0").unwrap());
            while vfs.inodes().shards[vfs.inodes().hash.spread(inos[0], SHARDS)].departures.waiting() < 2 {
                thread::yield_now();
            }
            drop(leaving);
            assert!(Arc::ptr_eq(&node, &waiting.join().unwrap()));
            assert!(Arc::ptr_eq(&node, &name.join().unwrap()));
        });
        let before = reads(&fs);
        vfs.inodes().leave(&node).unwrap().gone();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| vfs.node(inos[0]).unwrap());
            thread::yield_now();
            drop(node);
            waiting.join().unwrap();
        });
        assert_eq!(reads(&fs), before + 1);
    }

    #[test]
    fn a_number_in_use_has_one_node_even_without_room() {
        let (vfs, fs, inos) = mount(2000, 0);
        let held = vfs.node(inos[0]).unwrap();
        for &ino in &inos {
            vfs.node(ino).unwrap();
        }
        assert!(Arc::ptr_eq(&held, &vfs.node(inos[0]).unwrap()));
        assert_eq!(reads(&fs), 2000);
        drop(held);
        vfs.node(inos[0]).unwrap();
        assert_eq!(reads(&fs), 2001);
    }

    #[test]
    fn unused_nodes_stay_within_the_bound() {
        let bound = 640 * 1000;
        let (vfs, fs, inos) = mount(5000, bound);
        for &ino in &inos {
            vfs.node(ino).unwrap();
        }
        let per_node = size_of::<Node<CachedInode>>() + fs.inode_bytes + OVERHEAD_BYTES;
        let (live, fit) = (fs.live_handles(), bound / per_node);
        // Shards fill unevenly only before they are full.
        assert!(live <= fit && live > fit * 8 / 10, "{live} nodes live, {fit} fit");
    }

    #[test]
    fn what_is_used_again_and_again_stays() {
        let (vfs, fs, inos) = mount(5000, 640 * 1000);
        let hot = &inos[..10];
        for &ino in &inos[10..] {
            vfs.node(ino).unwrap();
            for &ino in hot {
                vfs.node(ino).unwrap();
            }
        }
        assert_eq!(reads(&fs), 5000);
    }

    #[test]
    fn what_is_passed_once_leaves_the_cache_as_it_was() {
        let (vfs, fs, inos) = mount(1000, 1 << 30);
        let kept: Vec<_> = inos[..100].iter().map(|&ino| Arc::downgrade(&vfs.node(ino).unwrap())).collect();
        for &ino in &inos {
            vfs.node_once(ino).unwrap();
        }
        assert_eq!(fs.live_handles(), 100);
        assert!(kept.iter().all(|node| node.strong_count() == 1));
        // A caller that asks for it to be kept while it is used by a walk gets that.
        let passing = vfs.node_once(inos[500]).unwrap();
        assert!(Arc::ptr_eq(&passing, &vfs.node(inos[500]).unwrap()));
        drop(passing);
        assert_eq!(fs.live_handles(), 101);
    }

    #[test]
    fn threads_that_miss_together_read_once() {
        const THREADS: usize = 8;
        let (vfs, fs, inos) = mount(50, 1 << 20);
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for &ino in &inos {
                        barrier.wait();
                        assert_eq!(vfs.node(ino).unwrap().ino(), ino);
                    }
                });
            }
        });
        assert_eq!(reads(&fs), 50);
    }

    #[test]
    fn a_failure_is_not_remembered() {
        const THREADS: usize = 4;
        let (vfs, fs, inos) = mount(3, 1 << 20);
        fs.failing.store(true, Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert!(matches!(vfs.node(inos[0]), Err(Error::Stale)));
                    }
                });
            }
        });
        assert!(matches!(vfs.node(Ino(u64::MAX)), Err(Error::Stale)));
        assert!(vfs.inodes().shards.iter().all(|shard| shard.state.lock().table.is_empty()));
        fs.failing.store(false, Ordering::Relaxed);
        assert!(vfs.node(inos[0]).is_ok());
    }

    /// The filesystem itself checks that it is never asked for an inode of which a handle lives.
    #[test]
    fn there_is_one_handle_for_each_number_at_any_time() {
        const THREADS: u64 = 4;
        let (vfs, fs, inos) = mount(6, 0);
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let (vfs, fs, inos) = (&vfs, &fs, &inos);
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for number in 0..20_000 {
                        let random = mix(seed << 32 | number);
                        let ino = inos[random as usize % inos.len()];
                        let node = if random >> 20 & 1 == 0 { vfs.node(ino) } else { vfs.node_once(ino) };
                        match node {
                            Ok(node) if random >> 24 & 1 == 0 => held.push(node),
                            Ok(node) => assert_eq!(node.ino(), ino),
                            // While another thread lets reads fail.
                            Err(error) => assert!(matches!(error, Error::Stale)),
                        }
                        if held.len() > 3 {
                            held.clear();
                        }
                        fs.failing.store(random >> 30 & 0xf == 0, Ordering::Relaxed);
                    }
                });
            }
        });
        fs.failing.store(false, Ordering::Relaxed);
        drop(vfs);
        assert_eq!(fs.live_handles(), 0);
    }

    #[test]
    fn a_node_may_outlive_the_mount() {
        let (vfs, _, inos) = mount(3, 1 << 20);
        let node = vfs.node(inos[0]).unwrap();
        drop(vfs);
        assert_eq!(node.attr().ino, inos[0]);
    }
}
