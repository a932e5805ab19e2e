//! Putting names into a directory, and what a directory does to have room for them.
//!
//! Most names go into a leaf that has room for them: the directory's `index` is held shared, and the leaf's lock, so
//! that two leaves can be added to at the same time. Where there is no room, `index` is held exclusively and the
//! directory changes its shape, one step after the other until a leaf has room:
//!
//! | the directory | the step |
//! | --- | --- |
//! | lies in its inode | its entries move to a first block |
//! | has one block, and may have an index | its entries move to a second block, the first becomes the index's root |
//! | has no index and will have none | one more block |
//! | has an index that is full | a block of it gives half of its entries to a new one, or a level is added below the root |
//! | has an index with room | the leaf gives half of its entries, by their hashes, to a new one |
//!
//! After each step the directory is consistent, so a full disk ends an addition without harm. Source: kernel
//! documentation, section "Hash Tree Directories", and e2fsck's and debugfs's reading of what is made here.

use undercroft_vfs::{Error, FileType, Result};

use super::changing::{Changing, LockedBlock};
use super::directory::Shape;
use super::edit::{self, Halves, Look, NewEntry};
use super::index::{self, BLOCK_MASK, Leaves, NODE_ENTRIES_AT, Node, ROOT_ENTRIES_AT};
use super::query::Query;
use super::{NAME_MAX_BYTES, by_hash, inline_change, node};
use crate::alloc::ALLOCATE_CREDITS;
use crate::features::Incompat;
use crate::inode::InodeFlags;
use crate::inode::InodeState;
use crate::map;

use crate::numbers::FileBlock;
use crate::transaction::{Block, Handle};

/// Blocks that appending one changes at most, beside itself: its bitmap and descriptor, a node of the map that it is
/// entered in, and a new node with those of its own.
pub(super) const GROW_CREDITS: u32 = 2 * ALLOCATE_CREDITS + 2;

/// Most blocks that one addition appends: a leaf, and below a full root two inner nodes and a level.
const MOST_APPENDED: u32 = 4;

/// Blocks that [`add`] changes at most: from the root to the leaf, the inode, and what is appended.
pub(crate) const ADD_CREDITS: u32 = 5 + MOST_APPENDED * (1 + GROW_CREDITS);

/// More steps than there are kinds of them, each as often as it can be needed.
const MOST_STEPS: u32 = 12;

/// Puts `name` into the directory, for inode `number`.
///
/// The inode of a directory that grows is stored.
///
/// # Errors
/// [`Exists`](Error::Exists) if it is there; [`NoSpace`](Error::NoSpace); [`NoKey`](Error::NoKey),
/// [`Unsupported`](Error::Unsupported); corruption, I/O failure. The name has not been added then, and the directory is
/// consistent.
pub(crate) fn add(
    handle: &Handle<'_>,
    dir: &InodeState,
    name: &[u8],
    number: u32,
    kind: FileType,
) -> Result<()> {
    if name.len() > NAME_MAX_BYTES {
        return Err(Error::NameTooLong);
    }
    let new = NewEntry { name, number, kind };
    {
        let _index = dir.directory.index.read();
        let inode = dir.fields.read().clone();
        if !inode.has_inline_data() && Changing::open(handle, dir, &inode)?.add_in_place(&new)? {
            return Ok(());
        }
    }
    let _index = dir.directory.index.write();
    for _ in 0..MOST_STEPS {
        let inode = dir.fields.read().clone();
        if inode.has_inline_data() {
            if inline_change::add(handle, dir, &new)? {
                return Ok(());
            }
            continue;
        }
        let changing = Changing::open(handle, dir, &inode)?;
        if changing.add_in_place(&new)? || changing.make_room(&new)? {
            return Ok(());
        }
    }
    Err(Changing::open(handle, dir, &dir.fields.read().clone())?
        .corrupt("does not come to have room for a name"))
}

