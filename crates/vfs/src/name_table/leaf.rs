//! The nodes of the trie: leaves with slots for entries, and branches.
//!
//! Unsafe: nodes and entries are reached through crossbeam's epoch pointers, whose targets live until every reader
//! that was pinned when they were unlinked is done. What is said about who unlinks what is the proof; see each block.
//! Entries that were unlinked are collected in a [`Batch`] before they are freed; why stands in `retired.rs`.
#![expect(unsafe_code, reason = "epoch pointers: readers without locks")]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use undercroft_sync::{LockClass, Mutex, MutexGuard};

use super::key::HASH_MASK;
use super::name::Name;
use super::table::InsertError;

/// Entries of a leaf; chosen so that a leaf fills four cache lines.
pub(super) const SLOTS: usize = 14;

/// Bits of the key that one branch tells apart.
pub(super) const FANOUT_BITS: u32 = 3;
pub(super) const FANOUT: usize = 1 << FANOUT_BITS;

/// A name and what it stands for.
pub(super) struct Entry<V> {
    pub(super) key: u64,
    pub(super) name: Name,
    pub(super) value: V,
}

/// An entry with a value of three words fills a cache line, and no more.
const _: () = assert!(size_of::<Entry<[u64; 3]>>() <= 64);

/// A child of a branch, or the root: nothing, a leaf or a branch. Whoever changes it from a leaf to something else
/// holds the leaf's lock; from nothing to a leaf it is changed by compare-and-swap.
pub(super) struct Child<V>(Atomic<Node<V>>);

#[repr(align(128))]
pub(super) enum Node<V> {
    Leaf(Leaf<V>),
    Branch([Child<V>; FANOUT]),
}

/// A leaf fills two pairs of cache lines, and no more. (A model checker's locks are larger.)
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Node<()>>() == 256);

/// Slots for entries. The lock and the first slots share a cache line, which is all that a leaf with few entries
/// moves between processors.
pub(super) struct Leaf<V> {
    state: Mutex<State>,
    /// How often a writer had to wait here lately.
    waits: AtomicU32,
    slots: [Slot<V>; SLOTS],
}

/// Room for an entry; free while the pointer is null. The key is written before the pointer, and is only a hint for
/// readers: what counts is the key and the name in the entry. Who holds the leaf's lock may believe it.
struct Slot<V> {
    key: AtomicU64,
    entry: Atomic<Entry<V>>,
}

/// The key of a free slot: larger than any other.
const FREE: u64 = u64::MAX;

/// What a writer must know of a leaf it has locked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is part of the trie and has so many entries. Of the writers who came it knows the last bits of their number.
    Live { len: u8, writers: u8 },
    /// A branch or nothing has taken its place; it does not change any more.
    Replaced,
}

/// An entry that was taken out of its table. Readers may still have it.
#[must_use = "its memory is lost unless it is retired"]
pub(super) struct Gone(*mut dyn Send);

/// Entries that were taken out of their tables, and that readers may still have.
#[derive(Default)]
pub(super) struct Batch(Vec<Gone>);

/// A leaf whose lock is held, as proof for those who change it.
pub(super) struct Locked<'a, V> {
    leaf: &'a Leaf<V>,
    state: MutexGuard<'a, State>,
}

impl<V> Child<V> {
    pub(super) fn empty() -> Self {
        Self(Atomic::null())
    }

    pub(super) fn get<'g>(&'g self, guard: &'g Guard) -> Option<&'g Node<V>> {
        // SAFETY: a node is destroyed only by `Locked::replace` and `drop`; the first defers it past this guard, the
        // second has the table for itself.
        unsafe { self.0.load(Acquire, guard).as_ref() }
    }

    /// The node here, which is a new leaf if there was none.
    pub(super) fn get_or_leaf<'g>(&'g self, class: &'static LockClass, guard: &'g Guard) -> &'g Node<V> {
        loop {
            if let Some(node) = self.get(guard) {
                return node;
            }
            let leaf = Owned::new(Node::Leaf(Leaf::new(class)));
            // Whoever comes first; the other's leaf is dropped.
            let _ = self.0.compare_exchange(Shared::null(), leaf, Release, Relaxed, guard);
        }
    }

    /// Takes the subtree out of a table that nobody uses any more.
    pub(super) fn take(&mut self) -> Option<Box<Node<V>>> {
        let taken = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: `&mut self` says that no other thread can reach this child, and it was not destroyed before: who
        // does that puts something else in its place.
        unsafe { taken.try_into_owned().map(Owned::into_box) }
    }
}

impl<V> Slot<V> {
    fn free() -> Self {
        Self { key: AtomicU64::new(FREE), entry: Atomic::null() }
    }

