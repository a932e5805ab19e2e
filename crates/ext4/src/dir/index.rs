//! The index of a directory: a tree over hashes of names, whose leaves are ordinary blocks of entries.
//!
//! Source: kernel documentation, section "Hash Tree Directories". The root lies in the directory's first block, in the
//! space of its entry `..`; inner nodes lie behind an unused entry that takes the whole block. A reader without support
//! for indexes takes all of them for empty blocks, so a directory can always be read from end to end.
//!
//! Names with one hash may fill more than a block: the next entry then has that hash plus one, and the search
//! goes on there. How far is bounded by the number of the directory's blocks, how deep by the format.

use undercroft_vfs::Result;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::directory::{Block, Directory, Shape};
use super::hash::{NameHasher, VERSION_SIPHASH};
use super::query::Query;
use super::tail;
use crate::error::Verdict;
use crate::features::Incompat;
use crate::numbers::{FileBlock, FsBlock};

/// What follows `.` and `..` in the root.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRootInfo {
    pub(super) reserved_zero: U32,
    pub(super) hash_version: u8,
    pub(super) info_length: u8,
    pub(super) indirect_levels: u8,
    pub(super) unused_flags: u8,
}

/// Names whose hash is at least `hash`, and less than the next entry's, are found through `block`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawIndexEntry {
    pub(super) hash: U32,
    pub(super) block: U32,
}

/// What lies in place of the first entry's hash, which would be 0.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawCountLimit {
    pub(super) limit: U16,
    pub(super) count: U16,
}

pub(super) const ENTRY_BYTES: usize = size_of::<RawIndexEntry>();
pub(super) const ROOT_INFO_AT: usize = 24;
pub(super) const ROOT_ENTRIES_AT: usize = ROOT_INFO_AT + size_of::<RawRootInfo>();
pub(super) const NODE_ENTRIES_AT: usize = 8;
const _: () = assert!(ENTRY_BYTES == 8 && ROOT_ENTRIES_AT == 32);

/// The upper four bits of a block number are reserved.
pub(super) const BLOCK_MASK: u32 = 0x0fff_ffff;

/// Validates the checksum of an index block.
pub(super) fn check_checksum(seed: u32, block: &Block) -> Verdict<()> {
    let entries_at = entries_at(block.shape);
    let (limit, count) = limit_and_count(block, entries_at)?;
    tail::check_index(seed, &block.buffer, entries_at, count, limit)
}

fn entries_at(shape: Shape) -> usize {
    if shape == Shape::IndexRoot { ROOT_ENTRIES_AT } else { NODE_ENTRIES_AT }
}

/// How many entries the block has room for, and how many are in use.
fn limit_and_count(block: &Block, entries_at: usize) -> Verdict<(usize, usize)> {
    let head = block.buffer.get(entries_at..).and_then(|rest| RawCountLimit::ref_from_prefix(rest).ok());
    let Some((head, _)) = head else { return Err("too short for an index".into()) };
    let (limit, count) = (usize::from(head.limit.get()), usize::from(head.count.get()));
    let room = (block.buffer.len() - entries_at) / ENTRY_BYTES;
    if count == 0 || count > limit || limit > room {
        return Err(format!("{count} index entries of {limit}, with room for {room}").into());
    }
    Ok((limit, count))
}

/// An index block whose numbers have been validated.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) block: Block,
    pub(super) entries_at: usize,
    pub(super) limit: usize,
    pub(super) count: usize,
}

impl Node {
    fn validate(directory: &Directory<'_>, block: Block) -> Result<Self> {
        let entries_at = entries_at(block.shape);
        match limit_and_count(&block, entries_at) {
            Ok((limit, count)) => Ok(Self { block, entries_at, limit, count }),
            Err(detail) => Err(block.corrupt(directory, detail)),
        }
    }

    fn read(directory: &Directory<'_>, at: FileBlock) -> Result<Self> {
        let block = directory.read_block(at)?;
        if block.shape != Shape::IndexNode {
            return Err(block.corrupt(directory, "index leads here, but this is no index node"));
        }
        Self::validate(directory, block)
    }

    /// The entries in use. The first one has no hash.
    pub(super) fn entries(&self) -> &[RawIndexEntry] {
        let entries = self.block.buffer.get(self.entries_at..);
        let entries = entries.and_then(|e| <[RawIndexEntry]>::ref_from_prefix_with_elems(e, self.count).ok());
        entries.map_or(&[], |(entries, _)| entries)
    }

