//! The nodes of the trie: leaves with slots for entries, and branches.
//!
//! Unsafe: nodes and entries are reached through crossbeam's epoch pointers, whose targets live until every reader
//! that was pinned when they were unlinked is done. The rules for which thread unlinks what are the proof; see each
//! block. Entries that were unlinked are collected in a [`Batch`] before they are freed; `retired.rs` says why.
#![expect(unsafe_code, reason = "epoch pointers: readers without locks")]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use undercroft_sync::{LockClass, Mutex, MutexGuard, prefetch_for_write};

use super::key::HASH_MASK;
use super::table::InsertError;
use crate::owned_name::OwnedName;

/// Entries of a leaf; chosen so that a leaf fills four cache lines.
pub(super) const SLOTS: usize = 14;

/// Bits of the key that one branch tells apart.
pub(super) const FANOUT_BITS: u32 = 3;
pub(super) const FANOUT: usize = 1 << FANOUT_BITS;

/// A name and what it stands for.
pub(super) struct Entry<V> {
    pub(super) key: u64,
    pub(super) name: OwnedName,
    pub(super) value: V,
}

/// An entry with a value of three words fills a cache line, and no more.
const _: () = assert!(size_of::<Entry<[u64; 3]>>() <= 64);

/// A child of a branch, or the root: nothing, a leaf or a branch. It changes from a leaf to something else under the
/// leaf's lock; from nothing to a leaf by compare-and-swap.
///
/// The pointer's tag tells a branch from a leaf: a leaf's first cache line is where other threads write, and on the way
/// to a leaf it need not be waited for.
pub(super) struct Child<V>(Atomic<Node<V>>);

/// Where a child leads.
pub(super) enum Below<'g, V> {
    Leaf(&'g Leaf<V>),
    Branch(&'g [Child<V>; FANOUT]),
}

/// The tag of a pointer to a branch.
const BRANCH: usize = 1;

#[repr(align(128))]
pub(super) enum Node<V> {
    Leaf(Leaf<V>),
    Branch([Child<V>; FANOUT]),
}

/// A leaf fills two pairs of cache lines, and no more. (A model checker's locks are larger.)
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Node<()>>() == 256);

/// Slots for entries. The lock and the first slots share a cache line, which is all that a leaf with few entries
/// moves between processors, and all that is looked at: the order of the fields counts.
#[repr(C)]
pub(super) struct Leaf<V> {
    state: Mutex<State>,
    /// A bit for each slot that has an entry, the lowest for the first. It is set after the entry is there. It is
    /// exact for the holder of the lock; others pass over a slot that turns out to be empty.
    taken: AtomicU16,
    /// How often a writer had to wait here lately.
    waits: AtomicU32,
    slots: [Slot<V>; SLOTS],
}

/// Room for an entry. The key is written before the pointer, and is only a hint for readers: what counts is the key
/// and the name in the entry. For the holder of the leaf's lock it is exact while the slot is taken.
struct Slot<V> {
    key: AtomicU64,
    entry: Atomic<Entry<V>>,
}

/// The state of a leaf, for a writer that has locked it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is part of the trie. It records the last bits of the numbers of the threads that wrote to it.
    Live { writers: u8 },
    /// A branch, others elsewhere, or nothing has taken its place; it does not change any more.
    Replaced,
}

/// An entry that was taken out of its table. Readers may still have it.
#[must_use = "its memory is lost unless it is retired"]
pub(super) struct Gone(*mut dyn Send);

/// Entries that were taken out of their tables, and that readers may still have.
#[derive(Default)]
pub(super) struct Batch(Vec<Gone>);

/// A leaf whose lock is held, as proof for the methods that change it.
pub(super) struct Locked<'a, V> {
    leaf: &'a Leaf<V>,
    state: MutexGuard<'a, State>,
}

impl<V> Child<V> {
    pub(super) const fn empty() -> Self {
        Self(Atomic::null())
    }