    fn entry<'g>(&'g self, guard: &'g Guard) -> Option<&'g Entry<V>> {
        // SAFETY: an entry is destroyed by a `Batch`, which has it from `Locked::put` or `Locked::remove`, and by
        // `drop`. The last has the table for itself. The first two took it out of the slot of a live leaf, and the
        // batch defers it past every guard that there was then. It may still be in leaves that were split; but they
        // had left the trie before, and whoever found the live leaf knew of that, so who is pinned later finds
        // neither them nor the entry.
        unsafe { self.entry.load(Acquire, guard).as_ref() }
    }
}

impl<V> Leaf<V> {
    fn new(class: &'static LockClass) -> Self {
        Self {
            state: Mutex::new(class, State::Live { len: 0, writers: 0 }),
            waits: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Slot::free()),
        }
    }

    /// Locks the leaf for changing it; `None` if it is not part of the trie any more.
    pub(super) fn lock(&self) -> Option<Locked<'_, V>> {
        let mut state = self.state.try_lock().unwrap_or_else(|| {
            self.waits.fetch_add(1, Relaxed);
            self.state.lock()
        });
        let State::Live { writers, .. } = &mut *state else { return None };
        *writers = writers.wrapping_add(1);
        if *writers == 0 {
            self.waits.store(0, Relaxed);
        }
        Some(Locked { leaf: self, state })
    }

    /// How often one of the last writers, 256 at most, had to wait here.
    pub(super) fn waits(&self) -> u32 {
        self.waits.load(Relaxed)
    }

    /// The entry with this name, whose hash is all of the key but its last bits.
    pub(super) fn find<'g>(&'g self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<&'g Entry<V>> {
        self.position(hash, name, guard).map(|(_, entry)| entry)
    }

    /// The entries, in no order.
    pub(super) fn entries<'g>(&'g self, guard: &'g Guard) -> impl Iterator<Item = &'g Entry<V>> {
        self.slots.iter().filter_map(|slot| slot.entry(guard))
    }

    fn position<'g>(&'g self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<(usize, &'g Entry<V>)> {
        for (at, slot) in self.slots.iter().enumerate() {
            if slot.key.load(Relaxed) & HASH_MASK == hash
                && let Some(entry) = slot.entry(guard)
                && entry.key & HASH_MASK == hash
                && *entry.name == *name
            {
                return Some((at, entry));
            }
        }
        None
    }

    /// Takes the entries out of a leaf that nobody uses any more.
    pub(super) fn take_entries(&mut self) -> impl Iterator<Item = Box<Entry<V>>> {
        self.slots.iter_mut().filter_map(|slot| {
            let taken = std::mem::replace(&mut slot.entry, Atomic::null());
            // SAFETY: `&mut self` says that no other thread can reach the entry, and a live leaf's entries belong
            // to it alone: a split hands them on and marks the old leaf, which is never asked for them.
            unsafe { taken.try_into_owned().map(Owned::into_box) }
        })
    }
}

// What is replaced or removed is dropped later, by any thread.
impl<V: Send + 'static> Locked<'_, V> {
    pub(super) fn len(&self) -> usize {
        match *self.state {
            State::Live { len, .. } => usize::from(len),
            State::Replaced => 0,
        }
    }

    /// Adds an entry, whose key is the hash yet and becomes the least one for it that no other entry has.
    pub(super) fn add(&mut self, mut entry: Owned<Entry<V>>, guard: &Guard) -> Result<(), InsertError> {
        let hash = entry.key;
        let (mut free, mut taken) = (None, 0_u128);
        // One pass over the keys; entries are fetched only where the hash is the same.
        for slot in &self.leaf.slots {
            let key = slot.key.load(Relaxed);
            if key == FREE {
                free = free.or(Some(slot));
            } else if key & HASH_MASK == hash {
                if slot.entry(guard).is_some_and(|there| *there.name == *entry.name) {
                    return Err(InsertError::Exists);
                }
                taken |= 1 << (key & !HASH_MASK);
            }
        }
        let Some(slot) = free else { return Err(InsertError::Full) };
        entry.key = hash | u64::from(taken.trailing_ones());
        slot.key.store(entry.key, Relaxed);
        // Release: who sees the pointer sees the entry behind it, and the key before it.
        slot.entry.store(entry, Release);
        self.set_len(self.len() + 1);
        Ok(())
    }

    /// Puts another value in the place of the one that `name` has, under the same key; gives back the old entry.
    pub(super) fn put(&mut self, hash: u64, name: &[u8], value: V, guard: &Guard) -> Option<Gone> {
        let (at, old) = self.leaf.position(hash, name, guard)?;
        let new = Owned::new(Entry { key: old.key, name: name.into(), value });
        Some(self.take_out(at, new.into_shared(guard), guard))
    }

