//! The way from a tree's root to one leaf.
//!
//! At most [`MAX_DEPTH`] blocks. Every node must have exactly the depth its parent promises, so a loop in a hostile
//! tree ends there; entries must rise and stay within the range that the parent gives, so the first leaf found is the
//! only one.

use undercroft_vfs::Result;

use super::node::Node;
use super::raw::{self, Extent, MAX_DEPTH, RawExtent, RawIndex};
use crate::inode::Inode;
use crate::map::run::FILE_BLOCKS;
use crate::numbers::FsBlock;
use crate::transaction::Block;
use crate::volume::{Validated, Volume};

/// The root's level on a [`Path`].
pub(super) const ROOT: usize = 0;

/// The nodes on the way to a leaf, all of them validated and held.
pub(super) struct Path {
    /// The number of nodes below the root; the leaf's level.
    pub(super) depth: usize,
    /// The nodes below the root: that of level `n` in place `n - 1`.
    blocks: [Option<Block>; MAX_DEPTH as usize],
    /// For each inner level the entry that the way goes through.
    at: [usize; MAX_DEPTH as usize],
    /// The file blocks that the leaf covers.
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Path {
    /// The path to the leaf that covers `wanted`; before the first entry of the tree that is the first leaf.
    pub(super) fn find(volume: &Volume, inode: &Inode, wanted: u64) -> Result<Self> {
        let root = Node { inode, home: None, bytes: &inode.i_block };
        let depth = root.check_header(None)?;
        root.check_entries(volume, depth)?;
        let mut path = Self {
            depth: usize::from(depth),
            blocks: [const { None }; MAX_DEPTH as usize],
            at: [0; MAX_DEPTH as usize],
            low: 0,
            high: FILE_BLOCKS,
        };
        for level in 0..path.depth {
            let home = path.descend(inode, level, wanted)?;
            let block = volume.block(home)?;
            let buffer = block.buffer();
            let node = Node { inode, home: Some(home), bytes: &buffer };
            let expected = depth - level as u16 - 1;
            node.check_header(Some(expected))?;
            buffer.verify_once(Validated::ExtentNode as u32, || {
                node.check_checksum(volume)?;
                node.check_entries(volume, expected)
            })?;
            drop(buffer);
            path.blocks[level] = Some(block);
        }
        path.check_leaf(inode)?;
        Ok(path)
    }

    /// Chooses the entry of an inner node, and returns the child's home.
    fn descend(&mut self, inode: &Inode, level: usize, wanted: u64) -> Result<FsBlock> {
        let chosen = self.with(inode, level, |bytes| {
            let indexes = raw::entries::<RawIndex>(bytes);
            let at = indexes.partition_point(|index| index.first() <= wanted).saturating_sub(1);
            let index = indexes.get(at)?;
            Some((at, index.first(), index.child(), indexes.get(at + 1).map(RawIndex::first)))
        });
        let Some((at, low, child, next)) = chosen else {
            let home = self.home(level);
            return Err(Node { inode, home, bytes: &[] }.corrupt("an inner node has no entries"));
        };
        self.at[level] = at;
        self.low = self.low.max(low);
        self.high = next.map_or(self.high, |next| self.high.min(next));
        Ok(child)
    }

    fn check_leaf(&self, inode: &Inode) -> Result<()> {
        let (low, high) = (self.low, self.high);
        let outside = self.extents(inode, |extents| match (extents.first(), extents.last()) {
            (Some(first), Some(last)) => first.first() < low || last.get().end() > high,
            _ => false,
        });
        if outside {
            let detail = format!("holds file blocks outside its range of {low} to {high}");
            return Err(Node { inode, home: self.home(self.depth), bytes: &[] }.corrupt(detail));
        }
        Ok(())
    }

    /// Checks what matters only to changes of the nodes.
    pub(super) fn check_room(&self, inode: &Inode) -> Result<()> {
        (0..=self.depth).try_for_each(|level| {
            self.with(inode, level, |bytes| Node { inode, home: self.home(level), bytes }.check_room())
        })
    }

    /// Looks at a node.
    pub(super) fn with<R>(&self, inode: &Inode, level: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.block(level) {
            None => look(&inode.i_block),
            Some(block) => look(block.lock().buffer()),
        }
    }

    /// Looks at the leaf's entries.
    pub(super) fn extents<R>(&self, inode: &Inode, look: impl FnOnce(&[RawExtent]) -> R) -> R {
        self.with(inode, self.depth, |bytes| look(raw::entries(bytes)))
    }

    /// One entry of the leaf.
    pub(super) fn extent(&self, inode: &Inode, at: usize) -> Option<Extent> {
        self.extents(inode, |extents| extents.get(at).map(RawExtent::get))
    }

    /// The place of the leaf's first entry that ends after `wanted`, and how many there are.
    pub(super) fn first_after(&self, inode: &Inode, wanted: u64) -> (usize, usize) {
        self.extents(inode, |extents| {
            (extents.partition_point(|extent| extent.get().end() <= wanted), extents.len())
        })
    }

    /// The block of a node; `None` for the root.
    pub(super) fn block(&self, level: usize) -> Option<&Block> {
        if level == ROOT { None } else { self.blocks[level - 1].as_ref() }
    }

    pub(super) fn home(&self, level: usize) -> Option<FsBlock> {
        self.block(level).map(|block| FsBlock(block.number()))
    }

    /// Which entry of an inner node the way goes through.
    pub(super) fn at(&self, level: usize) -> usize {
        self.at[level]
    }
}
