//! One change of a leaf: extents in the place of others, and what follows from it for the tree.
//!
//! Everything that can be refused comes first: blocks for new nodes are allocated before any node changes. Where a leaf
//! has no room it is split and the way is looked for again, so a change is always made in one leaf.

use std::ops::Range;

use undercroft_vfs::{Error, Result};

use super::path::{Path, ROOT};
use super::raw::{self, Extent, MAX_DEPTH, RawExtent, RawIndex, STRUCTURE};
use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::map::space;
use crate::numbers::FsBlock;
use crate::transaction::{Handle, Seal};

/// A file's tree, while it is changed under a handle.
pub(super) struct Tree<'a> {
    pub(super) handle: &'a Handle<'a>,
    pub(super) inode: &'a mut Inode,
    seal: Seal,
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Only room was made: the path to the leaf has changed, and the caller tries again.
    LookAgain,
}

/// An extent cut in three, one of them in two for its length, and both neighbours.
const MOST: usize = 6;

/// Extents, joined where that can be.
struct Joined {
    extents: [Extent; MOST],
    count: usize,
}

impl Default for Joined {
    fn default() -> Self {
        Self { extents: [Extent { first: 0, len: 0, start: FsBlock(0), written: true }; MOST], count: 0 }
    }
}

impl Joined {
    fn push(&mut self, extent: Extent) {
        let joined = self.last().and_then(|last| last.joined(extent));
        self.count += usize::from(joined.is_none());
        self.extents[self.count - 1] = joined.unwrap_or(extent);
    }

    fn last(&self) -> Option<Extent> {
        self.extents().last().copied()
    }

    fn extents(&self) -> &[Extent] {
        &self.extents[..self.count]
    }
}

impl<'a> Tree<'a> {
    pub(super) fn new(handle: &'a Handle<'a>, inode: &'a mut Inode) -> Self {
        let seal = Seal::ExtentNode(inode.checksum_seed(handle.volume()));
        Self { handle, inode, seal }
    }

    /// The way to the leaf for `wanted`, fit to be changed.
    pub(super) fn find(&self, wanted: u64) -> Result<Path> {
        let path = Path::find(self.handle.volume(), self.inode, wanted)?;
        path.check_room(self.inode)?;
        Ok(path)
    }

    /// Puts `new` in the place of the leaf's entries in `range`, joined with each other and their neighbours where
    /// that can be.
    ///
    /// # Errors
    /// No space for another node: nothing has changed then. Corruption; I/O failure.
    pub(super) fn replace(&mut self, path: &Path, range: Range<usize>, new: &[Extent]) -> Result<Outcome> {
        let mut range = range;
        let mut joined = Joined::default();
        if let (Some(&first), Some(at)) = (new.first(), range.start.checked_sub(1))
            && let Some(before) = path.extent(self.inode, at).filter(|before| before.joined(first).is_some())
        {
            joined.push(before);
            range.start = at;
        }
        for &extent in new {
            joined.push(extent);
        }
        if let (Some(last), Some(after)) = (joined.last(), path.extent(self.inode, range.end))
            && last.joined(after).is_some()
        {
            joined.push(after);
            range.end += 1;
        }
        self.splice(path, range, joined.extents())
    }

    /// Puts `new` in the place of the leaf's entries in `range`, as they are.
    pub(super) fn splice(&mut self, path: &Path, range: Range<usize>, new: &[Extent]) -> Result<Outcome> {
        let (count, max) = path.with(self.inode, path.depth, raw::counts);
        if count - range.len() + new.len() > max {
            // At the end of a file that grows, full leaves stay full.
            let appended = (range.start == count).then(|| new[0].first);
            self.make_room(path, appended)?;
            return Ok(Outcome::LookAgain);
        }
        if count == range.len() && new.is_empty() && path.depth > ROOT {
            self.drop_node(path, path.depth)?;
        } else {
            self.change(path, path.depth, |bytes| raw::splice_extents(bytes, range.clone(), new));
            if range.start == 0 {
                self.mend_keys(path, path.depth);
            }
        }
        if new.len() < range.len() {
            self.shrink()?;
        }
        Ok(Outcome::Done)
    }