    /// Removes an entry and gives it back.
    pub(super) fn remove(&mut self, hash: u64, name: &[u8], guard: &Guard) -> Option<Gone> {
        let (at, _) = self.leaf.position(hash, name, guard)?;
        let gone = self.take_out(at, Shared::null(), guard);
        self.leaf.slots[at].key.store(FREE, Relaxed);
        self.set_len(self.len() - 1);
        Some(gone)
    }

    /// Takes the entry out of a slot, the only one it is in, and puts another or none in its place. Nobody else does
    /// that at the same time, since the leaf is locked.
    fn take_out(&mut self, at: usize, new: Shared<'_, Entry<V>>, guard: &Guard) -> Gone {
        let slot = &self.leaf.slots[at].entry;
        let old = slot.load(Relaxed, guard);
        // Release: who sees the pointer sees the entry behind it.
        slot.store(new, Release);
        Gone(old.as_raw().cast_mut())
    }

    /// Puts a branch in the place of this leaf, and its entries into new leaves below it. `child` is where the leaf
    /// hangs, `shift` the bits of a key below those that the branch tells apart.
    pub(super) fn split(self, child: &Child<V>, shift: u32, class: &'static LockClass, guard: &Guard) {
        let branch: [Child<V>; FANOUT] = std::array::from_fn(|_| Child::empty());
        let mut lens = [0_usize; FANOUT];
        for slot in &self.leaf.slots {
            let entry = slot.entry.load(Relaxed, guard);
            if entry.is_null() {
                continue;
            }
            let key = slot.key.load(Relaxed);
            let to = index(key, shift);
            let Node::Leaf(leaf) = branch[to].get_or_leaf(class, guard) else { continue };
            leaf.slots[lens[to]].key.store(key, Relaxed);
            // The entry is in two leaves from now on, but only the new one will ever destroy it.
            leaf.slots[lens[to]].entry.store(entry, Relaxed);
            lens[to] += 1;
        }
        for (child, len) in branch.iter().zip(lens) {
            if let Some(Node::Leaf(leaf)) = child.get(guard) {
                *leaf.state.lock_nested(1) = State::Live { len: len as u8, writers: 0 };
            }
        }
        self.replace(child, Some(Node::Branch(branch)), guard);
    }

    /// Takes an empty leaf out of the trie.
    pub(super) fn prune(self, child: &Child<V>, guard: &Guard) {
        debug_assert_eq!(self.len(), 0);
        self.replace(child, None, guard);
    }

    fn replace(mut self, child: &Child<V>, node: Option<Node<V>>, guard: &Guard) {
        // Release: who sees the branch sees its leaves.
        let old = match node {
            Some(node) => child.0.swap(Owned::new(node), Release, guard),
            None => child.0.swap(Shared::null(), Release, guard),
        };
        *self.state = State::Replaced;
        drop(self.state);
        // SAFETY: the swap took the leaf out of the only place it hung, and whoever does that holds the leaf's lock
        // and found it live, so it happens once. Dropping a leaf drops no entries. Readers that still have it are
        // pinned, and so are writers that wait for its lock.
        unsafe { guard.defer_destroy(old) };
    }

    fn set_len(&mut self, new: usize) {
        if let State::Live { len, .. } = &mut *self.state {
            *len = new as u8;
        }
    }
}

impl Batch {
    pub(super) fn push(&mut self, gone: Gone) {
        self.0.push(gone);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives the entries to `free` when nobody can be reading them any more, in whichever thread learns of that.
    pub(super) fn hand_over(self, guard: &Guard, free: impl FnOnce(Vec<Box<dyn Send>>) + Send + 'static) {
        let hand_over = move || {
            // SAFETY: an entry was allocated as a box, and comes from `take_out`: it is in no slot of a live leaf, and
            // in one batch. This runs when everybody is done who was pinned as it was called for, so later than
            // everybody who had found the entry before it was taken out.
            let entries = self.0.into_iter().map(|gone| unsafe { Box::from_raw(gone.0) });
            free(entries.collect());
        };
        // SAFETY: what it captures lives as long as it needs and may go to another thread: the entries are `Send`.
        unsafe { guard.defer_unchecked(hand_over) };
        // At once, and not only when there are many batches.
        guard.flush();
    }
}

/// Which child of a branch a key belongs to.
pub(super) fn index(key: u64, shift: u32) -> usize {
    (key >> shift) as usize & (FANOUT - 1)
}