    /// The branch here, if there is one; that needs no pinned reader.
    pub(super) fn branch(&self) -> Option<&[Child<V>; FANOUT]> {
        // SAFETY: only a branch is looked at, and the first that this child leads to stays: `Locked::replace` puts
        // something else in a leaf's place, and `take` has `&mut self`.
        let node = self.0.load(Acquire, unsafe { crossbeam_epoch::unprotected() });
        if node.tag() != BRANCH {
            return None;
        }
        // SAFETY: see above; it was made before it was put here, with `Release`.
        match unsafe { node.as_ref() } {
            Some(Node::Branch(children)) => Some(children),
            _ => None,
        }
    }

    /// Begins to fetch the first cache line of the leaf here, which may go at this very moment.
    pub(super) fn prefetch_leaf(&self) {
        // SAFETY: nothing behind the pointer is looked at.
        let node = self.0.load(Relaxed, unsafe { crossbeam_epoch::unprotected() });
        prefetch_for_write(node.as_raw());
    }

    pub(super) fn get<'g>(&'g self, guard: &'g Guard) -> Option<Below<'g, V>> {
        let node = self.0.load(Acquire, guard);
        let is_branch = node.tag() == BRANCH;
        // SAFETY: a node is destroyed only by `Locked::replace` and `drop`; the first defers it past this guard, the
        // second has the table for itself.
        let node = unsafe { node.as_ref() }?;
        // Stated here so that the compiler does not read the node itself. SAFETY: `Locked::replace` tags a branch and
        // nothing else, and no other code puts one here.
        let impossible = || unsafe { std::hint::unreachable_unchecked() };
        Some(if is_branch {
            match node {
                Node::Branch(children) => Below::Branch(children),
                Node::Leaf(_) => impossible(),
            }
        } else {
            match node {
                Node::Leaf(leaf) => Below::Leaf(leaf),
                Node::Branch(_) => impossible(),
            }
        })
    }

    /// The node here, which is a new leaf if there was none.
    pub(super) fn get_or_leaf<'g>(&'g self, class: &'static LockClass, guard: &'g Guard) -> Below<'g, V> {
        loop {
            if let Some(node) = self.get(guard) {
                return node;
            }
            let leaf = Owned::new(Node::Leaf(Leaf::new(class)));
            // The first one counts; the other's leaf is dropped.
            let _ = self.0.compare_exchange(Shared::null(), leaf, Release, Relaxed, guard);
        }
    }

    /// Takes the subtree out of a table that is not used any more.
    pub(super) fn take(&mut self) -> Option<Box<Node<V>>> {
        let taken = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: `&mut self` says that no other thread can reach this child, and it was not destroyed before: the
        // code that destroys a child puts something else in its place.
        unsafe { taken.try_into_owned().map(Owned::into_box) }
    }
}

impl<V> Slot<V> {
    fn free() -> Self {
        Self { key: AtomicU64::new(0), entry: Atomic::null() }
    }

    fn entry<'g>(&'g self, guard: &'g Guard) -> Option<&'g Entry<V>> {
        // SAFETY: an entry is destroyed by a `Batch`, which has it from `Locked::put` or `Locked::remove`, and by
        // `drop`. The last has the table exclusively. The first two took it out of the slot of a live leaf, and the
        // batch defers it past every guard that there was then. It may still be in leaves that were split or spread;
        // but they had left the trie before, and the thread that found the live leaf knew of that, so a thread that is
        // pinned later finds neither them nor the entry: the way to the one that still hangs at the root begins
        // elsewhere then.
        unsafe { self.entry.load(Acquire, guard).as_ref() }
    }
}

