//! The tree of a fork's blocks as it is changed: in memory first.
//!
//! A change loads the blocks that it needs into a [`Draft`], each of them verified, and changes them there: leaves are
//! split and joined, blocks get numbers and lose them. Only a finished draft is written, so what is found to be wrong
//! on the way, or does not fit, leaves everything as it was.
//!
//! Block 0 is the root: a leaf, or an inner block above others. A root that overflows moves its content to a block
//! below it; a root with one block below takes that block's content. An inner block has, for each block below it, the
//! last hash there. Blocks of one level name their neighbours.
//!
//! A leaf is joined with a neighbour below the same inner block when it has become less than [`SPARSE`] full and both
//! together fill at most three quarters of a leaf; inner blocks likewise.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use undercroft_vfs::{Error, Result};

use super::leaf::{self, Item};
use crate::attr::entry::Space;
use crate::da::node::{LEVEL_MAX, MAGIC};
use crate::da::{self, Links, Node};
use crate::format::FsBlock;

/// Where the entries of an inner block begin.
const NODE_HEADER_BYTES: usize = 64;
const NODE_ENTRY_BYTES: usize = 8;
/// Where the fields of an inner block begin that follow the links.
const NODE_FIELDS: usize = 56;

/// In percent: fuller blocks are not joined with others.
const SPARSE: usize = 37;

/// Numbers of blocks end here.
const NUMBERS_END: u64 = u32::MAX as u64;

/// The block that the tree begins with.
const ROOT: u32 = 0;

/// What a block of the tree holds.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Leaf(Vec<Item>),
    /// For each block below: the last hash there, and its number.
    Node {
        level: u16,
        entries: Vec<(u32, u32)>,
    },
}

impl Content {
    pub(super) fn last_hash(&self) -> Option<u32> {
        match self {
            Self::Leaf(items) => items.last().map(|item| item.hash),
            Self::Node { entries, .. } => entries.last().map(|&(hash, _)| hash),
        }
    }

    pub(super) fn level(&self) -> u16 {
        match self {
            Self::Leaf(_) => 0,
            Self::Node { level, .. } => *level,
        }
    }
}

/// A block of the tree.
#[derive(Clone, Debug)]
pub(super) struct TreeBlock {
    pub(super) content: Content,
    pub(super) forward: u32,
    pub(super) back: u32,
    /// `None` for one that the draft has added.
    pub(super) home: Option<FsBlock>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Read,
    Changed,
    Removed,
}

impl TreeBlock {
    pub(super) fn new(content: Content) -> Self {
        Self { content, forward: 0, back: 0, home: None, state: State::Changed }
    }

    /// Writes the block, whose header is there already.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&self.forward.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.back.to_be_bytes());
        match &self.content {
            Content::Leaf(items) => leaf::encode(items, bytes),
            Content::Node { level, entries } => {
                bytes[8..10].copy_from_slice(&MAGIC[1].to_be_bytes());
                bytes[NODE_FIELDS..].fill(0);
                bytes[NODE_FIELDS..][..2].copy_from_slice(&(entries.len() as u16).to_be_bytes());
                bytes[NODE_FIELDS + 2..][..2].copy_from_slice(&level.to_be_bytes());
                let places = bytes[NODE_HEADER_BYTES..].chunks_exact_mut(NODE_ENTRY_BYTES);
                for (place, (hash, child)) in places.zip(entries) {
                    place[..4].copy_from_slice(&hash.to_be_bytes());
                    place[4..].copy_from_slice(&child.to_be_bytes());
                }
            }
        }
    }
}

/// Inner blocks from the root on, and in each the entry that leads on.
type Path = Vec<(u32, usize)>;

/// Where an attribute is, or belongs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: Path,
    leaf: u32,
    index: usize,
}

/// Numbers of blocks that are in use: ranges in order that do not touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers(Vec<Range<u64>>);

impl Numbers {
    /// Adds blocks after all others.
    pub(super) fn push(&mut self, range: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => self.0.push(range),
        }
    }

    /// The first of `count` unused numbers after the root's, which are in use from now on.
    pub(super) fn take(&mut self, count: u32) -> Result<u32> {
        let (mut start, mut at) = (u64::from(ROOT) + 1, 0);
        for range in &self.0 {
            if range.start >= start + u64::from(count) {
                break;
            }
            start = start.max(range.end);
            at += 1;
        }
        let end = start + u64::from(count);
        if end > NUMBERS_END {
            return Err(Error::NoSpace);
        }
        self.0.insert(at, start..end);
        Ok(start as u32)
    }
}

