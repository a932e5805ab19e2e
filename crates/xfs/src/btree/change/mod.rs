//! Changing a tree: records inserted, deleted and updated; blocks split and joined; roots that grow and shrink.
//!
//! After a change the tree's root may be another, and the tree may have more or fewer levels: the caller stores both
//! where the tree begins ([`Btree::place_in_ag`], [`Btree::fork_root`]).
//!
//! A change has two parts. The first one descends to the place of the record and reads all blocks that will change: those
//! on the way, and from the leaf up, as long as a block is too full or becomes too empty, those next to it. All of them
//! are validated as a walk validates them, and held, so that the second part, which changes them, reads nothing. What a
//! block has under a [`Seal`] when it has changed is a wrong checksum until it is written; the block counts as validated,
//! because a version of it was that the change began with.
//!
//! - A full block shares its entries evenly with a neighbour under the same parent that has room, otherwise it is split.
//! - A block that falls below half takes entries from a neighbour under the same parent, or is joined with it. Only the
//!   root, and in a fork the only child of the root, may have fewer.
//! - The first key of a block and, where records overlap, the highest one, are those that its parent has.
//!
//! Locks: none of its own. One thread changes a tree at a time, and none reads it meanwhile: the caller holds the group's
//! lock, or the inode's fields exclusively.

mod delete;
mod insert;
mod pack;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view;

use undercroft_vfs::Result;

use self::view::{Entries, KEY_MAX_BYTES, Layout, View};
use super::cursor::Step;
use super::node::{self, Node};
use super::{Btree, Kind, Root};
use crate::format::{FsBlock, Geometry};
use crate::transaction::{Block, Handle, Seal};

/// Where a tree gets its blocks from.
pub(crate) trait TreeSpace {
    /// Takes a block for the tree.
    ///
    /// # Errors
    /// Corruption; I/O failure; no space, which a caller that reserved enough does not get.
    fn take(&mut self, handle: &Handle<'_>) -> Result<FsBlock>;

    /// A block of the tree is in use no more. It has been forgotten.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    fn put(&mut self, handle: &Handle<'_>, block: FsBlock) -> Result<()>;
}

/// A kind of tree that can be changed.
pub(crate) trait ChangeKind: Kind {
    /// Whether records may overlap: a pointer's key has two halves then, the lowest key below the pointer and the highest.
    const OVERLAPS: bool = false;

    /// Writes a record of [`RECORD_BYTES`](Kind::RECORD_BYTES) bytes.
    fn pack(record: &Self::Record, bytes: &mut [u8], geometry: &Geometry);
    /// Writes the key of [`KEY_BYTES`](Kind::KEY_BYTES) bytes that a pointer to a leaf with only this record has.
    fn pack_key(record: &Self::Record, bytes: &mut [u8]);
}

/// Blocks that an insertion into a tree of `levels`, or a deletion from it, changes at most: on each level one, one next
/// to it, and one whose neighbour comes or goes; and a new root.
pub(crate) const fn credits(levels: u8) -> u32 {
    3 * levels as u32 + 1
}

/// Blocks that an insertion into a tree of `levels` takes at most.
#[cfg(test)]
const fn space(levels: u8) -> u64 {
    levels as u64 + 1
}

/// A block that a change holds; the root in a fork has none.
#[derive(Clone)]
struct Held {
    block: Option<(FsBlock, Block)>,
    level: u8,
}

impl Held {
    fn new<K: Kind>(node: &Node<K>) -> Self {
        Self { block: node.hold(), level: node.level }
    }

    fn at(&self) -> Option<FsBlock> {
        self.block.as_ref().map(|(at, _)| *at)
    }
}

/// A held block on the way from the root, and which of its entries the way takes.
struct Place {
    held: Held,
    n: usize,
}

/// A neighbour under the same parent.
struct Neighbour {
    held: Held,
    is_left: bool,
}

impl<K: ChangeKind> Btree<'_, K> {
    /// Levels, with that of the root.
    #[cfg(test)]
    pub(crate) const fn levels(&self) -> u8 {
        self.levels
    }

    /// Replaces the record with this key by another that goes to the same place in the order.
    ///
    /// # Errors
    /// Corruption, also when there is no such record or the other one does not go there, when nothing has changed; I/O
    /// failure.
    pub(crate) fn update(&mut self, handle: &Handle<'_>, key: &K::Key, record: &K::Record) -> Result<()> {
        let (path, found) = self.cursor().way_to(key)?;
        let Some(leaf) = path.last().filter(|_| found) else {
            return Err(self.corrupt(None, format!("has no record of {key:?}, which is to change")));
        };
        self.check_place(&leaf.node, leaf.n.checked_sub(1), leaf.n + 1, record)?;
        let places = Self::hold(path);
        let depth = places.len() - 1;
        let geometry = *self.volume.geometry();
        let n = places[depth].n;
        self.edit(handle, &places[depth].held, |mut view| {
            let mut bytes = vec![0; K::RECORD_BYTES];
            K::pack(record, &mut bytes, &geometry);
            view.set_key(n, &bytes);
        });
        self.raise_keys(handle, &places, depth);
        Ok(())
    }

