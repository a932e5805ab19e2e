//! A directory as it will be: its blocks, read and changed in memory.

use std::collections::BTreeMap;

use undercroft_sync::RwLockWriteGuard;
use undercroft_vfs::{Error, Result};

use super::super::directory::STRUCTURE;
use super::raw;
use crate::alloc::Held;
use crate::da::mapped::MappedFork;
use crate::da::{Layout, Links, Node};
use crate::dir::leaf::Leaf;
use crate::error::{Verdict, corrupt_inode};
use crate::format::block_header::{self, HeaderKind};
use crate::format::{Daddr, FileBlock, FsBlock};
use crate::inode::{Fork, ForkKind, Inode, InodeState, STORE_CREDITS};
use crate::map::{self, Run};
use crate::transaction::{Handle, Seal};
use crate::volume::{Blocks, Volume};

/// Of the blocks that a change of the map may change, this part counts again for each further piece of one block.
const CREDITS_SHARED: u32 = 4;

/// Extents that are entered beside each other and split a leaf of the map's tree once: less than half of the smallest.
const PIECES_IN_LEAF: u32 = 24;

/// A planned change of one directory's names.
pub(crate) struct Change<'a> {
    pub(super) dir: &'a InodeState,
    pub(super) volume: &'a Volume,
    pub(super) layout: Layout,
    /// The inode as it will be, but for blocks that are added or removed.
    pub(super) inode: Inode,
    pub(super) slots: BTreeMap<u32, Slot>,
    /// The content in the inode differs.
    pub(super) inode_changes: bool,
    /// No block is removed.
    pub(super) keeps_blocks: bool,
    /// Held for as long as the plan is.
    pub(super) _names: RwLockWriteGuard<'a, ()>,
}

/// One block of the directory.
pub(super) struct Slot {
    /// Where it lies; `None` for one that is added.
    pub(super) home: Option<FsBlock>,
    /// The parts in which it lies there, one in all but rare cases, with how many blocks each has.
    pub(super) pieces: Vec<(FsBlock, u32)>,
    /// Space for one that is added and has several blocks: together, or in pieces where the disk has no such run.
    pub(super) held: Vec<Held>,
    pub(super) seal: Seal,
    /// As it was read. Holds it in the cache until the plan is applied, so that it stays validated.
    pub(super) old: Option<Blocks>,
    /// As it will be, where that differs.
    pub(super) new: Option<Vec<u8>>,
    /// It is removed.
    pub(super) gone: bool,
    /// A block of the tree has been validated. Planned changes leave it valid.
    is_validated: bool,
}

impl Slot {
    /// One that is added.
    fn added(seal: Seal) -> Self {
        Self {
            home: None,
            pieces: Vec::new(),
            held: Vec::new(),
            seal,
            old: None,
            new: None,
            gone: false,
            is_validated: true,
        }
    }

    /// Whether it gets a place.
    pub(super) fn is_placed(&self) -> bool {
        !self.gone && self.home.is_none()
    }

    /// Changes of the directory's map that this takes.
    fn map_changes(&self) -> u32 {
        if self.is_placed() {
            self.held.len().max(1) as u32
        } else if self.gone {
            self.pieces.len() as u32
        } else {
            0
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match (&self.new, &self.old) {
            (Some(new), _) => new,
            (None, Some(old)) => old,
            (None, None) => &[],
        }
    }
}

impl<'a> Change<'a> {
    /// Locks the directory's names. `number` is how many directories with a smaller number the thread has locked.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) for what is not written.
    pub(crate) fn begin(dir: &'a InodeState, number: u32) -> Result<Self> {
        let volume: &Volume = &dir.volume;
        let layout = Layout::of(volume.superblock());
        if !layout.self_describing {
            return Err(Error::Unsupported("changing directories of this layout".into()));
        }
        let names = if number == 0 { dir.names.write() } else { dir.names.write_nested(number) };
        let inode = dir.fields.read().clone();
        Ok(Self {
            dir,
            volume,
            layout,
            inode,
            slots: BTreeMap::new(),
            inode_changes: false,
            keeps_blocks: false,
            _names: names,
        })
    }

