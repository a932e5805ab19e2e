//! The trie as a table of names.

use std::fmt;
use std::ops::ControlFlow;

use crossbeam_epoch::{Guard, Owned, pin};
use undercroft_sync::LockClass;

use super::key::{KEY_MAX, NUMBER_BITS, SPREADING_DEPTH, least_key};
use super::leaf::{Below, Child, Entry, FANOUT, FANOUT_BITS, Gone, Leaf, Node, SLOTS, index};
use super::retired::retire;
use super::top::{Start, Top};
use crate::HashedName;

/// Below this the bits are not the hash's any more.
const LAST_SHIFT: u32 = NUMBER_BITS;

/// A leaf at which so many of some 256 writers waited is split, however few its entries are.
const WAITS_MAX: u32 = 16;

/// The names of one directory and what they stand for.
///
/// A value that is replaced or removed is dropped later, most likely by the thread that did it, when it removes others;
/// one that is refused, under the lock of a leaf. So its `drop` must not wait for a lock.
pub struct NameTable<V> {
    top: Top<V>,
    class: &'static LockClass,
}

/// Why a name was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// It is there already.
    #[error("the name exists already")]
    Exists,
    /// More names have the same hash than the table can tell apart.
    #[error("too many names have the same hash")]
    Full,
}

/// Where a walk from the root came to.
struct Place<'g, V> {
    child: &'g Child<V>,
    leaf: &'g Leaf<V>,
    /// Bits below those that led to the leaf.
    shift: u32,
    /// Branches above the leaf.
    depth: u32,
}

