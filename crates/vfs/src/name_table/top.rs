//! Where a path into the trie begins: at its root, or, once writers have contended for the only leaf, at one of many
//! places selected by the highest bits of a key.
//!
//! Several threads that make, move and remove a name each in a directory with few names would contend for few leaves,
//! and reach each by several branches. So the only leaf is not split as others are: its entries are distributed at once
//! below [`CHILDREN`] children, which the table holds itself. The leaf stays linked at the root for readers that began
//! there before; a writer finds it replaced. This is never undone.
//!
//! A directory that had more names than a leaf holds before writers met is a trie of branches all the way.

use std::sync::OnceLock;

use crossbeam_epoch::Guard;
use undercroft_sync::LockClass;

use super::key::{KEY_BITS, SPREADING_DEPTH};
use super::leaf::{Child, FANOUT_BITS, Locked, Node};

/// Bits that tell the children apart: as many as three branches would.
const BITS: u32 = 3 * FANOUT_BITS;
const CHILDREN: usize = 1 << BITS;

pub(super) struct Top<V> {
    root: Child<V>,
    spread: OnceLock<Box<[Child<V>; CHILDREN]>>,
}

/// Where a way begins.
pub(super) struct Start<'a, V> {
    pub(super) child: &'a Child<V>,
    /// How far a branch there shifts a key.
    pub(super) shift: u32,
    /// Branches above, as far as it matters which of its leaves are kept.
    pub(super) depth: u32,
}

impl<V> Top<V> {
    pub(super) const fn empty() -> Self {
        Self { root: Child::empty(), spread: OnceLock::new() }
    }

    #[inline]
    pub(super) fn start(&self, key: u64) -> Start<'_, V> {
        match self.spread.get() {
            None => Start { child: &self.root, shift: KEY_BITS - FANOUT_BITS, depth: 0 },
            Some(children) => {
                let child = &children[(key >> (KEY_BITS - BITS)) as usize & (CHILDREN - 1)];
                Start { child, shift: KEY_BITS - BITS - FANOUT_BITS, depth: SPREADING_DEPTH }
            }
        }
    }

    /// Whether this is where all ways begin.
    pub(super) fn is_root(&self, child: &Child<V>) -> bool {
        std::ptr::eq(child, &self.root)
    }

    /// Hands the entries of the root's leaf to leaves below many children, where ways begin from now on.
    pub(super) fn spread(&self, leaf: Locked<'_, V>, class: &'static LockClass, guard: &Guard)
    where
        V: Send + 'static,
    {
        let children = Box::new(std::array::from_fn(|_| Child::empty()));
        let shift = KEY_BITS - BITS;
        leaf.hand_on(|key| &children[(key >> shift) as usize & (CHILDREN - 1)], class, guard);
        // Only the holder of the root's leaf comes here, and only if that leaf was live.
        let first = self.spread.set(children).is_ok();
        debug_assert!(first);
        // Only now: a thread that finds it replaced looks for the children.
        leaf.leave();
    }

    /// Does so without waiting for writers to meet.
    #[cfg(test)]
    pub(super) fn spread_now(&self, class: &'static LockClass)
    where
        V: Send + 'static,
    {
        let guard = crossbeam_epoch::pin();
        if let super::leaf::Below::Leaf(leaf) = self.root.get_or_leaf(class, &guard)
            && let Some(leaf) = leaf.lock()
        {
            self.spread(leaf, class, &guard);
        }
    }

    /// Gives the trees below to `each`, of a table that is not used any more.
    pub(super) fn take(&mut self, each: impl FnMut(Box<Node<V>>)) {
        let root = self.root.take();
        match self.spread.take() {
            None => root.into_iter().for_each(each),
            // The root's leaf goes here, whose entries are others' now.
            Some(mut children) => children.iter_mut().filter_map(Child::take).for_each(each),
        }
    }
}