    /// Blocks that applying the plan changes at most.
    pub(crate) fn credits(&self) -> u32 {
        let each = map::change::credits(self.volume, &self.inode, ForkKind::Data);
        let mut credits = STORE_CREDITS;
        for slot in self.slots.values() {
            credits += if slot.new.is_some() && !slot.gone { self.unit() } else { 0 };
            // Pieces of one block change the same headers, and for the most part the same blocks of trees.
            credits += match slot.map_changes() {
                0 => 0,
                changes => each + (changes - 1) * each.div_ceil(CREDITS_SHARED),
            };
        }
        credits
    }

    /// The plan removes no block of the directory, however empty: to remove a block takes space where that cuts an extent in
    /// two and the fork has no room for both. Linux leaves blocks where they are then, too, although xfs_repair
    /// removes those without names.
    pub(crate) fn keep_blocks(&mut self) {
        self.keeps_blocks = true;
    }

    /// Blocks of free space that applying the plan takes at most, without those that are held together.
    pub(crate) fn space(&self) -> u64 {
        let placed = self.slots.values().filter(|slot| slot.is_placed()).count() as u64;
        let blocks = if self.unit() == 1 { placed } else { 0 };
        let each = map::change::needed_space(&self.inode, ForkKind::Data, self.map_changes());
        if each == 0 {
            return blocks;
        }
        // Each place in the map may need so much, the first of them may make its tree one level higher, and the last one is
        // refused where it does not find as much as it may need.
        let places = |slot: &Slot| match slot.map_changes() {
            0 => 0,
            changes => 1 + u64::from(changes / PIECES_IN_LEAF),
        };
        match self.slots.values().map(places).sum() {
            0 => blocks,
            places => blocks + (places + 1) * (each + 1),
        }
    }

    fn map_changes(&self) -> u64 {
        self.slots.values().map(|slot| u64::from(slot.map_changes())).sum()
    }

    /// Reserves for the handle the space that the plan needs beyond `used` blocks, which the rest of the operation takes, and
    /// holds space for directory blocks of several blocks: each lies together, or in pieces where that cannot be. Then the plan
    /// may need more [credits](Self::credits) than before.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace); [`FileTooLarge`](Error::FileTooLarge) for a directory of too many extents. Nothing has
    /// changed.
    pub(crate) fn reserve(&mut self, handle: &Handle<'_>, used: u64) -> Result<()> {
        if self.map_changes() > 0 {
            map::change::check_count(self.volume, &self.inode, ForkKind::Data)?;
        }
        for (home, count) in self.slots.values().filter(|slot| slot.gone).flat_map(|slot| &slot.pieces) {
            map::change::check_removal(handle, *home, u64::from(*count))?;
        }
        let unit = self.unit();
        for (&at, slot) in self.slots.iter_mut().filter(|(_, slot)| unit > 1 && slot.is_placed()) {
            slot.held = hold(handle, &self.inode, at, unit)?;
        }
        handle.ensure_space(used + self.space())
    }

    /// Whether the directory is in its inode.
    pub(super) fn is_short(&self) -> bool {
        matches!(self.inode.data, Fork::Local(_))
    }

    /// Filesystem blocks in a directory block.
    pub(super) fn unit(&self) -> u32 {
        self.layout.dir_block_count()
    }

    pub(super) fn dir_block_bytes(&self) -> usize {
        self.layout.dir_block_bytes
    }

    /// How many blocks the directory's entries have, with holes.
    pub(super) fn data_blocks(&self) -> u32 {
        let blocks = self.inode.core.size_bytes / self.dir_block_bytes() as u64;
        u32::try_from(blocks).unwrap_or(u32::MAX).min(self.layout.names_end())
    }

    pub(super) fn set_data_blocks(&mut self, blocks: u32) {
        self.inode.core.size_bytes = u64::from(blocks) * self.dir_block_bytes() as u64;
    }

    fn run(&self, at: u32) -> Result<Run> {
        let run = map::lookup(self.volume, self.inode.ino, &self.inode.data, FileBlock(u64::from(at)))?;
        if matches!(&run, Run::Extent(extent) if extent.unwritten) {
            return Err(self.corrupt(None, format!("its block {at} was never written")));
        }
        Ok(run)
    }