/// The blocks of the tree as they will be.
pub(super) struct Draft<'a> {
    /// `None` for a tree that does not exist yet.
    fork: Option<da::Fork<'a>>,
    block_bytes: usize,
    blocks: BTreeMap<u32, TreeBlock>,
    pub(super) numbers: Numbers,
}

/// A finished draft.
#[derive(Debug)]
pub(super) struct Changes {
    /// Blocks to write, by number; without a home they are new.
    pub(super) written: Vec<(u32, TreeBlock)>,
    /// Numbers of blocks that go.
    pub(super) removed: Vec<u32>,
}

impl<'a> Draft<'a> {
    /// The tree in the blocks of a fork, of which these are in use.
    pub(super) fn of(fork: da::Fork<'a>, numbers: Numbers) -> Self {
        Self { block_bytes: fork.layout.block_bytes, fork: Some(fork), blocks: BTreeMap::new(), numbers }
    }

    /// A tree that begins with these attributes, in any order, in a fork without blocks. The values have `numbers`.
    pub(super) fn new(block_bytes: usize, numbers: Numbers, mut items: Vec<Item>) -> Result<Self> {
        items.sort_by_key(|item| item.hash);
        let blocks = BTreeMap::from([(ROOT, TreeBlock::new(Content::Leaf(items)))]);
        let mut draft = Self { fork: None, block_bytes, blocks, numbers };
        draft.rebalance_leaf(Vec::new(), ROOT)?;
        Ok(draft)
    }

    /// Where the attribute is; if it is nowhere, where it belongs, and `false`.
    pub(super) fn find(&mut self, hash: u32, space: Space, name: &[u8]) -> Result<(Place, bool)> {
        let (mut path, mut leaf) = self.descend(Vec::new(), ROOT, Some(hash))?;
        let mut belongs = None;
        let mut seen = HashSet::new();
        loop {
            if !seen.insert(leaf) {
                return Err(self.corrupt(format!("its tree leads to block {leaf} twice")));
            }
            let items = self.items(leaf)?;
            let from = items.partition_point(|item| item.hash < hash);
            let to = items.partition_point(|item| item.hash <= hash);
            let is_it = |item: &Item| !item.incomplete && item.space == space && *item.name == *name;
            if let Some(n) = items[from..to].iter().position(is_it) {
                return Ok((Place { path, leaf, index: from + n }, true));
            }
            let goes_on = to == items.len();
            let here = belongs.get_or_insert_with(|| Place { path: path.clone(), leaf, index: to }).clone();
            // The next leaf goes on with the hash only if this one ends with it.
            let ends_with_it = goes_on && (from < to || items.is_empty());
            match if ends_with_it { self.next_leaf(&path)? } else { None } {
                Some(next) => (path, leaf) = next,
                None => return Ok((here, false)),
            }
        }
    }

    /// The attribute at a place.
    pub(super) fn get(&mut self, place: &Place) -> Result<Item> {
        let item = self.items(place.leaf)?.get(place.index).cloned();
        item.ok_or_else(|| self.corrupt("it has no such attribute"))
    }

    /// Puts an attribute where it belongs, or in the place of the one that is there.
    pub(super) fn put(&mut self, place: Place, replace: bool, item: Item) -> Result<()> {
        let items = self.items_mut(place.leaf)?;
        let end = place.index + usize::from(replace);
        items.splice(place.index..end, [item]);
        self.rebalance(place)
    }

    /// Removes the attribute at a place.
    pub(super) fn remove(&mut self, place: Place) -> Result<()> {
        self.items_mut(place.leaf)?.remove(place.index);
        self.rebalance(place)
    }

    /// Whether one of these blocks was found to be of the tree.
    pub(super) fn has_any_of(&self, mut numbers: Range<u32>) -> bool {
        numbers.any(|number| self.blocks.contains_key(&number))
    }

    /// All attributes, if one leaf holds them.
    pub(super) fn single_leaf(&mut self) -> Result<Option<&[Item]>> {
        match &self.load(ROOT)?.content {
            Content::Leaf(items) => Ok(Some(items)),
            Content::Node { .. } => Ok(None),
        }
    }

