//! A place in a tree: looking up, and stepping from record to record.

use undercroft_vfs::Result;

use super::node::Node;
use super::{Btree, Kind, RmapBt, RmapRecord};
use crate::format::{AgBlock, FsBlock};

/// A block on the way from the root, and which of its records or pointers the way takes.
pub(super) struct Step<K> {
    pub(super) node: Node<K>,
    pub(super) n: usize,
}

/// A place in a tree. It holds the blocks on the way to it, from the root to a leaf.
pub(crate) struct Cursor<'t, 'a, K> {
    tree: &'t Btree<'a, K>,
    /// Root first; empty until the cursor is placed.
    path: Vec<Step<K>>,
    /// The children of a block are brought into the cache together when its first is read: for a walk through all.
    reads_ahead: bool,
}

impl<'t, 'a, K: Kind> Cursor<'t, 'a, K> {
    pub(super) fn new(tree: &'t Btree<'a, K>) -> Self {
        Self { tree, path: Vec::new(), reads_ahead: false }
    }

    /// A cursor for a walk through the whole tree from its first record on.
    pub(super) fn reading_ahead(tree: &'t Btree<'a, K>) -> Self {
        Self { reads_ahead: true, ..Self::new(tree) }
    }

    /// The first record.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn first(&mut self) -> Result<Option<K::Record>> {
        self.descend(|_| 0)?;
        self.record()
    }

    /// The last record.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    #[cfg(test)]
    pub(crate) fn last(&mut self) -> Result<Option<K::Record>> {
        self.descend(|node| node.count.saturating_sub(1))?;
        self.record()
    }

    /// The last record whose key is not above `key`. Without one the cursor stands nowhere.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn lookup_le(&mut self, key: &K::Key) -> Result<Option<K::Record>> {
        let geometry = self.tree.volume.geometry();
        let mut before_all = false;
        self.descend(|node| {
            let not_above = node.partition(key, true, geometry);
            before_all |= not_above == 0;
            not_above.saturating_sub(1)
        })?;
        if before_all {
            self.path.clear();
            return Ok(None);
        }
        self.record()
    }

    /// The first record whose key is not below `key`. Without one the cursor stands nowhere.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn lookup_ge(&mut self, key: &K::Key) -> Result<Option<K::Record>> {
        let geometry = self.tree.volume.geometry();
        self.descend(|node| {
            if node.level == 0 {
                node.partition(key, false, geometry)
            } else {
                node.partition(key, true, geometry).saturating_sub(1)
            }
        })?;
        match self.path.last() {
            Some(leaf) if leaf.n < leaf.node.count => self.record(),
            // All of this leaf is below.
            Some(leaf) if leaf.n > 0 => {
                self.step_back_in_leaf();
                self.increment()
            }
            _ => {
                self.path.clear();
                Ok(None)
            }
        }
    }

    /// The way to where `key` is in the order, root first, for a change: in the leaf the first record that is not below
    /// `key`, or the end of the leaf. Whether that record has the key.
    pub(super) fn way_to(mut self, key: &K::Key) -> Result<(Vec<Step<K>>, bool)> {
        let geometry = self.tree.volume.geometry();
        self.descend(|node| {
            if node.level == 0 {
                node.partition(key, false, geometry)
            } else {
                node.partition(key, true, geometry).saturating_sub(1)
            }
        })?;
        let found = self
            .path
            .last()
            .is_some_and(|leaf| leaf.n < leaf.node.count && leaf.node.key(leaf.n, geometry) == *key);
        Ok((self.path, found))
    }

    /// The record of `key`.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn lookup_eq(&mut self, key: &K::Key) -> Result<Option<K::Record>> {
        Ok(self.lookup_le(key)?.filter(|record| K::key(record) == *key))
    }

    /// The record that the cursor stands at.
    ///
    /// # Errors
    /// Corruption: the record is not what one can be.
    pub(crate) fn record(&self) -> Result<Option<K::Record>> {
        let Some(leaf) = self.path.last() else { return Ok(None) };
        if leaf.n >= leaf.node.count {
            return Ok(None);
        }
        let geometry = self.tree.volume.geometry();
        let record = leaf.node.record(leaf.n, geometry);
        K::validate(&record, geometry, self.tree.ag)
            .map_err(|detail| self.tree.corrupt(leaf.node.block, format!("record {}: {detail}", leaf.n)))?;
        Ok(Some(record))
    }

    /// Steps to the next record; past the last one the cursor stands nowhere.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn increment(&mut self) -> Result<Option<K::Record>> {
        self.step(true)?;
        self.record()
    }

    /// Steps to the record before; before the first one the cursor stands nowhere.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn decrement(&mut self) -> Result<Option<K::Record>> {
        self.step(false)?;
        self.record()
    }

    fn step_back_in_leaf(&mut self) {
        if let Some(leaf) = self.path.last_mut() {
            leaf.n -= 1;
        }
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        let can_step = |step: &Step<K>| if forward { step.n + 1 < step.node.count } else { step.n > 0 };
        let [old_side, new_side] = if forward { [1, 0] } else { [0, 1] };
        let Some(depth) = self.path.iter().rposition(can_step) else {
            // The first and the last block of a level have no sibling outside.
            let beyond = self.path.iter().find(|step| step.node.siblings(self.tree)[old_side].is_some());
            let beyond = beyond.map(|step| step.node.block);
            self.path.clear();
            return beyond.map_or(Ok(()), |block| {
                Err(self.tree.corrupt(block, "has a sibling to which no parent leads".into()))
            });
        };
        // The blocks that the cursor leaves, to be compared with their neighbours' siblings.
        let left: Vec<_> = self.path.drain(depth + 1..).map(|step| step.node).collect();
        let here = &mut self.path[depth];
        here.n = if forward { here.n + 1 } else { here.n - 1 };
        for old in left {
            let node = self.read_child()?;
            if old.siblings(self.tree)[old_side] != node.block
                || node.siblings(self.tree)[new_side] != old.block
            {
                let detail = match old.block {
                    Some(old) => {
                        format!("is not the sibling of block {old}, next to which its parent has it")
                    }
                    None => "is not the sibling of the block next to it".into(),
                };
                return Err(self.tree.corrupt(node.block, detail));
            }
            if node.level == 0 {
                self.check_order(&old, &node, forward)?;
            }
            let n = if forward { 0 } else { node.count - 1 };
            self.path.push(Step { node, n });
        }
        Ok(())
    }

    /// Checks that two neighbouring leaves do not overlap, which does not follow from their keys.
    fn check_order(&self, old: &Node<K>, new: &Node<K>, forward: bool) -> Result<()> {
        let geometry = self.tree.volume.geometry();
        let (before, after) = if forward { (old, new) } else { (new, old) };
        let (last, first) = (before.record(before.count - 1, geometry), after.record(0, geometry));
        if K::in_order(&last, &first) {
            return Ok(());
        }
        Err(self.tree.corrupt(after.block, "begins before the end of the leaf before it".into()))
    }

    /// Goes from the root to a leaf, by what `choose` says in each block.
    fn descend(&mut self, mut choose: impl FnMut(&Node<K>) -> usize) -> Result<()> {
        self.path.clear();
        let root = self.tree.read_root()?;
        if root.siblings(self.tree) != [None, None] {
            return Err(self.tree.corrupt(root.block, "is the root and has siblings".into()));
        }
        let n = choose(&root);
        self.path.push(Step { node: root, n });
        while self.path.last().is_some_and(|step| step.node.level > 0) {
            let node = self.read_child()?;
            let n = choose(&node);
            self.path.push(Step { node, n });
        }
        Ok(())
    }

    /// Reads the block that the last step points to, which is no leaf, and validates it against its parent.
    fn read_child(&self) -> Result<Node<K>> {
        let tree = self.tree;
        let geometry = tree.volume.geometry();
        let Some(Step { node: parent, n }) = self.path.last() else {
            return Err(tree.corrupt(None, "has no root".into()));
        };
        let Some(block) = parent.child(*n, tree) else {
            return Err(tree.corrupt(parent.block, format!("pointer {n} leads out of the filesystem")));
        };
        if self.reads_ahead && *n == 0 && parent.count > 1 {
            tree.volume.prefetch_scattered((0..parent.count).filter_map(|n| parent.child(n, tree)));
        }
        let node = Node::read(tree, block, parent.level - 1)?;
        if node.key(0, geometry) != parent.key(*n, geometry) {
            return Err(tree.corrupt(node.block, format!("does not begin with key {n} of its parent")));
        }
        // The next key of any parent on the way bounds what may be below.
        let bound = self.path.iter().rev().find(|step| step.n + 1 < step.node.count);
        if let Some(step) = bound {
            let (last, next) = (node.key(node.count - 1, geometry), step.node.key(step.n + 1, geometry));
            if last >= next {
                return Err(tree.corrupt(node.block, "ends behind the key of the block after it".into()));
            }
        }
        Ok(node)
    }

    pub(super) fn visit_blocks(&mut self, visit: &mut dyn FnMut(FsBlock, u8) -> Result<()>) -> Result<()> {
        self.descend(|_| 0)?;
        let mut fresh = 0;
        loop {
            for step in &self.path[fresh..] {
                if let Some(block) = step.node.block {
                    visit(block, step.node.level)?;
                }
            }
            // On to the next leaf: all of this one is behind.
            if let Some(leaf) = self.path.last_mut() {
                leaf.n = leaf.node.count.saturating_sub(1);
            }
            let Some(depth) = self.path.iter().rposition(|step| step.n + 1 < step.node.count) else {
                return self.step(true);
            };
            fresh = depth + 1;
            self.step(true)?;
        }
    }
}

impl Cursor<'_, '_, RmapBt> {
    /// The first mapping with `block` in it that `accept` takes. Blocks of the tree are read that have keys from before
    /// `block` to behind it: not more than there are overlapping mappings, and those with their parents.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn find_overlapping(
        mut self,
        block: AgBlock,
        accept: impl Fn(&RmapRecord) -> bool,
    ) -> Result<Option<RmapRecord>> {
        let geometry = self.tree.volume.geometry();
        self.path.push(Step { node: self.tree.read_root()?, n: 0 });
        while let Some(Step { node, n }) = self.path.last() {
            let is_behind = *n >= node.count || node.key(*n, geometry).start > block;
            if is_behind {
                self.path.pop();
            } else if node.level > 0 {
                if node.high_key(*n).start >= block {
                    let child = self.read_child()?;
                    self.path.push(Step { node: child, n: 0 });
                    continue;
                }
            } else if let Some(record) = self.record()?
                && record.start.0.saturating_add(record.count) > block.0
                && accept(&record)
            {
                return Ok(Some(record));
            }
            if let Some(step) = self.path.last_mut() {
                step.n += 1;
            }
        }
        Ok(None)
    }
}