    /// Moves the entries of a leaf that are in `range` to other places in the file; order and extents stay.
    pub(super) fn move_extents(&mut self, path: &Path, range: Range<usize>, to: impl Fn(u64) -> u64) {
        let starts_leaf = range.start == 0;
        self.change(path, path.depth, |bytes| {
            for extent in &mut raw::entries_mut::<RawExtent>(bytes)[range] {
                raw::move_extent(extent, to(extent.first()));
            }
        });
        if starts_leaf {
            self.mend_keys(path, path.depth);
        }
    }

    /// Changes a node on the path.
    fn change<R>(&mut self, path: &Path, level: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
        match path.block(level) {
            None => change(&mut self.inode.i_block),
            Some(block) => self.handle.change_block(block, self.seal, change),
        }
    }

    /// Updates the entries above a node whose first entry has changed.
    fn mend_keys(&mut self, path: &Path, level: usize) {
        let Some(key) = path.with(self.inode, level, raw::first_key) else { return };
        for above in (ROOT..level).rev() {
            let at = path.at(above);
            let known = path.with(self.inode, above, |bytes| raw::entries::<RawIndex>(bytes)[at].first());
            if known == key {
                return;
            }
            self.change(path, above, |bytes| {
                raw::entries_mut::<RawIndex>(bytes)[at].ei_block.set(key as u32);
            });
            if at > 0 {
                return;
            }
        }
    }

    /// Removes an empty node from the tree, and the nodes above it that become empty by that.
    fn drop_node(&mut self, path: &Path, level: usize) -> Result<()> {
        let mut level = level;
        while let Some(home) = path.home(level) {
            let above = level - 1;
            let at = path.at(above);
            let (left, _) = path.with(self.inode, above, raw::counts);
            if left > 1 || above == ROOT {
                self.change(path, above, |bytes| raw::splice::<RawIndex>(bytes, at..at + 1, &[]));
                if at == 0 {
                    self.mend_keys(path, above);
                }
                if left == 1 {
                    raw::init(&mut self.inode.i_block, 0);
                }
                return space::free_metadata(self.handle, self.inode, home);
            }
            space::free_metadata(self.handle, self.inode, home)?;
            level = above;
        }
        Ok(())
    }

    /// Takes the root's only child into the root for as long as it fits.
    fn shrink(&mut self) -> Result<()> {
        loop {
            let root = raw::entries::<RawIndex>(&self.inode.i_block);
            let (_, max) = raw::counts(&self.inode.i_block);
            let depth = raw::depth(&self.inode.i_block);
            let ([only], 1..) = (root, depth) else { return Ok(()) };
            let home = only.child();
            // A cheap look before it is validated: mostly it is too large.
            if raw::counts(&self.handle.volume().read_block(home)?).0 > max {
                return Ok(());
            }
            let path = Path::find(self.handle.volume(), self.inode, only.first())?;
            let Some(taken) = path.with(self.inode, ROOT + 1, |bytes| {
                let (count, _) = raw::counts(bytes);
                (count <= max).then(|| bytes[raw::ENTRY_BYTES..raw::ENTRY_BYTES * (1 + count)].to_vec())
            }) else {
                return Ok(());
            };
            raw::init(&mut self.inode.i_block, depth - 1);
            raw::fill(&mut self.inode.i_block, &taken);
            space::free_metadata(self.handle, self.inode, home)?;
        }
    }

