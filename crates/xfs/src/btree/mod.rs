//! The B+trees, once for all: free space by place and by size, inode chunks, free inode chunks, reverse mappings,
//! reference counts, and the extents of a fork.
//!
//! [`Kind`] says what a tree's records and keys are and in which form its blocks are; [`Btree`] is a tree with a root,
//! [`Cursor`] a place in one. Each step validates the blocks that it reads: header and checksum once for as long as a
//! block is cached; each time the level, the owner and the order of the records; that the first key is the one that the
//! parent has, and the last one is below the parent's next; and, on a step from block to block, that the two are each
//! other's siblings. Since keys rise along a walk, it visits each block at most once, however the pointers of a hostile
//! tree are arranged.
//!
//! The depth is bounded by the geometry: that of a tree whose blocks have as few records as they may.
//!
//! | module | what |
//! | --- | --- |
//! | [`kinds`] | the trees of an allocation group and of a fork: records, keys, magic numbers |
//! | [`node`] | one block of a tree, or the root within an inode |
//! | [`cursor`] | looking up, and stepping |
//! | [`change`] | records inserted, deleted and updated |

mod change;
mod cursor;
mod kinds;
mod node;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;

use undercroft_vfs::{Error, Ino, Result};

use crate::error::{Verdict, corrupt_block, corrupt_inode};
use crate::format::{AgBlock, AgNumber, FsBlock, Geometry};
use crate::volume::Volume;
#[cfg(test)]
pub(crate) use change::testing;
pub(crate) use change::{ChangeKind, TreeSpace, credits};
pub(crate) use cursor::Cursor;
pub(crate) use kinds::{
    Bmbt, BySize, BySpace, Finobt, FreeExtent, Inobt, InodeChunk, Owner as MappedTo, RefcountBt,
    RefcountRecord, RmapBt, RmapKey, RmapRecord,
};
use node::Node;

/// What a kind of tree consists of.
pub(crate) trait Kind {
    /// A record, in plain numbers.
    type Record: Copy + std::fmt::Debug;
    /// What records are ordered by.
    type Key: Copy + Ord + std::fmt::Debug;

    /// The structure's name in reports.
    const NAME: &'static str;
    /// Magic numbers in versions 4 and 5.
    const MAGIC: [u32; 2];
    /// Whether pointers have 64 bits.
    const LONG: bool;
    /// Size of a record.
    const RECORD_BYTES: usize;
    /// Size of what a pointer has for a key.
    const KEY_BYTES: usize;

    /// A record of [`RECORD_BYTES`](Self::RECORD_BYTES) bytes, not yet validated.
    fn unpack(bytes: &[u8], geometry: &Geometry) -> Self::Record;
    /// Validates a record; `ag` is the group of a tree in short form.
    fn validate(record: &Self::Record, geometry: &Geometry, ag: AgNumber) -> Verdict<()>;
    /// What a record is ordered by.
    fn key(record: &Self::Record) -> Self::Key;
    /// The key of a pointer; of one that has two, the lower.
    fn unpack_key(bytes: &[u8]) -> Self::Key;
    /// Whether a record may follow another.
    fn in_order(before: &Self::Record, after: &Self::Record) -> bool {
        Self::key(before) < Self::key(after)
    }
}

/// Where a tree's root is.
#[derive(Clone, Debug)]
enum Root {
    Block(FsBlock),
    /// In an inode's fork: the fork's bytes.
    Fork(Arc<[u8]>),
}