impl Changing<'_> {
    /// Adds the entry where there is room for it; `false` where there is none.
    fn add_in_place(&self, new: &NewEntry<'_>) -> Result<bool> {
        if self.directory.is_indexed() {
            let mut leaves = self.leaves(new)?;
            let first = leaves.next_place()?;
            // Names with one hash may fill more than one leaf.
            while let Some(at) = leaves.next_place()? {
                if let Look::Found(_) = self.lock_leaf(at)?.look(new.name)? {
                    return Err(Error::Exists);
                }
            }
            return match first {
                Some(leaf) => self.add_to(self.lock_leaf(leaf)?, new),
                None => Ok(false),
            };
        }
        let mut with_room = None;
        if self.directory.blocks == 1 {
            with_room = Some(FileBlock(0));
        } else {
            for at in (0..self.directory.blocks).map(|at| FileBlock(at as u32)) {
                let Some(block) = self.lock_block(at)? else { continue };
                match block.look(new.name)? {
                    Look::Found(_) => return Err(Error::Exists),
                    Look::Room(_) => with_room = with_room.or(Some(at)),
                    Look::Scattered | Look::Full => {}
                }
            }
        }
        self.drop_index_flag()?;
        let block = with_room.map(|at| self.lock_block(at)).transpose()?.flatten();
        block.map_or(Ok(false), |block| self.add_to(block, new))
    }

    fn add_to(&self, block: LockedBlock<'_>, new: &NewEntry<'_>) -> Result<bool> {
        let format = self.directory.format;
        match block.look(new.name)? {
            Look::Found(_) => Err(Error::Exists),
            Look::Room(room) => {
                block.change(|bytes| edit::insert(bytes, format, room, new));
                Ok(true)
            }
            // Positions in this directory are hashes, so that entries may move within a block.
            Look::Scattered if by_hash::is_ordered(&self.directory) => {
                let mut compacted = block.validate(|bytes| edit::compact(bytes, format))?;
                let Look::Room(room) = block.validate(|_| edit::look(&compacted, format, new.name))? else {
                    return Ok(false);
                };
                edit::insert(&mut compacted, format, room, new);
                block.change(|bytes| bytes.copy_from_slice(&compacted));
                Ok(true)
            }
            Look::Scattered | Look::Full => Ok(false),
        }
    }

    /// The leaves for a new name, in a directory with an index.
    fn leaves(&self, new: &NewEntry<'_>) -> Result<Leaves<'_>> {
        Leaves::find(self.directory, &Query::Exact(new.name))?.ok_or_else(|| {
            Error::Unsupported("adding to a directory with an index of an unknown kind".into())
        })
    }

    /// Without the feature `dir_index` entries are added where an index would not find them.
    fn drop_index_flag(&self) -> Result<()> {
        if !self.directory.inode.flags.contains(InodeFlags::INDEXED) {
            return Ok(());
        }
        let mut fields = self.state.fields.write();
        let mut changed = fields.clone();
        changed.flags.remove(InodeFlags::INDEXED);
        changed.store(self.handle, self.state.location)?;
        *fields = changed;
        Ok(())
    }

    /// Makes one step towards room; `true` when that has put the entry in its place.
    fn make_room(&self, new: &NewEntry<'_>) -> Result<bool> {
        if self.directory.is_indexed() {
            self.make_room_by_hash(new)?;
            return Ok(false);
        }
        if by_hash::is_ordered(&self.directory) {
            self.make_index()?;
            return Ok(false);
        }
        let (format, end) = (self.directory.format, self.directory.leaf_bytes());
        self.append(Shape::Leaf, InodeFlags::empty(), |bytes| {
            let bytes = &mut bytes[..end];
            format.write(bytes, new.number, new.name, new.kind);
        })?;
        Ok(true)
    }

    /// Appends a block, and gives the directory `flags`.
    pub(super) fn append(
        &self,
        shape: Shape,
        flags: InodeFlags,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<FileBlock> {
        let superblock = self.directory.volume.superblock();
        let large = superblock.features().incompat.contains(Incompat::LARGE_DIR);
        let most_blocks = if large {
            u64::from(BLOCK_MASK)
        } else {
            u64::from(u32::MAX) >> superblock.geometry().block_bits()
        };
        if self.directory.blocks >= most_blocks {
            return Err(Error::NoSpace);
        }
        let at = FileBlock(self.directory.blocks as u32);
        let mut fields = self.state.fields.write();
        let home = map::grow(self.handle, &mut fields, at)?;
        fields.size_bytes += u64::from(self.directory.volume.block_bytes());
        fields.flags |= flags;
        self.or_abort(self.handle.make(home, self.seal(shape), fill))?;
        self.or_abort(fields.store(self.handle, self.state.location))?;
        Ok(at)
    }

    /// For errors after the first change, which cannot be undone: aborts the transaction.
    pub(super) fn or_abort<R>(&self, result: Result<R>) -> Result<R> {
        if let Err(error) = &result {
            let cause = format!("directory {} could not be changed to the end: {error}", self.state.number);
            self.handle.writer().transactions.abort_with(&cause, error);
        }
        result
    }

    /// Moves the entries of the only block to a second one, and makes of the first the root of an index.
    pub(super) fn make_index(&self) -> Result<()> {
        let (directory, format) = (self.directory, self.directory.format);
        let Some(first) = self.lock_block(FileBlock(0))? else {
            return Err(self.corrupt("has a hole in place of its first block"));
        };
        let (dots, mut records) = first
            .validate(|bytes| Ok((node::read_dots(bytes, format)?, edit::records(bytes, format, |_| 0)?)))?;
        if dots.itself != self.state.number {
            return Err(first.corrupt(format!("entry . leads to inode {}", dots.itself)));
        }
        records.drain(..2);
        let (source, home, end) = (first.version().clone(), first.home(), directory.leaf_bytes());
        let leaf = self.append(Shape::Leaf, InodeFlags::INDEXED, |bytes| {
            edit::pack(&mut bytes[..end], format, &source, &records);
        })?;
        let (version, has_checksums) =
            (directory.volume.superblock().hash_defaults().version, self.has_checksums());
        drop(first);
        self.or_abort(self.handle.make(home, self.seal(Shape::IndexRoot), |bytes| {
            node::make_root(bytes, format, has_checksums, dots, version, leaf);
        }))
    }

    fn make_room_by_hash(&self, new: &NewEntry<'_>) -> Result<()> {
        let mut leaves = self.leaves(new)?;
        let Some(leaf) = leaves.next_place()? else {
            return Err(self.corrupt("has an index without leaves"));
        };
        let path = leaves.path();
        for (node, _) in path {
            let right = node::limit(self.directory.format.block_bytes, node.entries_at, self.has_checksums());
            if node.limit != right {
                let detail = format!("room for {} index entries, not {right}", node.limit);
                return Err(node.block.corrupt(&self.directory, detail));
            }
        }
        // The lowest block with room takes a key: from the block below it, which is full, or from the leaf.
        match path.iter().rposition(|(node, _)| node.count < node.limit) {
            None => self.deepen_index(&path[0].0, path.len()),
            Some(level) if level + 1 < path.len() => self.split_node(&leaves, level),
            Some(level) => {
                let (parent, slot) = &path[level];
                self.split_leaf(&leaves, leaf, parent, *slot)
            }
        }
    }

    /// Adds a level below the root, which has `levels` of them with its own.
    pub(super) fn deepen_index(&self, root: &Node, levels: usize) -> Result<()> {
        if levels > index::most_levels(&self.directory) {
            return Err(Error::NoSpace);
        }
        let held = self.held(root)?;
        let (format, has_checksums) = (self.directory.format, self.has_checksums());
        let child = self.append(Shape::IndexNode, InodeFlags::empty(), |bytes| {
            node::make_node(bytes, format, has_checksums, &root.block.buffer, ROOT_ENTRIES_AT, 0);
        })?;
        self.change_node(root, &held, |bytes| node::deepen_root(bytes, child))
    }

    /// Gives the upper half of the node below `level` to a new one.
    pub(super) fn split_node(&self, leaves: &Leaves<'_>, level: usize) -> Result<()> {
        let ((parent, slot), (full, _)) = (&leaves.path()[level], &leaves.path()[level + 1]);
        let middle = full.count / 2;
        let Some(key) = full.key(middle) else {
            return Err(full.block.corrupt(&self.directory, "full without entries"));
        };
        let (lowest, next) = (parent.key(*slot).unwrap_or(0), parent.key(*slot + 1));
        if key < lowest || next.is_some_and(|next| key > next) {
            return Err(full
                .block
                .corrupt(&self.directory, format!("key {key:#010x} is outside of its parent's")));
        }
        let (held_parent, held_full) = (self.held(parent)?, self.held(full)?);
        let (format, has_checksums) = (self.directory.format, self.has_checksums());
        let new = self.append(Shape::IndexNode, InodeFlags::empty(), |bytes| {
            node::make_node(bytes, format, has_checksums, &full.block.buffer, NODE_ENTRIES_AT, middle);
        })?;
        self.change_node(full, &held_full, |bytes| node::truncate(bytes, NODE_ENTRIES_AT, middle))?;
        self.change_node(parent, &held_parent, |bytes| {
            node::insert(bytes, parent.entries_at, *slot, key, new);
        })
    }

    /// Gives the names with the higher hashes to a new leaf, which is entered into the index by `parent`.
    pub(super) fn split_leaf(
        &self,
        leaves: &Leaves<'_>,
        at: FileBlock,
        parent: &Node,
        slot: usize,
    ) -> Result<()> {
        let (format, end) = (self.directory.format, self.directory.leaf_bytes());
        let Some(hasher) = leaves.hasher() else {
            return Err(self.corrupt("has an index with an unknown hash function"));
        };
        let leaf = self.lock_leaf(at)?;
        let halves = leaf.validate(|bytes| Halves::new(bytes, format, |name| hasher.hash(name).major))?;
        let ((lowest, highest), (key, next)) = (halves.range(), leaves.bounds());
        if lowest < key & !1 || next.is_some_and(|next| highest >= next) {
            return Err(leaf.corrupt(format!(
                "has hashes {lowest:#010x} to {highest:#010x}, which the index has elsewhere"
            )));
        }
        let held_parent = self.held(parent)?;
        let source = leaf.version().clone();
        let new = self.append(Shape::Leaf, InodeFlags::empty(), |bytes| {
            edit::pack(&mut bytes[..end], format, &source, halves.upper());
        })?;
        leaf.change(|bytes| edit::pack(bytes, format, &source, halves.lower()));
        self.change_node(parent, &held_parent, |bytes| {
            node::insert(bytes, parent.entries_at, slot, halves.upper_key(), new);
        })
    }

    /// Changes a block of the index, after something else has been changed. It has not changed since it was validated,
    /// unless a damaged bitmap had it free and it was allocated for something else.
    fn change_node(&self, node: &Node, held: &Block, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let validated = &node.block.buffer[..];
        let is_same = self.handle.change_block(held, self.seal(node.block.shape), |bytes| {
            let is_same = *bytes == *validated;
            if is_same {
                change(bytes);
            }
            is_same
        });
        let detail = "is in use for something else as well";
        let outcome = if is_same { Ok(()) } else { Err(node.block.corrupt(&self.directory, detail)) };
        self.or_abort(outcome)
    }

    fn held(&self, node: &Node) -> Result<Block> {
        self.directory.volume.block(node.block.home)
    }
}