    /// The hash that an entry has; the first has none.
    pub(super) fn key(&self, slot: usize) -> Option<u32> {
        self.entries().get(1..)?.get(slot.checked_sub(1)?).map(|entry| entry.hash.get())
    }

    /// The last entry whose hash is not above `hash`.
    fn slot_of(&self, hash: u32) -> usize {
        let with_hash = self.entries().get(1..).unwrap_or(&[]);
        with_hash.partition_point(|entry| entry.hash.get() <= hash)
    }

    pub(super) fn child(&self, slot: usize) -> Option<FileBlock> {
        self.entries().get(slot).map(|entry| FileBlock(entry.block.get() & BLOCK_MASK))
    }
}

/// What the root says of the whole index.
#[derive(Clone, Copy, Debug)]
struct RootInfo {
    hash_version: u8,
    indirect_levels: usize,
}

/// How many levels there may be between the root and the leaves.
pub(super) fn most_levels(directory: &Directory<'_>) -> usize {
    let large = directory.volume.superblock().features().incompat.contains(Incompat::LARGE_DIR);
    if large { 2 } else { 1 }
}

impl RootInfo {
    /// `None` for an index of a kind that came later than this program: the directory is then read as if it had
    /// none.
    fn validate(directory: &Directory<'_>, root: &Block) -> Result<Option<Self>> {
        let info = root.buffer.get(ROOT_INFO_AT..).and_then(|rest| RawRootInfo::ref_from_prefix(rest).ok());
        let Some((info, _)) = info else { return Err(root.corrupt(directory, "too short for an index")) };
        let is_known = info.reserved_zero.get() == 0
            && usize::from(info.info_length) == size_of::<RawRootInfo>()
            && info.unused_flags & 1 == 0;
        if !is_known {
            return Ok(None);
        }
        let (hash_version, indirect_levels) = (info.hash_version, usize::from(info.indirect_levels));
        let most_levels = most_levels(directory);
        if indirect_levels > most_levels {
            let detail = format!("index has {indirect_levels} inner levels of at most {most_levels}");
            return Err(root.corrupt(directory, detail));
        }
        Ok(Some(Self { hash_version, indirect_levels }))
    }

    /// The hash function; `None` when it is SipHash or unknown.
    fn hasher(&self, directory: &Directory<'_>) -> Option<NameHasher> {
        NameHasher::new(self.hash_version, directory.volume.superblock().hash_defaults())
    }
}

/// The hash function of an indexed directory; `None` when it is SipHash or unknown.
pub(super) fn read_hasher(directory: &Directory<'_>) -> Result<Option<NameHasher>> {
    let root = directory.read_block(FileBlock(0))?;
    let info = RootInfo::validate(directory, &root)?;
    Ok(info.and_then(|info| info.hasher(directory)))
}

/// A block of an index, as far as the shape of the tree needs it.
#[derive(Debug)]
pub(super) struct NodeShape {
    pub(super) at: FileBlock,
    pub(super) home: FsBlock,
    pub(super) entries_at: usize,
    pub(super) limit: usize,
    pub(super) children: Vec<FileBlock>,
}

impl NodeShape {
    fn of(directory: &Directory<'_>, node: &Node) -> Result<Self> {
        let children = (0..node.count).map(|slot| child(directory, node, slot)).collect::<Result<_>>()?;
        let Block { at, home, .. } = node.block;
        Ok(Self { at, home, entries_at: node.entries_at, limit: node.limit, children })
    }
}

/// The blocks of the index, level by level from the root on; `None` for an index of an unknown kind.
///
/// # Errors
/// Corruption; I/O failure.
pub(super) fn shape(directory: &Directory<'_>) -> Result<Option<Vec<Vec<NodeShape>>>> {
    let root = directory.read_block(FileBlock(0))?;
    let Some(info) = RootInfo::validate(directory, &root)? else { return Ok(None) };
    let root = Node::validate(directory, root)?;
    let mut levels = vec![vec![NodeShape::of(directory, &root)?]];
    let mut count = 1;
    for level in 0..info.indirect_levels {
        let mut below = Vec::new();
        for &at in levels[level].iter().flat_map(|node| &node.children) {
            count += 1;
            if count > directory.blocks {
                return Err(root.block.corrupt(directory, "index has more blocks than the directory"));
            }
            below.push(NodeShape::of(directory, &Node::read(directory, at)?)?);
        }
        levels.push(below);
    }
    Ok(Some(levels))
}