    /// Whether a block is there, at least in part.
    pub(super) fn is_present(&self, at: u32) -> Result<bool> {
        if let Some(slot) = self.slots.get(&at) {
            return Ok(!slot.gone);
        }
        if self.is_short() {
            return Ok(false);
        }
        Ok(match self.run(at)? {
            Run::Extent(_) => true,
            Run::Hole { end, .. } => end < u64::from(at) + u64::from(self.unit()),
        })
    }

    /// The first block from `from` on, and before `end`, that is not there and was not.
    pub(super) fn first_unused(&self, from: u32, end: u32) -> Result<u32> {
        let unit = u64::from(self.unit());
        let mut at = u64::from(from);
        while at < u64::from(end) {
            let block = at as u32;
            if self.slots.contains_key(&block) {
                at += unit;
                continue;
            }
            match self.run(block)? {
                Run::Extent(extent) => {
                    let from = FileBlock(extent.end().max(at + 1));
                    let hole = map::first_hole(self.volume, self.inode.ino, &self.inode.data, from)?;
                    at = hole.next_multiple_of(unit);
                }
                Run::Hole { end, .. } if end < at + unit => at += unit,
                Run::Hole { .. } => return Ok(block),
            }
        }
        Err(Error::NoSpace)
    }

    /// How many blocks of names the directory has, with holes, without those from number `before` on.
    pub(super) fn end_before(&self, before: u32) -> Result<u32> {
        let unit = self.unit();
        let mut at = self.layout.names_at(before);
        while let Some(block) = at.checked_sub(unit) {
            if self.is_present(block)? {
                return Ok(at / unit);
            }
            at = match self.run(block)? {
                Run::Hole { start, .. } => {
                    // A block that is added lies in what is a hole still.
                    let added =
                        self.slots.range(..block).rev().find(|(_, slot)| !slot.gone && slot.home.is_none());
                    let added = added.map_or(0, |(&added, _)| u64::from(added) + 1);
                    start.max(added).next_multiple_of(unit.into()).min(u64::from(block)) as u32
                }
                Run::Extent(_) => block,
            };
        }
        Ok(0)
    }

    /// Reads a block that must be there, and verifies its header.
    pub(super) fn load(&mut self, at: u32, kind: HeaderKind) -> Result<()> {
        if let Some(slot) = self.slots.get(&at) {
            return if slot.gone { Err(self.missing(at)) } else { Ok(()) };
        }
        let unit = self.unit();
        let fork = MappedFork::of(self.volume, self.inode.ino, STRUCTURE, &self.inode.data);
        let Some(pieces) = fork.pieces(at, unit)? else { return Err(self.missing(at)) };
        let Some(block) = fork.read_pieces(at, &pieces, kind)? else { return Err(self.missing(at)) };
        let slot = Slot {
            home: Some(block.home),
            pieces,
            old: Some(block.bytes),
            is_validated: false,
            ..Slot::added(Seal::DirData)
        };
        self.slots.insert(at, slot);
        Ok(())
    }

    fn missing(&self, at: u32) -> Error {
        self.corrupt(None, format!("its index leads to block {at}, which is not there"))
    }

    /// The bytes of a block that has been loaded.
    pub(super) fn bytes(&self, at: u32) -> &[u8] {
        self.slots.get(&at).map_or(&[], Slot::bytes)
    }

    /// The bytes of a block that has been loaded, to be changed.
    pub(super) fn edit(&mut self, at: u32, seal: Seal) -> &mut Vec<u8> {
        let block_bytes = self.layout.dir_block_bytes;
        let slot = self.slots.entry(at).or_insert_with(|| Slot::added(seal));
        slot.seal = seal;
        let old = &slot.old;
        slot.new.get_or_insert_with(|| old.as_ref().map_or_else(|| vec![0; block_bytes], |old| old.to_vec()))
    }

    /// Adds a block, which is zeroes but for its header. The header has no address until the block has a place.
    pub(super) fn add_block(&mut self, at: u32, seal: Seal) -> Result<&mut Vec<u8>> {
        if self.is_present(at)? {
            return Err(self.corrupt(None, format!("has a block {at} that none of its indexes knows of")));
        }
        let mut home = None;
        if let Some(slot) = self.slots.get_mut(&at) {
            // Removed by the same change, which uses it again.
            (slot.gone, slot.is_validated) = (false, true);
            slot.new = Some(vec![0; self.layout.dir_block_bytes]);
            home = slot.home;
        }
        let (superblock, ino) = (self.volume.superblock(), self.inode.ino.0);
        let address = home.and_then(|home| superblock.geometry().daddr(home)).unwrap_or(Daddr(0));
        let bytes = self.edit(at, seal);
        if let Some(kind) = seal.header() {
            block_header::fill(bytes, kind, superblock, address, ino);
        }
        Ok(bytes)
    }