impl<V> Leaf<V> {
    fn new(class: &'static LockClass) -> Self {
        Self {
            state: Mutex::new(class, State::Live { writers: 0 }),
            taken: AtomicU16::new(0),
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
        let State::Live { writers } = &mut *state else { return None };
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

    /// Whether there are no entries. Acquire: a reader that finds none sees what was done before the last one went.
    pub(super) fn is_vacant(&self) -> bool {
        self.taken.load(Acquire) == 0
    }

    /// The entry with this name, whose hash is all of the key but its last bits.
    pub(super) fn find<'g>(&'g self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<&'g Entry<V>> {
        self.position(hash, name, guard).map(|(_, entry)| entry)
    }

    /// The entries, in no order.
    pub(super) fn entries<'g>(&'g self, guard: &'g Guard) -> impl Iterator<Item = &'g Entry<V>> {
        self.taken().filter_map(|at| self.slots[at].entry(guard))
    }

    /// The slots that have entries. Acquire: a reader that sees the bit sees the entry.
    fn taken(&self) -> impl Iterator<Item = usize> + use<V> {
        let mut left = self.taken.load(Acquire);
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            // Nothing is left of nothing.
            left &= left.wrapping_sub(1);
            (at < SLOTS).then_some(at)
        })
    }

    fn position<'g>(&'g self, hash: u64, name: &[u8], guard: &'g Guard) -> Option<(usize, &'g Entry<V>)> {
        for at in self.taken() {
            let slot = &self.slots[at];
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

    /// Takes the entries out of a leaf that is not used any more.
    pub(super) fn take_entries(&mut self) -> impl Iterator<Item = Box<Entry<V>>> {
        self.slots.iter_mut().filter_map(|slot| {
            let taken = std::mem::replace(&mut slot.entry, Atomic::null());
            // SAFETY: `&mut self` says that no other thread can reach the entry, and a live leaf owns its entries: a
            // split hands them on and marks the old leaf, which is never asked for them.
            unsafe { taken.try_into_owned().map(Owned::into_box) }
        })
    }
}

// What is replaced or removed is dropped later, by any thread.
impl<V: Send + 'static> Locked<'_, V> {
    pub(super) fn len(&self) -> usize {
        self.leaf.taken.load(Relaxed).count_ones() as usize
    }

    /// Adds an entry, whose key is the hash yet and becomes the least one for it that no other entry has.
    pub(super) fn add(&mut self, mut entry: Owned<Entry<V>>, guard: &Guard) -> Result<(), InsertError> {
        let hash = entry.key;
        let mut numbers = 0_u128;
        // One pass over the keys; entries are fetched only where the hash is the same.
        for at in self.leaf.taken() {
            let slot = &self.leaf.slots[at];
            let key = slot.key.load(Relaxed);
            if key & HASH_MASK == hash {
                if slot.entry(guard).is_some_and(|there| *there.name == *entry.name) {
                    return Err(InsertError::Exists);
                }
                numbers |= 1 << (key & !HASH_MASK);
            }
        }
        let free = self.leaf.taken.load(Relaxed).trailing_ones() as usize;
        let Some(slot) = self.leaf.slots.get(free) else { return Err(InsertError::Full) };
        entry.key = hash | u64::from(numbers.trailing_ones());
        slot.key.store(entry.key, Relaxed);
        // Release: a reader that sees the pointer sees the entry behind it, and the key before it.
        slot.entry.store(entry, Release);
        self.set_taken(free, true);
        Ok(())
    }

    /// Puts another value in the place of the one that `name` has, under the same key; returns the old entry.
    pub(super) fn put(&mut self, hash: u64, name: &[u8], value: V, guard: &Guard) -> Option<Gone> {
        let (at, old) = self.leaf.position(hash, name, guard)?;
        let new = Owned::new(Entry { key: old.key, name: name.into(), value });
        Some(self.take_out(at, new.into_shared(guard), guard))
    }

    /// Removes an entry and gives it back.
    pub(super) fn remove(&mut self, hash: u64, name: &[u8], guard: &Guard) -> Option<Gone> {
        let (at, _) = self.leaf.position(hash, name, guard)?;
        let gone = self.take_out(at, Shared::null(), guard);
        self.set_taken(at, false);
        Some(gone)
    }

    /// Takes the entry out of a slot, the only one it is in, and puts another or none in its place. The leaf is
    /// locked, so only one thread does that at a time.
    fn take_out(&mut self, at: usize, new: Shared<'_, Entry<V>>, guard: &Guard) -> Gone {
        let slot = &self.leaf.slots[at].entry;
        let old = slot.load(Relaxed, guard);
        // Release: a reader that sees the pointer sees the entry behind it.
        slot.store(new, Release);
        Gone(old.as_raw().cast_mut())
    }

    /// Puts a branch in the place of this leaf, and its entries into new leaves below it. `child` is where the leaf
    /// hangs, `shift` the bits of a key below those that the branch tells apart.
    pub(super) fn split(self, child: &Child<V>, shift: u32, class: &'static LockClass, guard: &Guard) {
        let branch: [Child<V>; FANOUT] = std::array::from_fn(|_| Child::empty());
        self.hand_on(|key| &branch[index(key, shift)], class, guard);
        self.replace(child, Some(Node::Branch(branch)), guard);
    }

    /// Puts the entries into new leaves as well, at the children that their keys belong to, which no other thread can
    /// reach yet. The caller must make sure that no thread comes here any more.
    pub(super) fn hand_on<'c>(
        &self,
        child: impl Fn(u64) -> &'c Child<V>,
        class: &'static LockClass,
        guard: &Guard,
    ) {
        for at in self.leaf.taken() {
            let slot = &self.leaf.slots[at];
            let key = slot.key.load(Relaxed);
            let Below::Leaf(leaf) = child(key).get_or_leaf(class, guard) else { continue };
            // No other thread can reach this leaf yet.
            let taken = leaf.taken.load(Relaxed);
            let free = &leaf.slots[taken.trailing_ones() as usize];
            free.key.store(key, Relaxed);
            // The entry is in two leaves from now on, but only the new one will ever destroy it.
            free.entry.store(slot.entry.load(Relaxed, guard), Relaxed);
            leaf.taken.store(taken << 1 | 1, Relaxed);
        }
    }

    /// Leaves the leaf where it hangs, though it is not part of the trie any more.
    pub(super) fn leave(mut self) {
        *self.state = State::Replaced;
    }

    /// Takes an empty leaf out of the trie.
    pub(super) fn prune(self, child: &Child<V>, guard: &Guard) {
        debug_assert_eq!(self.len(), 0);
        self.replace(child, None, guard);
    }

    fn replace(mut self, child: &Child<V>, node: Option<Node<V>>, guard: &Guard) {
        // Release: a reader that sees the branch sees its leaves.
        let old = match node {
            Some(node) => {
                let tag = if matches!(node, Node::Branch(_)) { BRANCH } else { 0 };
                child.0.swap(Owned::new(node).with_tag(tag), Release, guard)
            }
            None => child.0.swap(Shared::null(), Release, guard),
        };
        *self.state = State::Replaced;
        drop(self.state);
        // SAFETY: the swap took the leaf out of the only place it hung. That is done under the leaf's lock and only to
        // a live leaf, so it happens once. Dropping a leaf drops no entries. Readers that still have it are pinned,
        // and so are writers that wait for its lock.
        unsafe { guard.defer_destroy(old) };
    }

    fn set_taken(&mut self, at: usize, taken: bool) {
        let bit = 1 << at;
        let before = self.leaf.taken.load(Relaxed);
        // Release: a reader that sees the bit sees the entry.
        self.leaf.taken.store(if taken { before | bit } else { before & !bit }, Release);
    }
}

impl Batch {
    pub(super) fn push(&mut self, gone: Gone) {
        self.0.push(gone);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Gives the entries to `free` when no thread can be reading them any more, in the thread that finds that out.
    pub(super) fn hand_over(self, guard: &Guard, free: impl FnOnce(Vec<Box<dyn Send>>) + Send + 'static) {
        let hand_over = move || {
            // SAFETY: an entry was allocated as a box, and comes from `take_out`: it is in no slot of a live leaf, and
            // in one batch. This runs when every thread is done that was pinned as it was called for, so later than
            // every thread that had found the entry before it was taken out.
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