/// The leaves that may hold a name, first to last.
#[derive(Debug)]
pub(super) struct Leaves<'a> {
    directory: Directory<'a>,
    hash: u32,
    hasher: Option<NameHasher>,
    /// From the root to the lowest inner node, each with the slot that leads on.
    path: Vec<(Node, usize)>,
    /// Leaves that may still be looked at.
    budget: u64,
    started: bool,
}

impl<'a> Leaves<'a> {
    /// `None` where the index is of no use for this query: its kind or its hash function is not known.
    pub(super) fn find(directory: Directory<'a>, query: &Query<'_>) -> Result<Option<Self>> {
        let root = directory.read_block(FileBlock(0))?;
        let Some(info) = RootInfo::validate(&directory, &root)? else { return Ok(None) };
        let hasher = info.hasher(&directory);
        if hasher.is_none() && info.hash_version != VERSION_SIPHASH {
            return Ok(None);
        }
        let Some(hash) = query.hash(hasher.as_ref()) else { return Ok(None) };
        Self::descend(directory, root, info, hash).map(Some)
    }

    /// The leaves of a hash; `None` for an index of an unknown kind.
    pub(super) fn of_hash(directory: Directory<'a>, hash: u32) -> Result<Option<Self>> {
        let root = directory.read_block(FileBlock(0))?;
        let Some(info) = RootInfo::validate(&directory, &root)? else { return Ok(None) };
        Self::descend(directory, root, info, hash).map(Some)
    }

    fn descend(directory: Directory<'a>, root: Block, info: RootInfo, hash: u32) -> Result<Self> {
        let mut node = Node::validate(&directory, root)?;
        let mut path = Vec::with_capacity(1 + info.indirect_levels);
        for _ in 0..info.indirect_levels {
            let slot = node.slot_of(hash);
            let child = child(&directory, &node, slot)?;
            path.push((node, slot));
            node = Node::read(&directory, child)?;
        }
        let slot = node.slot_of(hash);
        path.push((node, slot));
        let hasher = info.hasher(&directory);
        Ok(Self { directory, hash, hasher, path, budget: directory.blocks, started: false })
    }

    /// The hash function; `None` when it is SipHash or unknown.
    pub(super) fn hasher(&self) -> Option<NameHasher> {
        self.hasher
    }

    /// The next leaf's place: the first one, or one that goes on with the same hash.
    pub(super) fn next_place(&mut self) -> Result<Option<FileBlock>> {
        if !self.started {
            self.started = true;
            return self.place();
        }
        let goes_on = self.bounds().1.is_some_and(|key| key & !1 == self.hash);
        if goes_on { self.step() } else { Ok(None) }
    }

    fn place(&mut self) -> Result<Option<FileBlock>> {
        let Some((node, slot)) = self.path.last() else { return Ok(None) };
        let Some(left) = self.budget.checked_sub(1) else {
            let detail = "index has more leaves for one hash than the directory has blocks";
            return Err(node.block.corrupt(&self.directory, detail));
        };
        self.budget = left;
        child(&self.directory, node, *slot).map(Some)
    }

    pub(super) fn next(&mut self) -> Result<Option<Block>> {
        self.next_place()?.map(|at| self.directory.read_block(at)).transpose()
    }

    /// From the root to the lowest inner node, each with the slot that leads to the leaf that was returned last.
    pub(super) fn path(&self) -> &[(Node, usize)] {
        &self.path
    }

    /// The key of the leaf that was returned last, and that of the leaf behind it, if there is one.
    pub(super) fn bounds(&self) -> (u32, Option<u32>) {
        let key = |distance: usize| self.path.iter().rev().find_map(|(node, slot)| node.key(slot + distance));
        let own = self.path.iter().rev().find(|(_, slot)| *slot > 0).and_then(|(node, slot)| node.key(*slot));
        (own.unwrap_or(0), key(1))
    }

    /// Steps to the leaf behind the one that was returned last, whatever its hashes are, and returns its place.
    pub(super) fn step(&mut self) -> Result<Option<FileBlock>> {
        let depth = self.path.len();
        let Some(level) = self.path.iter().rposition(|(node, slot)| slot + 1 < node.count) else {
            return Ok(None);
        };
        self.path[level].1 += 1;
        self.path.truncate(level + 1);
        while let Some((node, slot)) = self.path.last()
            && self.path.len() < depth
        {
            let next = Node::read(&self.directory, child(&self.directory, node, *slot)?)?;
            self.path.push((next, 0));
        }
        self.place()
    }
}

fn child(directory: &Directory<'_>, node: &Node, slot: usize) -> Result<FileBlock> {
    node.child(slot).ok_or_else(|| node.block.corrupt(directory, format!("index entry {slot} is missing")))
}