    /// Splits the leaf, and what is full above it. With `appended`, which is to be the first file block in the new
    /// leaf, that is empty and the old one keeps all it has.
    fn make_room(&mut self, path: &Path, appended: Option<u64>) -> Result<()> {
        let full = |level: usize| {
            let (count, max) = path.with(self.inode, level, raw::counts);
            count >= max
        };
        // The leaf needs a sibling even if it has room for one entry, but not for the two that are to come.
        let mut first_split = path.depth;
        while first_split > ROOT && full(first_split - 1) {
            first_split -= 1;
        }
        let grows = first_split == ROOT;
        if grows && path.depth == usize::from(MAX_DEPTH) {
            let detail = format!("the tree is {MAX_DEPTH} levels deep and full");
            return Err(corrupt_inode(STRUCTURE, self.inode.number, None, detail));
        }
        let mut homes = self.allocate_nodes(path, path.depth - first_split + 1)?;
        let mut next_home =
            || homes.pop().unwrap_or_else(|| unreachable!("a node was allocated for each level"));

        if path.depth == ROOT {
            return self.grow(next_home());
        }
        // Bottom up: what each level hands to the one above it.
        let mut carried: Option<RawIndex> = None;
        for level in (ROOT + 1..=path.depth).rev() {
            let home = next_home();
            let depth = (path.depth - level) as u16;
            let (count, _) = path.with(self.inode, level, raw::counts);
            let position = if level == path.depth { None } else { Some(path.at(level) + 1) };
            let split = match position {
                None if appended.is_some() => count,
                Some(position) if position == count => count,
                _ => count / 2,
            };
            let taken = self.change(path, level, |bytes| raw::take_from(bytes, split));
            let carry = carried.take();
            let key = self.handle.make(home, self.seal, |bytes| {
                raw::init(bytes, depth);
                raw::fill(bytes, &taken);
                if let (Some(index), Some(position)) = (&carry, position)
                    && (position > split || split == count)
                {
                    raw::splice(bytes, position - split..position - split, std::slice::from_ref(index));
                }
                raw::first_key(bytes)
            })?;
            if let (Some(index), Some(position)) = (&carry, position)
                && !(position > split || split == count)
            {
                self.change(path, level, |bytes| {
                    raw::splice(bytes, position..position, std::slice::from_ref(index));
                });
            }
            let index = RawIndex::new(key.or(appended).unwrap_or(0), home);
            let above = level - 1;
            if above >= first_split.max(ROOT + 1) {
                carried = Some(index);
                continue;
            }
            if grows {
                // The root was full: its entries go down a level, to where there is room.
                let new_home = next_home();
                self.grow(new_home)?;
                let at = path.at(ROOT) + 1;
                self.handle.change(new_home, self.seal, |bytes| {
                    raw::splice(bytes, at..at, std::slice::from_ref(&index));
                })?;
            } else {
                let at = path.at(above) + 1;
                self.change(path, above, |bytes| raw::splice(bytes, at..at, std::slice::from_ref(&index)));
            }
            break;
        }
        Ok(())
    }

    /// Moves the root's entries into a node of their own, the root's only child.
    fn grow(&mut self, home: FsBlock) -> Result<()> {
        let depth = raw::depth(&self.inode.i_block);
        let key = raw::first_key(&self.inode.i_block).unwrap_or(0);
        let taken = raw::take_from(&mut self.inode.i_block, 0);
        self.handle.make(home, self.seal, |bytes| {
            raw::init(bytes, depth);
            raw::fill(bytes, &taken);
        })?;
        raw::init(&mut self.inode.i_block, depth + 1);
        raw::splice(&mut self.inode.i_block, 0..0, &[RawIndex::new(key, home)]);
        Ok(())
    }

    /// Blocks for `count` nodes, or none.
    fn allocate_nodes(&mut self, path: &Path, count: usize) -> Result<Vec<FsBlock>> {
        let near = path.extents(self.inode, |extents| extents.last().map(super::raw::RawExtent::get));
        let goal = near
            .map_or_else(|| space::goal(self.handle, self.inode), |last| FsBlock(last.start.0 + last.len));
        let mut homes = Vec::with_capacity(count);
        while homes.len() < count {
            match space::allocate_metadata(self.handle, self.inode, goal) {
                Ok(home) => homes.push(home),
                Err(error) => {
                    for home in homes {
                        space::unallocate_metadata(self.handle, self.inode, home)?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(homes)
    }

    /// A refusal because of what the tree holds.
    pub(super) fn corrupt(&self, path: &Path, detail: String) -> Error {
        corrupt_inode(STRUCTURE, self.inode.number, path.home(path.depth), detail)
    }
}