    /// Removes a block that has been loaded.
    pub(super) fn remove_block(&mut self, at: u32) {
        if self.slots.get(&at).is_some_and(|slot| slot.home.is_none()) {
            self.slots.remove(&at);
        } else if let Some(slot) = self.slots.get_mut(&at) {
            slot.gone = true;
        }
    }

    /// Reads a block of the tree: a leaf, or a node, which is validated once.
    pub(super) fn load_tree(&mut self, at: u32) -> Result<TreeBlock> {
        self.load(at, HeaderKind::DaBlock)?;
        let (bytes, home) = (self.bytes(at), self.home(at));
        if self.slots.get(&at).is_some_and(|slot| slot.is_validated) {
            return Ok(match raw::get16(bytes, 8) {
                raw::MAGIC_NODE => TreeBlock::Node(raw::get16(bytes, 58)),
                raw::MAGIC_LEAF_ONE => TreeBlock::OnlyLeaf,
                _ => TreeBlock::Leaf,
            });
        }
        let links = self.validated(home, Links::of(bytes))?;
        let block = if links.is_node(&self.layout) {
            TreeBlock::Node(self.validated(home, Node::validate(bytes, &self.layout))?.level)
        } else {
            let leaf = self.validated(home, Leaf::validate(bytes, &self.layout))?;
            if leaf.best.is_some() { TreeBlock::OnlyLeaf } else { TreeBlock::Leaf }
        };
        if let Some(slot) = self.slots.get_mut(&at) {
            slot.is_validated = true;
        }
        Ok(block)
    }

    pub(super) fn home(&self, at: u32) -> Option<FsBlock> {
        self.slots.get(&at).and_then(|slot| slot.home)
    }

    pub(super) fn corrupt(
        &self,
        home: Option<FsBlock>,
        detail: impl Into<std::borrow::Cow<'static, str>>,
    ) -> Error {
        corrupt_inode(STRUCTURE, self.inode.ino, home, detail)
    }

    pub(super) fn validated<T>(&self, home: Option<FsBlock>, verdict: Verdict<T>) -> Result<T> {
        verdict.map_err(|detail| self.corrupt(home, detail))
    }

    /// A verdict on a block of the directory.
    pub(super) fn checked<T>(&self, at: u32, verdict: Verdict<T>) -> Result<T> {
        self.validated(self.home(at), verdict)
    }

    /// Sets the links of a block of the tree.
    pub(super) fn link(&mut self, at: u32, forward: Option<u32>, back: Option<u32>) -> Result<()> {
        let seal = match self.load_tree(at)? {
            TreeBlock::Node(_) => Seal::DaNode,
            _ => Seal::DirLeafN,
        };
        let bytes = self.edit(at, seal);
        if let Some(forward) = forward {
            raw::set_forward(bytes, forward);
        }
        if let Some(back) = back {
            raw::set_back(bytes, back);
        }
        Ok(())
    }
}

/// Holds space for a directory block of several blocks: all of them together where there is such a run, which is read and
/// logged as one buffer; else in as few pieces as free space allows.
fn hold(handle: &Handle<'_>, inode: &Inode, at: u32, unit: u32) -> Result<Vec<Held>> {
    let volume = handle.volume();
    let allocator = &handle.writer().allocator;
    let goal = map::change::goal(volume, inode, ForkKind::Data, FileBlock(u64::from(at)))?;
    match allocator.hold_together(handle, goal, unit) {
        Err(Error::NoSpace) => {}
        held => return Ok(vec![held?]),
    }
    let (mut held, mut left) = (Vec::new(), u64::from(unit));
    while left > 0 {
        let piece = allocator.hold(volume, goal, left)?;
        left = left.saturating_sub(piece.len().max(1));
        held.push(piece);
    }
    Ok(held)
}

/// What a block of the hash tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeBlock {
    Node(u16),
    Leaf,
    OnlyLeaf,
}
