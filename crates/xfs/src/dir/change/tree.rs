//! A directory whose hash index is a tree: leaves of entries under nodes, which have the last hash of each block below.
//!
//! The root stays where it is. A leaf or node without room gives the upper half of its entries to a new block behind it;
//! one that has become less than half full is joined to a neighbour under the same node if both then fill no more than
//! three quarters of a block. A root with one block below takes over what that has. Stale entries are dropped whenever a
//! leaf is split or joined.

use undercroft_vfs::{Error, Result};

use super::data::{self, New};
use super::edit::Hit;
use super::plan::{Change, TreeBlock};
use super::raw::{self, ENTRIES_AT, ENTRY_BYTES, Item, MAGIC_LEAF, MAGIC_NODE, put16};
use crate::transaction::Seal;

/// Nodes have levels from 1 to this one.
const LEVEL_MAX: usize = 4;

/// From the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The nodes, and which entry of each leads on.
    nodes: Vec<(u32, usize)>,
    leaf: u32,
}

impl Path {
    /// The block at a height above the leaves.
    fn block(&self, height: usize) -> u32 {
        match height.checked_sub(1) {
            None => self.leaf,
            Some(above) => self.nodes[self.nodes.len() - 1 - above].0,
        }
    }

    /// Which entry of the node at a height, if that is one, leads on.
    fn place_in(&self, height: usize) -> Option<usize> {
        let above = height.checked_sub(1)?;
        Some(self.nodes[self.nodes.len() - 1 - above].1)
    }

    /// The node above the block at a height, and which of its entries leads there.
    fn parent(&self, height: usize) -> Option<(u32, usize)> {
        self.nodes.len().checked_sub(height + 1).map(|place| self.nodes[place])
    }
}