    pub(super) fn finish(self) -> Changes {
        let mut changes = Changes { written: Vec::new(), removed: Vec::new() };
        for (number, block) in self.blocks {
            match (block.state, block.home) {
                (State::Changed, _) => changes.written.push((number, block)),
                (State::Removed, Some(_)) => changes.removed.push(number),
                (State::Read, _) | (State::Removed, None) => {}
            }
        }
        changes
    }

    fn rebalance(&mut self, place: Place) -> Result<()> {
        self.rebalance_leaf(place.path, place.leaf)?;
        self.collapse_root()
    }

    /// After a change of a leaf's attributes: splits it if they do not fit, joins or removes it if they are few.
    fn rebalance_leaf(&mut self, mut path: Path, mut leaf: u32) -> Result<()> {
        let room = leaf::room(self.block_bytes);
        let used = leaf::total(self.items(leaf)?);
        if used > room {
            if path.is_empty() {
                leaf = self.push_root_down()?;
                path.push((ROOT, 0));
            }
            let items = std::mem::take(self.items_mut(leaf)?);
            let mut parts = leaf::split(items, room).into_iter();
            *self.items_mut(leaf)? = parts.next().unwrap_or_default();
            let mut list = vec![self.described(leaf)?];
            let mut before = leaf;
            for part in parts {
                before = self.add_after(before, Content::Leaf(part))?;
                list.push(self.described(before)?);
            }
            return self.replace_children(path, 1, list);
        }
        if path.is_empty() {
            return Ok(());
        }
        if used == 0 {
            self.unlink(leaf)?;
            return self.replace_children(path, 1, Vec::new());
        }
        if used < room * SPARSE / 100
            && let Some((left, right)) = self.neighbours(&path, leaf, |draft, other| {
                Ok(used + leaf::total(draft.items(other)?) <= room / 4 * 3)
            })?
        {
            let mut moved = std::mem::take(self.items_mut(right)?);
            self.items_mut(left)?.append(&mut moved);
            return self.joined(path, leaf, left, right);
        }
        let list = vec![self.described(leaf)?];
        self.replace_children(path, 1, list)
    }

    /// Replaces `count` entries, of which the path leads to the first, and lets the blocks above follow.
    fn replace_children(
        &mut self,
        mut path: Path,
        mut count: usize,
        mut list: Vec<(u32, u32)>,
    ) -> Result<()> {
        let room = (self.block_bytes - NODE_HEADER_BYTES) / NODE_ENTRY_BYTES;
        while let Some((mut at, index)) = path.pop() {
            let entries = self.entries(at)?;
            let Some(old) = entries.get(index..index + count) else {
                return Err(self.corrupt(format!("block {at} has no {count} entries from {index} on")));
            };
            if *old == *list {
                return Ok(());
            }
            let entries = self.entries_mut(at)?;
            entries.splice(index..index + count, list.drain(..));
            let used = entries.len();
            count = 1;
            if used > room {
                if at == ROOT {
                    at = self.push_root_down()?;
                    path.push((ROOT, 0));
                }
                let level = self.load(at)?.content.level();
                let entries = self.entries_mut(at)?.split_off(used / 2);
                let right = self.add_after(at, Content::Node { level, entries })?;
                list = vec![self.described(at)?, self.described(right)?];
            } else if at == ROOT {
                if used == 0 {
                    self.load_mut(ROOT)?.content = Content::Leaf(Vec::new());
                }
                return Ok(());
            } else if used == 0 {
                self.unlink(at)?;
            } else if used < room * SPARSE / 100
                && let Some((left, right)) = self.neighbours(&path, at, |draft, other| {
                    Ok(used + draft.entries(other)?.len() <= room / 4 * 3)
                })?
            {
                let mut moved = std::mem::take(self.entries_mut(right)?);
                self.entries_mut(left)?.append(&mut moved);
                return self.joined(path, at, left, right);
            } else {
                list.push(self.described(at)?);
            }
        }
        Ok(())
    }