/// A tree.
#[derive(Debug)]
pub(crate) struct Btree<'a, K> {
    volume: &'a Volume,
    root: Root,
    levels: u8,
    /// The group of a tree in short form; the first one otherwise, and of no meaning.
    ag: AgNumber,
    /// The inode of a tree in long form.
    ino: Option<Ino>,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> Btree<'a, K> {
    /// A tree of an allocation group, as the group's header has it.
    ///
    /// # Errors
    /// Corruption: the root lies outside the group, or the tree is deeper than it can be.
    pub(crate) fn in_ag(volume: &'a Volume, ag: AgNumber, root: AgBlock, levels: u32) -> Result<Self> {
        debug_assert!(!K::LONG);
        let geometry = volume.geometry();
        let Some(root) = geometry.join(ag, root) else {
            let detail = format!("has its root at block {root} of group {ag}, which does not exist");
            return Err(crate::error::corrupt(K::NAME, detail));
        };
        let most = max_levels::<K>(geometry, u64::from(geometry.ag_len(ag)));
        if levels == 0 || levels > u32::from(most) {
            let detail = format!("has {levels} levels; a group has room for {most}");
            return Err(corrupt_block(K::NAME, root, detail));
        }
        Ok(Self { volume, root: Root::Block(root), levels: levels as u8, ag, ino: None, kind: PhantomData })
    }

    /// A tree whose root is a fork of an inode.
    ///
    /// # Errors
    /// Corruption of the root.
    pub(crate) fn in_fork(volume: &'a Volume, ino: Ino, fork: &Arc<[u8]>) -> Result<Self> {
        debug_assert!(K::LONG);
        let wrong = |detail: String| Err(corrupt_inode(K::NAME, ino, None, detail));
        let Some([high, low, _, _]) = fork.first_chunk() else {
            return wrong(format!("has its root in a fork of {} bytes", fork.len()));
        };
        let level = u16::from_be_bytes([*high, *low]);
        let most = max_levels::<K>(volume.geometry(), volume.geometry().blocks());
        if level == 0 || level >= u16::from(most) {
            return wrong(format!("has {level} levels below its root; the filesystem has room for {most}"));
        }
        Ok(Self {
            volume,
            root: Root::Fork(Arc::clone(fork)),
            levels: level as u8 + 1,
            ag: AgNumber(0),
            ino: Some(ino),
            kind: PhantomData,
        })
    }

    /// The root of a tree in a fork, as it is after the changes so far: as many bytes as the fork has.
    pub(crate) fn fork_root(&self) -> Option<&Arc<[u8]>> {
        match &self.root {
            Root::Block(_) => None,
            Root::Fork(bytes) => Some(bytes),
        }
    }

    /// A cursor that stands nowhere.
    pub(crate) fn cursor(&self) -> Cursor<'_, 'a, K> {
        Cursor::new(self)
    }

    /// Calls `visit` for each record, in order, until it fails.
    ///
    /// # Errors
    /// Corruption; I/O failure; what `visit` answers.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(K::Record) -> Result<()>) -> Result<()> {
        let mut cursor = Cursor::reading_ahead(self);
        let mut record = cursor.first()?;
        while let Some(found) = record {
            visit(found)?;
            record = cursor.increment()?;
        }
        Ok(())
    }

    /// Calls `visit` for each block outside of an inode, parents first, with its level (leaves have 0).
    ///
    /// # Errors
    /// Corruption; I/O failure; what `visit` answers.
    pub(crate) fn for_each_block(&self, mut visit: impl FnMut(FsBlock, u8) -> Result<()>) -> Result<()> {
        let mut cursor = self.cursor();
        cursor.visit_blocks(&mut visit)
    }

    fn read_root(&self) -> Result<Node<K>> {
        let level = self.levels - 1;
        match &self.root {
            Root::Block(block) => Node::read(self, *block, level),
            Root::Fork(fork) => Node::from_fork(self, Arc::clone(fork)),
        }
    }

    /// The root and the levels of a tree in a group.
    pub(crate) fn place_in_ag(&self) -> (FsBlock, u32) {
        let root = match &self.root {
            Root::Block(block) => *block,
            Root::Fork(_) => FsBlock::NULL,
        };
        (root, u32::from(self.levels))
    }

    /// What a block of the tree says that it belongs to.
    fn owner(&self) -> u64 {
        self.ino.map_or(u64::from(self.ag.0), |ino| ino.0)
    }

    /// A corruption of the tree, in a block of it or in its root in an inode.
    fn corrupt(&self, block: Option<FsBlock>, detail: String) -> Error {
        match (self.ino, block) {
            (Some(ino), block) => corrupt_inode(K::NAME, ino, block, detail),
            (None, Some(block)) => corrupt_block(K::NAME, block, detail),
            (None, None) => crate::error::corrupt(K::NAME, detail),
        }
    }
}

impl Btree<'_, RmapBt> {
    /// The first mapping with `block` in it that `accept` takes.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn find_overlapping(
        &self,
        block: AgBlock,
        accept: impl Fn(&RmapRecord) -> bool,
    ) -> Result<Option<RmapRecord>> {
        self.cursor().find_overlapping(block, accept)
    }
}

/// How many levels a tree can have whose blocks are at least half full, but for the root, and of which there are at most
/// `blocks`; two more for trees that were made sparser.
fn max_levels<K: Kind>(geometry: &Geometry, blocks: u64) -> u8 {
    let (_, keys) = node::capacities::<K>(geometry);
    let fewest = (keys as u64 / 2).max(2);
    let mut levels = 3;
    let mut room = 1_u64;
    while room < blocks {
        room = room.saturating_mul(fewest);
        levels += 1;
    }
    levels
}

/// How many levels a tree of so many records has whose blocks are half full.
pub(crate) fn usual_levels<K: Kind>(geometry: &Geometry, records: u64) -> u8 {
    half_full::<K>(geometry, records).1
}

/// How many blocks a tree of so many records has whose blocks are half full.
pub(crate) fn most_blocks<K: Kind>(geometry: &Geometry, records: u64) -> u64 {
    half_full::<K>(geometry, records).0
}

fn half_full<K: Kind>(geometry: &Geometry, records: u64) -> (u64, u8) {
    let (in_leaf, in_node) = node::capacities::<K>(geometry);
    let mut on_level = records.div_ceil((in_leaf as u64 / 2).max(2)).max(1);
    let (mut blocks, mut levels) = (on_level, 1);
    while on_level > 1 {
        on_level = on_level.div_ceil((in_node as u64 / 2).max(2));
        blocks += on_level;
        levels += 1;
    }
    (blocks, levels)
}