    /// Replaces a record, which is `before`, by one with the same key, in a tree whose records do not overlap: no block but
    /// its leaf changes.
    ///
    /// # Errors
    /// Corruption, also when there is no such record; I/O failure. Nothing has changed then.
    pub(crate) fn replace(&mut self, handle: &Handle<'_>, before: &K::Record, after: &K::Record) -> Result<()>
    where
        K::Record: PartialEq,
    {
        debug_assert!(!K::OVERLAPS && K::key(before) == K::key(after));
        let (path, found) = self.cursor().way_to(&K::key(before))?;
        let geometry = *self.volume.geometry();
        let there = path.last().filter(|_| found).map(|leaf| (leaf, leaf.node.record(leaf.n, &geometry)));
        let Some((leaf, _)) = there.filter(|(_, there)| there == before) else {
            let has = there.map_or_else(|| "nothing".into(), |(_, there)| format!("{there:?}"));
            return Err(self.corrupt(None, format!("has {has} in the place of {before:?}")));
        };
        self.check_place(&leaf.node, leaf.n.checked_sub(1), leaf.n + 1, after)?;
        let (held, n) = (Held::new(&leaf.node), leaf.n);
        // Versions that the way holds would be copied.
        drop(path);
        self.edit(handle, &held, |mut view| {
            let mut bytes = vec![0; K::RECORD_BYTES];
            K::pack(after, &mut bytes, &geometry);
            view.set_key(n, &bytes);
        });
        Ok(())
    }

    /// Checks that a record may stand between two others of a leaf.
    fn check_place(
        &self,
        leaf: &Node<K>,
        before: Option<usize>,
        after: usize,
        record: &K::Record,
    ) -> Result<()> {
        let geometry = self.volume.geometry();
        let follows = before.is_none_or(|n| K::in_order(&leaf.record(n, geometry), record));
        if follows && (after >= leaf.count || K::in_order(record, &leaf.record(after, geometry))) {
            return Ok(());
        }
        Err(self.corrupt(leaf.block, format!("has a record in the place of {record:?}")))
    }

    /// Holds the blocks of a way, and none of the versions that it has: those would be copied by a change.
    fn hold(path: Vec<Step<K>>) -> Vec<Place> {
        path.into_iter().map(|step| Place { held: Held::new(&step.node), n: step.n }).collect()
    }

    /// How many entries there is room for in a block, or in the root in a fork.
    fn room(&self, node: &Node<K>) -> usize {
        match (node.block, &self.root) {
            (None, Root::Fork(fork)) => Layout::of_fork::<K>(fork.len()).room,
            _ => self.block_room(node.level),
        }
    }

    fn block_room(&self, level: u8) -> usize {
        Layout::of_block::<K>(self.volume.geometry(), level).room
    }

    /// Reads the neighbour of `node` under the same parent, whose pointer has number `n`, and validates it against both.
    fn read_neighbour(&self, parent: &Node<K>, n: usize, node: &Node<K>, is_left: bool) -> Result<Node<K>> {
        let geometry = self.volume.geometry();
        let Some(block) = parent.child(n, self) else {
            return Err(self.corrupt(parent.block, format!("pointer {n} leads out of the filesystem")));
        };
        let neighbour = Node::read(self, block, node.level)?;
        if neighbour.key(0, geometry) != parent.key(n, geometry) {
            return Err(self.corrupt(neighbour.block, format!("does not begin with key {n} of its parent")));
        }
        let (left, right) = if is_left { (&neighbour, node) } else { (node, &neighbour) };
        self.check_neighbours(left, right)?;
        Ok(neighbour)
    }

    /// Reads the block after `node` on its level, wherever its parent is, and validates it against `node`.
    fn read_next(&self, node: &Node<K>) -> Result<Option<Node<K>>> {
        let [_, Some(next)] = node.siblings(self) else { return Ok(None) };
        if next == FsBlock::NULL {
            return Err(self.corrupt(node.block, "has a sibling outside of the filesystem".into()));
        }
        let next = Node::read(self, next, node.level)?;
        self.check_neighbours(node, &next)?;
        Ok(Some(next))
    }

    fn check_neighbours(&self, left: &Node<K>, right: &Node<K>) -> Result<()> {
        let geometry = self.volume.geometry();
        if left.siblings(self)[1] != right.block || right.siblings(self)[0] != left.block {
            let detail = match left.block {
                Some(left) => format!("is not the sibling of block {left}, which stands before it"),
                None => "has a sibling that stands in an inode".into(),
            };
            return Err(self.corrupt(right.block, detail));
        }
        let (last, first) = (left.count.checked_sub(1), right.key(0, geometry));
        if last.is_none_or(|last| left.key(last, geometry) >= first) {
            return Err(
                self.corrupt(right.block, "does not begin past the end of the block before it".into())
            );
        }
        Ok(())
    }

    fn seal() -> Seal {
        if K::LONG { Seal::LongBtree } else { Seal::ShortBtree }
    }

    /// Changes a held block, or the root in the fork.
    fn edit<R>(&mut self, handle: &Handle<'_>, held: &Held, change: impl FnOnce(View<&mut [u8]>) -> R) -> R {
        let layout = Layout::of_block::<K>(self.volume.geometry(), held.level);
        match (&held.block, &mut self.root) {
            (Some((_, block)), _) => {
                handle.change_block(block, Self::seal(), |bytes| change(View::new(bytes, layout)))
            }
            (None, Root::Fork(fork)) => {
                let mut bytes = fork.to_vec();
                let layout = Layout::of_fork::<K>(bytes.len());
                let result = change(View::new(&mut bytes[..], layout));
                *fork = bytes.into();
                result
            }
            (None, Root::Block(_)) => unreachable!("a tree of a group has its root in a block"),
        }
    }

    /// Looks at a held block, or at the root in the fork.
    fn look<R>(&self, held: &Held, look: impl FnOnce(View<&[u8]>) -> R) -> R {
        match (&held.block, &self.root) {
            (Some((_, block)), _) => {
                let layout = Layout::of_block::<K>(self.volume.geometry(), held.level);
                look(View::new(&block.buffer(), layout))
            }
            (None, Root::Fork(fork)) => look(View::new(fork, Layout::of_fork::<K>(fork.len()))),
            (None, Root::Block(_)) => unreachable!("a tree of a group has its root in a block"),
        }
    }

    fn entries(&self, held: &Held) -> Entries {
        self.look(held, |view| view.entries())
    }

    fn count(&self, held: &Held) -> usize {
        self.look(held, |view| view.count())
    }

    fn set_entries(&mut self, handle: &Handle<'_>, held: &Held, entries: &Entries) {
        self.edit(handle, held, |mut view| view.set_entries(entries));
    }

    /// The key that a pointer to the block has.
    fn pointer_key(&self, held: &Held) -> [u8; KEY_MAX_BYTES] {
        self.look(held, |view| view.pointer_key::<K>(held.level, self.volume.geometry()))
    }

    /// Lets entry `n` of a parent have the key of a child.
    fn set_key_of(&mut self, handle: &Handle<'_>, parent: &Held, n: usize, child: &Held) -> bool {
        let key = self.pointer_key(child);
        let key = &key[..K::KEY_BYTES];
        let differs = self.look(parent, |view| view.key(n) != key);
        if differs {
            self.edit(handle, parent, |mut view| view.set_key(n, key));
        }
        differs
    }

    /// Lets the blocks above the one at `depth` have its key, as far up as it makes a difference.
    fn raise_keys(&mut self, handle: &Handle<'_>, places: &[Place], depth: usize) {
        for depth in (1..=depth).rev() {
            let parent = &places[depth - 1];
            if !self.set_key_of(handle, &parent.held, parent.n, &places[depth].held) {
                return;
            }
        }
    }

    /// The bytes of a pointer.
    fn pointer_to(&self, block: FsBlock) -> Vec<u8> {
        if K::LONG {
            return block.0.to_be_bytes().to_vec();
        }
        let at = self.volume.geometry().split(block).map_or(u32::MAX, |(_, at)| at.0);
        at.to_be_bytes().to_vec()
    }

    /// Sets the siblings of a block: the one before it or the one after it.
    fn set_sibling(&mut self, handle: &Handle<'_>, held: &Held, is_left: bool, sibling: Option<FsBlock>) {
        let len = node::pointer_bytes::<K>();
        let pointer = sibling.map_or_else(|| vec![0xff; len], |sibling| self.pointer_to(sibling));
        let at = if is_left { 8 } else { 8 + len };
        self.edit(handle, held, |view| view.bytes[at..at + len].copy_from_slice(&pointer));
    }

    /// Makes a block of the tree, without entries and siblings.
    fn make_block(&self, handle: &Handle<'_>, at: FsBlock, level: u8) -> Result<Held> {
        let volume = self.volume;
        handle.make_owned(at, Self::seal(), self.owner(), |bytes| {
            bytes[..4].copy_from_slice(&K::MAGIC[usize::from(volume.geometry().has_crc())].to_be_bytes());
            bytes[4..6].copy_from_slice(&u16::from(level).to_be_bytes());
            bytes[8..8 + 2 * node::pointer_bytes::<K>()].fill(0xff);
        })?;
        Ok(Held { block: Some((at, volume.block(at)?)), level })
    }
}