    /// `right` was joined with `left`; the path leads to `at`, one of the two.
    fn joined(&mut self, mut path: Path, at: u32, left: u32, right: u32) -> Result<()> {
        self.unlink(right)?;
        if at == right
            && let Some((_, index)) = path.last_mut()
        {
            *index -= 1;
        }
        let list = vec![self.described(left)?];
        self.replace_children(path, 2, list)
    }

    /// The block that the path leads to and a neighbour below the same inner block that `suits`, in order.
    fn neighbours(
        &mut self,
        path: &Path,
        at: u32,
        suits: impl Fn(&mut Self, u32) -> Result<bool>,
    ) -> Result<Option<(u32, u32)>> {
        let Some(&(above, index)) = path.last() else { return Ok(None) };
        let level = self.load(at)?.content.level();
        let entries = self.entries(above)?;
        let before = index.checked_sub(1).and_then(|n| entries.get(n)).map(|&(_, child)| child);
        let after = entries.get(index + 1).map(|&(_, child)| child);
        for (other, pair) in [(before, |at, other| (other, at)), (after, |at, other| (at, other))]
            as [(Option<u32>, fn(u32, u32) -> (u32, u32)); 2]
        {
            let Some(other) = other else { continue };
            let (left, right) = pair(at, other);
            self.check_level(other, level)?;
            if self.load(left)?.forward != right || self.load(right)?.back != left {
                return Err(self.corrupt(format!("blocks {left} and {right} do not name each other")));
            }
            if suits(self, other)? {
                return Ok(Some((left, right)));
            }
        }
        Ok(None)
    }

    /// Moves the root's content to a new block, and makes the root the inner block above it.
    fn push_root_down(&mut self) -> Result<u32> {
        let root = self.load(ROOT)?;
        let (content, level) = (root.content.clone(), root.content.level() + 1);
        if level > LEVEL_MAX {
            return Err(Error::NoSpace);
        }
        let number = self.numbers.take(1)?;
        self.blocks.insert(number, TreeBlock::new(content));
        let entries = vec![self.described(number)?];
        self.load_mut(ROOT)?.content = Content::Node { level, entries };
        Ok(number)
    }

    /// While the root has one block below, takes that block's content.
    fn collapse_root(&mut self) -> Result<()> {
        loop {
            let (child, level) = match &self.load(ROOT)?.content {
                Content::Node { entries, level } if entries.len() == 1 => (entries[0].1, *level),
                _ => return Ok(()),
            };
            self.check_level(child, level - 1)?;
            let block = self.load_mut(child)?;
            if (block.forward, block.back) != (0, 0) {
                return Err(self.corrupt(format!("block {child} is alone on its level and names others")));
            }
            let content = std::mem::replace(&mut block.content, Content::Leaf(Vec::new()));
            block.state = State::Removed;
            self.load_mut(ROOT)?.content = content;
        }
    }

    /// Adds a block behind another of its level.
    fn add_after(&mut self, before: u32, content: Content) -> Result<u32> {
        let number = self.numbers.take(1)?;
        let forward = std::mem::replace(&mut self.load_mut(before)?.forward, number);
        self.blocks.insert(number, TreeBlock { forward, back: before, ..TreeBlock::new(content) });
        if forward != 0 {
            let next = self.load_mut(forward)?;
            if std::mem::replace(&mut next.back, number) != before {
                return Err(self.corrupt(format!("block {forward} does not name {before} as the one before")));
            }
        }
        Ok(number)
    }

    /// Takes a block from between its neighbours, and removes it.
    fn unlink(&mut self, at: u32) -> Result<()> {
        let block = self.load_mut(at)?;
        block.state = State::Removed;
        let (forward, back) = (block.forward, block.back);
        if forward != 0 && std::mem::replace(&mut self.load_mut(forward)?.back, back) != at
            || back != 0 && std::mem::replace(&mut self.load_mut(back)?.forward, forward) != at
        {
            return Err(self.corrupt(format!("the neighbours of block {at} do not name it")));
        }
        Ok(())
    }

    /// From a block down to a leaf: where `hash` comes first, or the first leaf.
    fn descend(&mut self, mut path: Path, mut at: u32, hash: Option<u32>) -> Result<(Path, u32)> {
        loop {
            let Content::Node { level, entries } = &self.load(at)?.content else { return Ok((path, at)) };
            let index = hash.map_or(0, |hash| entries.partition_point(|&(last, _)| last < hash));
            let index = index.min(entries.len() - 1);
            let (below, child) = (level - 1, entries[index].1);
            path.push((at, index));
            self.check_level(child, below)?;
            at = child;
        }
    }