impl<V: Send + Sync + 'static> NameTable<V> {
    /// A table without names, whose locks have this class.
    #[must_use]
    pub fn new(class: &'static LockClass) -> Self {
        Self { top: Top::empty(), class }
    }

    /// What `read` makes of the value of `name`, if the table has it. Takes no lock.
    pub fn get<R>(&self, name: &HashedName<'_>, read: impl FnOnce(&V) -> R) -> Option<R> {
        let guard = pin();
        let hash = least_key(name);
        let Start { child, mut shift, .. } = self.top.start(hash);
        let mut node = child.get(&guard)?;
        loop {
            match node {
                Below::Leaf(leaf) => return leaf.find(hash, name, &guard).map(|entry| read(&entry.value)),
                Below::Branch(children) => node = children[index(hash, shift)].get(&guard)?,
            }
            shift -= FANOUT_BITS.min(shift);
        }
    }

    /// Prefetches what adding `name` changes, for a caller that has other work to do before that.
    pub fn prefetch(&self, name: &HashedName<'_>) {
        let hash = least_key(name);
        let Start { mut child, mut shift, .. } = self.top.start(hash);
        while let Some(children) = child.branch() {
            child = &children[index(hash, shift)];
            shift -= FANOUT_BITS.min(shift);
        }
        child.prefetch_leaf();
    }

    /// Adds a name.
    ///
    /// # Errors
    /// [`Exists`](InsertError::Exists), [`Full`](InsertError::Full).
    pub fn insert(&self, name: &HashedName<'_>, value: V) -> Result<(), InsertError> {
        let guard = pin();
        let hash = least_key(name);
        let entry = Owned::new(Entry { key: hash, name: name.bytes().into(), value });
        loop {
            let Place { child, leaf, shift, depth: _ } = self.descend(hash, &guard);
            let Some(mut locked) = leaf.lock() else { continue };
            let do_meet = leaf.waits() >= WAITS_MAX;
            if do_meet && self.top.is_root(child) {
                self.top.spread(locked, self.class, &guard);
                continue;
            }
            if (do_meet || locked.len() == SLOTS) && shift >= LAST_SHIFT {
                locked.split(child, shift, self.class, &guard);
                continue;
            }
            return locked.add(entry, &guard);
        }
    }

    /// Lets a name stand for another value, in one step for every reader; `false` if the table does not have it.
    pub fn replace(&self, name: &HashedName<'_>, value: V) -> bool {
        let guard = pin();
        let hash = least_key(name);
        loop {
            let Some(place) = self.find_leaf(hash, &guard) else { return false };
            let Some(mut locked) = place.leaf.lock() else { continue };
            let old = locked.put(hash, name, value, &guard);
            drop(locked);
            return retired(old, &guard);
        }
    }

    /// Removes a name; `false` if the table does not have it. Its value is dropped after its last reader.
    pub fn remove(&self, name: &HashedName<'_>) -> bool {
        let guard = pin();
        let hash = least_key(name);
        loop {
            let Some(place) = self.find_leaf(hash, &guard) else { return false };
            let Some(mut locked) = place.leaf.lock() else { continue };
            let removed = locked.remove(hash, name, &guard);
            if locked.len() == 0 && place.depth > SPREADING_DEPTH {
                locked.prune(place.child, &guard);
            } else {
                drop(locked);
            }
            return retired(removed, &guard);
        }
    }

    /// Whether there are no names. If so, the caller sees what other threads did before they removed theirs.
    pub fn is_empty(&self) -> bool {
        self.scan(0, |_, _, _| ControlFlow::Break(())).is_continue()
    }

    /// Gives `visit` the keys, names and values from the key `from` on, in rising order of the keys, which are below
    /// 2^63. What is added or removed meanwhile is shown or not; what is there all the time is shown once.
    pub fn scan(
        &self,
        from: u64,
        mut visit: impl FnMut(u64, &[u8], &V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut next = from;
        while next <= KEY_MAX {
            // Pinned for a leaf with names at a time, so that a slow visitor holds up little.
            let guard = pin();
            let (leaf, end) = loop {
                let (leaf, end) = self.leaf_at(next, &guard);
                let leaf = leaf.filter(|leaf| !leaf.is_vacant());
                if leaf.is_some() || end == KEY_MAX {
                    break (leaf, end);
                }
                next = end + 1;
            };
            if let Some(leaf) = leaf {
                let mut found: [Option<&Entry<V>>; SLOTS] = [None; SLOTS];
                let entries = leaf.entries(&guard).filter(|entry| entry.key >= next);
                let count = found.iter_mut().zip(entries).map(|(place, entry)| *place = Some(entry)).count();
                let found = &mut found[..count];
                found.sort_unstable_by_key(|entry| entry.map(|entry| entry.key));
                let mut last = None;
                for entry in found.iter().flatten() {
                    // A name that was removed and added again during the scan may have been seen in two slots.
                    if last.replace(entry.key) != Some(entry.key) {
                        visit(entry.key, &entry.name, &entry.value)?;
                    }
                }
            }
            next = end + 1;
        }
        ControlFlow::Continue(())
    }

    /// Spreads a table that is one leaf.
    #[cfg(test)]
    pub(super) fn spread(&self) {
        self.top.spread_now(self.class);
    }

    /// The leaf that holds keys at `key`, if there is one, and the last key that belongs there.
    fn leaf_at<'g>(&'g self, key: u64, guard: &'g Guard) -> (Option<&'g Leaf<V>>, u64) {
        let Start { mut child, mut shift, .. } = self.top.start(key);
        loop {
            // With every bit set that did not lead here.
            let end = key | ((1 << (shift + FANOUT_BITS)) - 1);
            match child.get(guard) {
                None => return (None, end),
                Some(Below::Leaf(leaf)) => return (Some(leaf), end),
                Some(Below::Branch(children)) => child = &children[index(key, shift)],
            }
            shift -= FANOUT_BITS.min(shift);
        }
    }

    /// The leaf for a hash, if there is one.
    fn find_leaf<'g>(&'g self, hash: u64, guard: &'g Guard) -> Option<Place<'g, V>> {
        let Start { mut child, mut shift, mut depth } = self.top.start(hash);
        loop {
            match child.get(guard)? {
                Below::Leaf(leaf) => return Some(Place { child, leaf, shift, depth }),
                Below::Branch(children) => child = &children[index(hash, shift)],
            }
            (shift, depth) = (shift - FANOUT_BITS.min(shift), depth + 1);
        }
    }

    /// The leaf for a hash, made if there is none.
    fn descend<'g>(&'g self, hash: u64, guard: &'g Guard) -> Place<'g, V> {
        let Start { mut child, mut shift, mut depth } = self.top.start(hash);
        loop {
            match child.get_or_leaf(self.class, guard) {
                Below::Leaf(leaf) => return Place { child, leaf, shift, depth },
                Below::Branch(children) => child = &children[index(hash, shift)],
            }
            (shift, depth) = (shift - FANOUT_BITS.min(shift), depth + 1);
        }
    }
}

/// Frees an entry in time; `false` if there is none.
fn retired(entry: Option<Gone>, guard: &Guard) -> bool {
    entry.map(|entry| retire(entry, guard)).is_some()
}

impl<V> Drop for NameTable<V> {
    fn drop(&mut self) {
        // With a stack: the trie's depth is bounded, but dropping level by level needs no thought about it.
        let mut nodes: Vec<Box<Node<V>>> = Vec::new();
        self.top.take(|node| nodes.push(node));
        while let Some(mut node) = nodes.pop() {
            match &mut *node {
                Node::Leaf(leaf) => leaf.take_entries().for_each(drop),
                Node::Branch(children) => {
                    nodes.reserve(FANOUT);
                    nodes.extend(children.iter_mut().filter_map(Child::take));
                }
            }
        }
    }
}

impl<V> fmt::Debug for NameTable<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameTable").field("class", &self.class.name()).finish_non_exhaustive()
    }
}