impl Change<'_> {
    /// How many entries a leaf of the tree has room for, and a node.
    fn tree_room(&self) -> usize {
        (self.dir_block_bytes() - ENTRIES_AT) / ENTRY_BYTES
    }

    /// The leaf in which a hash comes first, if it is anywhere.
    fn descend(&mut self, hash: u32) -> Result<Path> {
        let root = self.layout.index_start();
        self.descend_from(Path { nodes: Vec::new(), leaf: root }, |change, at| {
            raw::place_of(change.bytes(at), hash).min(raw::count(change.bytes(at)) - 1)
        })
    }

    /// From the block that a path ends with down to a leaf.
    fn descend_from(&mut self, mut path: Path, choose: impl Fn(&Self, u32) -> usize) -> Result<Path> {
        let mut above = None;
        if let Some(&(node, _)) = path.nodes.last()
            && let TreeBlock::Node(level) = self.load_tree(node)?
        {
            above = Some(level);
        }
        loop {
            let at = path.leaf;
            let kind = self.load_tree(at)?;
            let level = match kind {
                TreeBlock::OnlyLeaf => {
                    return Err(
                        self.corrupt(self.home(at), "is a directory's only leaf, and was found in a tree")
                    );
                }
                TreeBlock::Leaf => 0,
                TreeBlock::Node(level) => level,
            };
            if above.is_some_and(|above| above != level + 1) {
                let detail = format!("block of level {level} lies below one of level {}", above.unwrap_or(0));
                return Err(self.corrupt(self.home(at), detail));
            }
            if level == 0 {
                return Ok(path);
            }
            above = Some(level);
            let place = choose(self, at);
            path.nodes.push((at, place));
            path.leaf = raw::item(self.bytes(at), place).1;
            if !self.layout.is_below_root(path.leaf) {
                return Err(self.corrupt(self.home(at), format!("leads to block {}", path.leaf)));
            }
        }
    }

    /// The leaf after the one that a path leads to.
    fn next_leaf(&mut self, path: &Path) -> Result<Option<Path>> {
        let mut nodes = path.nodes.clone();
        while let Some((node, place)) = nodes.pop() {
            if place + 1 < raw::count(self.bytes(node)) {
                nodes.push((node, place + 1));
                let leaf = raw::item(self.bytes(node), place + 1).1;
                if !self.layout.is_below_root(leaf) {
                    return Err(self.corrupt(self.home(node), format!("leads to block {leaf}")));
                }
                return self.descend_from(Path { nodes, leaf }, |_, _| 0).map(Some);
            }
        }
        Ok(None)
    }

    /// A name, and the leaf that has it.
    pub(super) fn tree_find(&mut self, name: &[u8], hash: u32) -> Result<Option<Hit>> {
        let mut path = self.descend(hash)?;
        let mut folded = None;
        // No tree has more leaves than its directory has blocks.
        let mut left = self.inode.core.blocks.saturating_add(self.slots.len() as u64);
        loop {
            let same = self.with_hash(path.leaf, hash);
            if let Some((hit, is_equal)) = self.find_among(&same, name, false)? {
                let hit = Hit { path: Some(path.clone()), ..hit };
                if is_equal {
                    return Ok(Some(hit));
                }
                folded.get_or_insert(hit);
            }
            let bytes = self.bytes(path.leaf);
            if raw::count(bytes) > 0 && raw::last_hash(bytes) != hash {
                return Ok(folded);
            }
            left = left.checked_sub(1).ok_or_else(|| self.corrupt(None, "its leaves form a ring"))?;
            match self.next_leaf(&path)? {
                Some(next) => path = next,
                None => return Ok(folded),
            }
        }
    }

    /// Adds a name.
    pub(super) fn tree_add(&mut self, new: &New<'_>, hash: u32) -> Result<()> {
        let path = self.descend(hash)?;
        let (block, is_new) = self.find_space(self.entry_bytes(new.name.len()))?;
        if is_new {
            self.add_data_block(block)?;
        }
        let at = self.enter(block, new)?;
        self.set_best(block, data::best(self.bytes(self.layout.names_at(block))))?;
        let item = (hash, self.address(block, at));
        let room = self.tree_room();
        if raw::insert(self.edit(path.leaf, Seal::DirLeafN), item, room) {
            return self.update_hashes(&path, 0);
        }
        self.split(&path, item)
    }

    /// Sets, from the node above a height up, the last hashes of what lies below.
    fn update_hashes(&mut self, path: &Path, from: usize) -> Result<()> {
        let mut height = from;
        while let Some((node, place)) = path.parent(height) {
            let last = raw::last_hash(self.bytes(path.block(height)));
            let (hash, child) = raw::item(self.bytes(node), place);
            if hash == last {
                break;
            }
            raw::put_item(self.edit(node, Seal::DaNode), place, (last, child));
            height += 1;
        }
        Ok(())
    }

    /// Enters an entry into a leaf without room.
    fn split(&mut self, path: &Path, new: Item) -> Result<()> {
        let mut new = new;
        let room = self.tree_room();
        for height in 0.. {
            let at = path.block(height);
            let seal = if height == 0 { Seal::DirLeafN } else { Seal::DaNode };
            let mut items =
                if height == 0 { raw::live_items(self.bytes(at)) } else { raw::items(self.bytes(at)) };
            let place = match path.place_in(height) {
                // Behind the block that was split.
                Some(place) => place + 1,
                None => items.partition_point(|item| item.0 < new.0),
            };
            items.insert(place, new);
            if items.len() <= room {
                let bytes = self.edit(at, seal);
                if height == 0 {
                    raw::set_leaf_items(bytes, &items);
                } else {
                    raw::set_node_items(bytes, &items);
                }
                return self.update_hashes(path, height);
            }
            let upper = items.split_off(items.len() / 2);
            let added = self.add_beside(at, &upper, seal)?;
            let bytes = self.edit(at, seal);
            if height == 0 {
                raw::set_leaf_items(bytes, &items);
            } else {
                raw::set_node_items(bytes, &items);
            }
            new = (raw::last_hash(self.bytes(added)), added);
            let Some((node, place)) = path.parent(height) else {
                return self.grow_root(height, new);
            };
            let last = raw::last_hash(self.bytes(at));
            raw::put_item(self.edit(node, Seal::DaNode), place, (last, at));
        }
        Ok(())
    }

    /// Adds a block of the tree behind another one of the same kind.
    fn add_beside(&mut self, at: u32, items: &[Item], seal: Seal) -> Result<u32> {
        let added = self.first_unused(self.layout.index_start(), self.layout.free_start())?;
        let old = self.bytes(at);
        let (next, _) = raw::links(old);
        let (magic, level) = (raw::get16(old, 8), raw::get16(old, 58));
        let bytes = self.add_block(added, seal)?;
        put16(bytes, 8, usize::from(magic));
        if seal == Seal::DaNode {
            raw::set_node_items(bytes, items);
            put16(bytes, 58, usize::from(level));
        } else {
            raw::set_leaf_items(bytes, items);
        }
        raw::set_forward(bytes, next);
        raw::set_back(bytes, at);
        raw::set_forward(self.edit(at, seal), added);
        if next != 0 {
            self.check_sibling(next)?;
            self.link(next, None, Some(added))?;
        }
        Ok(added)
    }

    fn check_sibling(&self, at: u32) -> Result<()> {
        if !self.layout.is_below_root(at) {
            return Err(self.corrupt(None, format!("a block of its tree has {at} beside it")));
        }
        Ok(())
    }

    /// The root has given half of its entries away: the other half moves to a block of its own too, and the root becomes a
    /// node above both.
    fn grow_root(&mut self, height: usize, second: Item) -> Result<()> {
        if height >= LEVEL_MAX {
            return Err(Error::NoSpace);
        }
        let root = self.layout.index_start();
        let seal = if height == 0 { Seal::DirLeafN } else { Seal::DaNode };
        let items = raw::items(self.bytes(root));
        let first = self.add_beside(root, &items, seal)?;
        // It was added behind the root, which it replaces as the first one.
        raw::set_back(self.edit(first, seal), 0);
        raw::set_forward(self.edit(first, seal), second.1);
        raw::set_back(self.edit(second.1, seal), first);
        let last = raw::last_hash(self.bytes(first));
        let bytes = self.edit(root, Seal::DaNode);
        put16(bytes, 8, usize::from(MAGIC_NODE));
        raw::set_forward(bytes, 0);
        raw::set_back(bytes, 0);
        raw::set_node_items(bytes, &[(last, first), second]);
        put16(bytes, 58, height + 1);
        Ok(())
    }

    /// Removes a name.
    pub(super) fn tree_remove(&mut self, hit: Hit) -> Result<()> {
        let best = self.release(&hit)?;
        self.set_best(hit.block, best)?;
        let Some(path) = hit.path else { return Err(Error::NotFound) };
        raw::make_stale(self.edit(path.leaf, Seal::DirLeafN), hit.item);
        if self.keeps_blocks {
            return self.update_hashes(&path, 0);
        }
        self.shrink(&path)?;
        if self.load_tree(self.layout.index_start())? == TreeBlock::Leaf
            && let Some((bests, free_block)) = self.only_free_block()?
        {
            self.tree_to_leaf(&bests, free_block)?;
        }
        Ok(())
    }

    fn live_count(&self, at: u32, height: usize) -> usize {
        let bytes = self.bytes(at);
        if height == 0 { raw::count(bytes) - raw::stale(bytes) } else { raw::count(bytes) }
    }

    /// Joins blocks of the tree from a leaf up that have become less than half full.
    fn shrink(&mut self, path: &Path) -> Result<()> {
        let room = self.tree_room();
        for height in 0.. {
            let at = path.block(height);
            let count = self.live_count(at, height);
            let Some((node, place)) = path.parent(height) else { break };
            if count > room / 2 {
                return self.update_hashes(path, height);
            }
            let siblings = raw::count(self.bytes(node));
            if siblings == 1 {
                // Its parent goes with it, or is the root, which takes over what is left.
                if count == 0 && path.parent(height + 1).is_some() {
                    self.unlink(at)?;
                    raw::set_node_items(self.edit(node, Seal::DaNode), &[]);
                }
                continue;
            }
            if count == 0 {
                self.unlink(at)?;
                self.remove_item(node, place);
                self.update_hashes(path, height + 1)?;
                continue;
            }
            let mut joined = None;
            for (first, second) in [(place.wrapping_sub(1), place), (place, place + 1)] {
                if second >= siblings || first >= siblings {
                    continue;
                }
                let blocks = [first, second].map(|place| raw::item(self.bytes(node), place).1);
                if blocks[0] == blocks[1]
                    || self.is_leaf(blocks[0])? != (height == 0)
                    || self.is_leaf(blocks[1])? != (height == 0)
                {
                    return Err(self.corrupt(self.home(node), "leads to blocks that do not belong there"));
                }
                let together: usize = blocks.iter().map(|&at| self.live_count(at, height)).sum();
                if together <= room - room / 4 {
                    joined = Some((first, blocks));
                    break;
                }
            }
            let Some((first, blocks)) = joined else { return self.update_hashes(path, height) };
            self.join(height, blocks)?;
            self.remove_item(node, first + 1);
            let last = raw::last_hash(self.bytes(blocks[0]));
            raw::put_item(self.edit(node, Seal::DaNode), first, (last, blocks[0]));
            self.update_hashes(path, height + 1)?;
        }
        self.shrink_root()
    }

    fn is_leaf(&mut self, at: u32) -> Result<bool> {
        self.check_sibling(at)?;
        Ok(matches!(self.load_tree(at)?, TreeBlock::Leaf))
    }

    fn remove_item(&mut self, node: u32, place: usize) {
        let mut items = raw::items(self.bytes(node));
        items.remove(place);
        raw::set_node_items(self.edit(node, Seal::DaNode), &items);
    }

    /// Moves the entries of the second block behind those of the first.
    fn join(&mut self, height: usize, [first, second]: [u32; 2]) -> Result<()> {
        let read = if height == 0 { raw::live_items } else { raw::items };
        let mut items = read(self.bytes(first));
        items.extend(read(self.bytes(second)));
        self.unlink(second)?;
        if height == 0 {
            raw::set_leaf_items(self.edit(first, Seal::DirLeafN), &items);
        } else {
            raw::set_node_items(self.edit(first, Seal::DaNode), &items);
        }
        Ok(())
    }

    /// Takes a block out from between its neighbours, and removes it.
    fn unlink(&mut self, at: u32) -> Result<()> {
        let (next, before) = raw::links(self.bytes(at));
        if next != 0 {
            self.check_sibling(next)?;
            self.link(next, None, Some(before))?;
        }
        if before != 0 {
            self.check_sibling(before)?;
            self.link(before, Some(next), None)?;
        }
        self.remove_block(at);
        Ok(())
    }

    /// A root with one block below takes over what that has.
    fn shrink_root(&mut self) -> Result<()> {
        let root = self.layout.index_start();
        while let TreeBlock::Node(level) = self.load_tree(root)? {
            if raw::count(self.bytes(root)) != 1 {
                break;
            }
            let child = raw::item(self.bytes(root), 0).1;
            self.check_sibling(child)?;
            let below = match self.load_tree(child)? {
                TreeBlock::Node(below) => below,
                TreeBlock::Leaf => 0,
                TreeBlock::OnlyLeaf => level,
            };
            if below + 1 != level {
                return Err(self.corrupt(self.home(child), "has a level that does not belong there"));
            }
            if below == 0 {
                let items = raw::live_items(self.bytes(child));
                let bytes = self.edit(root, Seal::DirLeafN);
                put16(bytes, 8, usize::from(MAGIC_LEAF));
                raw::set_leaf_items(bytes, &items);
            } else {
                let items = raw::items(self.bytes(child));
                if items.is_empty() {
                    return Err(self.corrupt(self.home(child), "is a node that leads to no block"));
                }
                let bytes = self.edit(root, Seal::DaNode);
                raw::set_node_items(bytes, &items);
                put16(bytes, 58, usize::from(below));
            }
            self.remove_block(child);
        }
        Ok(())
    }
}