    /// The leaf after the one that the path leads to.
    fn next_leaf(&mut self, path: &Path) -> Result<Option<(Path, u32)>> {
        let mut path = path.clone();
        while let Some((at, index)) = path.pop() {
            let Content::Node { level, entries } = &self.load(at)?.content else { break };
            let Some(&(_, child)) = entries.get(index + 1) else { continue };
            let below = level - 1;
            path.push((at, index + 1));
            self.check_level(child, below)?;
            return self.descend(path, child, None).map(Some);
        }
        Ok(None)
    }

    fn check_level(&mut self, at: u32, level: u16) -> Result<()> {
        let found = self.load(at)?.content.level();
        if found == level {
            return Ok(());
        }
        Err(self.corrupt(format!("block {at} has level {found}, below one of level {}", level + 1)))
    }

    /// The entry of a block in the block above.
    fn described(&mut self, at: u32) -> Result<(u32, u32)> {
        let hash = self.load(at)?.content.last_hash();
        hash.map(|hash| (hash, at)).ok_or_else(|| self.corrupt(format!("block {at} of its tree is empty")))
    }

    fn items(&mut self, at: u32) -> Result<&[Item]> {
        if self.load(at)?.content.level() != 0 {
            return Err(self.corrupt(format!("block {at} of its tree is no leaf")));
        }
        match &self.load(at)?.content {
            Content::Leaf(items) => Ok(items),
            Content::Node { .. } => Ok(&[]),
        }
    }

    fn items_mut(&mut self, at: u32) -> Result<&mut Vec<Item>> {
        self.items(at)?;
        match &mut self.load_mut(at)?.content {
            Content::Leaf(items) => Ok(items),
            Content::Node { .. } => Err(Error::InvalidArgument("no leaf")),
        }
    }

    fn entries(&mut self, at: u32) -> Result<&[(u32, u32)]> {
        match &self.load(at)?.content {
            Content::Node { entries, .. } => Ok(entries),
            Content::Leaf(_) => Ok(&[]),
        }
    }

    fn entries_mut(&mut self, at: u32) -> Result<&mut Vec<(u32, u32)>> {
        match &mut self.load_mut(at)?.content {
            Content::Node { entries, .. } => Ok(entries),
            Content::Leaf(_) => Err(Error::InvalidArgument("no inner block")),
        }
    }

    fn load_mut(&mut self, at: u32) -> Result<&mut TreeBlock> {
        self.load(at)?;
        let block = self.blocks.get_mut(&at).ok_or(Error::Stale)?;
        block.state = State::Changed;
        Ok(block)
    }

    fn load(&mut self, at: u32) -> Result<&TreeBlock> {
        if !self.blocks.contains_key(&at) {
            let block = self.read(at)?;
            self.blocks.insert(at, block);
        }
        let block = self.blocks.get(&at).filter(|block| block.state != State::Removed);
        block.ok_or_else(|| self.corrupt(format!("its tree leads to block {at} twice")))
    }

    fn read(&self, at: u32) -> Result<TreeBlock> {
        let Some(fork) = &self.fork else {
            return Err(self.corrupt(format!("its tree leads to block {at}, which is not there")));
        };
        let (block, links) = fork.read_tree_block(at)?;
        let Links { forward, back, .. } = links;
        let content = if links.is_node(fork.layout) {
            let node = fork.validated(block.home, Node::validate(&block.bytes, fork.layout))?;
            let entries = node.entries.iter().map(|entry| (entry.hash(), entry.child())).collect();
            Content::Node { level: node.level, entries }
        } else {
            Content::Leaf(fork.validated(block.home, leaf::decode(&block.bytes, fork.layout))?)
        };
        Ok(TreeBlock { content, forward, back, home: Some(block.home), state: State::Read })
    }

    #[cfg(test)]
    pub(super) fn peek(&mut self, at: u32) -> &TreeBlock {
        self.load(at).unwrap()
    }

    fn corrupt(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        match &self.fork {
            Some(fork) => fork.corrupt(None, detail),
            None => crate::error::corrupt(crate::attr::STRUCTURE, detail),
        }
    }
}
