//! One block of a tree, or the root within an inode: where its records, keys and pointers lie, and what is validated
//! when it is read.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use undercroft_cache::Buffer;
use undercroft_vfs::Result;

use super::{Btree, Kind};
use crate::error::Verdict;
use crate::format::block_header::{self, HeaderKind};
use crate::format::dinode::ROOT_HEADER_BYTES;
use crate::format::{AgBlock, FsBlock, Geometry};
use crate::transaction::Block;
use crate::volume::Validated;

pub(super) const fn header_kind<K: Kind>() -> HeaderKind {
    if K::LONG { HeaderKind::LongBtree } else { HeaderKind::ShortBtree }
}

pub(super) const fn header_bytes<K: Kind>(has_crc: bool) -> usize {
    match (K::LONG, has_crc) {
        (false, false) => 16,
        (false, true) => 56,
        (true, false) => 24,
        (true, true) => 72,
    }
}

pub(super) const fn pointer_bytes<K: Kind>() -> usize {
    if K::LONG { 8 } else { 4 }
}

/// How many records a leaf holds, and how many keys with pointers another block does.
pub(super) fn capacities<K: Kind>(geometry: &Geometry) -> (usize, usize) {
    let room = geometry.block_bytes() as usize - header_bytes::<K>(geometry.has_crc());
    (room / K::RECORD_BYTES, room / (K::KEY_BYTES + pointer_bytes::<K>()))
}

#[derive(Clone, Debug)]
enum Bytes {
    /// A version of a block.
    Block(Block, Buffer),
    Fork(Arc<[u8]>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Block(_, version) => version,
            Self::Fork(bytes) => bytes,
        }
    }
}

/// A block of a tree that has been validated by itself; the cursor validates it against its parent and siblings.
#[derive(Debug)]
pub(super) struct Node<K> {
    bytes: Bytes,
    /// Where it lies; `None` in an inode.
    pub(super) block: Option<FsBlock>,
    pub(super) level: u8,
    /// Records of a leaf, keys and pointers of another block.
    pub(super) count: usize,
    /// The first record or key.
    first: usize,
    /// The first pointer.
    pointers: usize,
    kind: PhantomData<K>,
}

impl<K> Clone for Node<K> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), ..*self }
    }
}

impl<K: Kind> Node<K> {
    /// Reads a block that is to have this level.
    pub(super) fn read(tree: &Btree<'_, K>, block: FsBlock, level: u8) -> Result<Self> {
        let cached = tree.volume.block(block)?;
        let bytes = cached.buffer();
        let wrong = |detail| tree.corrupt(Some(block), detail);
        let geometry = tree.volume.geometry();
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let magic = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if magic != K::MAGIC[usize::from(geometry.has_crc())] {
            return Err(wrong(format!("magic number is {magic:#010x}")));
        }
        if half(4) != u16::from(level) {
            return Err(wrong(format!("is of level {}, in the place of one of level {level}", half(4))));
        }
        let count = usize::from(half(6));
        let (records, keys) = capacities::<K>(geometry);
        let room = if level == 0 { records } else { keys };
        let may_be_empty = level == 0 && tree.levels == 1;
        if count > room || count == 0 && !may_be_empty {
            return Err(wrong(format!("holds {count} records; it has room for {room}")));
        }
        let owner = block_header::owner(&bytes, header_kind::<K>());
        if geometry.has_crc() && owner != tree.owner() {
            return Err(wrong(format!("belongs to {owner}, and was found in {}", tree.owner())));
        }
        let first = header_bytes::<K>(geometry.has_crc());
        let node = Self {
            bytes: Bytes::Block(cached, bytes.clone()),
            block: Some(block),
            level,
            count,
            first,
            pointers: first + keys * K::KEY_BYTES,
            kind: PhantomData,
        };
        let kind = if K::LONG { Validated::LongBtree } else { Validated::ShortBtree };
        bytes
            .verify_once(kind as u32, || {
                tree.volume.validate_header(&bytes, header_kind::<K>(), block, tree.owner())?;
                node.validate_order(geometry)
            })
            .map_err(|detail| wrong(detail.into_owned()))?;
        Ok(node)
    }

    /// The root within an inode, whose level the tree has from it.
    pub(super) fn from_fork(tree: &Btree<'_, K>, fork: Arc<[u8]>) -> Result<Self> {
        let count = usize::from(u16::from_be_bytes([fork[2], fork[3]]));
        let room = (fork.len() - ROOT_HEADER_BYTES) / (K::KEY_BYTES + pointer_bytes::<K>());
        if count == 0 || count > room {
            return Err(
                tree.corrupt(None, format!("has {count} pointers in its root; it has room for {room}"))
            );
        }
        let node = Self {
            bytes: Bytes::Fork(fork),
            block: None,
            level: tree.levels - 1,
            count,
            first: ROOT_HEADER_BYTES,
            pointers: ROOT_HEADER_BYTES + room * K::KEY_BYTES,
            kind: PhantomData,
        };
        node.validate_order(tree.volume.geometry())
            .map_err(|detail| tree.corrupt(None, detail.into_owned()))?;
        Ok(node)
    }

    fn validate_order(&self, geometry: &Geometry) -> Verdict<()> {
        for n in 1..self.count {
            let in_order = if self.level == 0 {
                K::in_order(&self.record(n - 1, geometry), &self.record(n, geometry))
            } else {
                self.stored_key(n - 1) < self.stored_key(n)
            };
            if !in_order {
                return Err(format!("the records {} and {n} are out of order", n - 1).into());
            }
        }
        Ok(())
    }

    /// A record of a leaf, not validated by itself.
    pub(super) fn record(&self, n: usize, geometry: &Geometry) -> K::Record {
        let at = self.first + n * K::RECORD_BYTES;
        K::unpack(&self.bytes[at..at + K::RECORD_BYTES], geometry)
    }

    /// A key of a block that is no leaf.
    fn stored_key(&self, n: usize) -> K::Key {
        let at = self.first + n * K::KEY_BYTES;
        K::unpack_key(&self.bytes[at..at + K::KEY_BYTES])
    }

    /// The highest key below a pointer, of a kind of tree whose records overlap.
    pub(super) fn high_key(&self, n: usize) -> K::Key {
        let at = self.first + n * K::KEY_BYTES;
        K::unpack_key(&self.bytes[at + K::KEY_BYTES / 2..at + K::KEY_BYTES])
    }

    /// What the record or the pointer of this number is ordered by.
    pub(super) fn key(&self, n: usize, geometry: &Geometry) -> K::Key {
        if self.level == 0 { K::key(&self.record(n, geometry)) } else { self.stored_key(n) }
    }

    /// How many keys are below `key`, or with `inclusive` not above it.
    pub(super) fn partition(&self, key: &K::Key, inclusive: bool, geometry: &Geometry) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            let here = self.key(middle, geometry);
            if here < *key || inclusive && here == *key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The child of a pointer; `None` if it lies outside the filesystem.
    pub(super) fn child(&self, n: usize, tree: &Btree<'_, K>) -> Option<FsBlock> {
        let at = self.pointers + n * pointer_bytes::<K>();
        self.resolve(at, tree)
    }

    /// The block before this one on its level, and the block after it; `None` at the ends.
    pub(super) fn siblings(&self, tree: &Btree<'_, K>) -> [Option<FsBlock>; 2] {
        if self.block.is_none() {
            return [None, None];
        }
        [8, 8 + pointer_bytes::<K>()].map(|at| {
            let null = self.bytes[at..at + pointer_bytes::<K>()].iter().all(|&byte| byte == 0xff);
            // A pointer to outside is no end of the level; the comparison with the true sibling fails.
            if null { None } else { Some(self.resolve(at, tree).unwrap_or(FsBlock::NULL)) }
        })
    }

    /// The block that this one is the newest version of, to be changed; `None` in an inode. The block stays in the cache
    /// as long as the answer, and its version is validated: so the checksum that a change makes wrong is not looked at.
    pub(super) fn hold(&self) -> Option<(FsBlock, Block)> {
        let (Some(at), Bytes::Block(block, version)) = (self.block, &self.bytes) else { return None };
        debug_assert!(
            block.is_current() && block.buffer().same_as(version),
            "a block of a tree changed while the tree was being changed"
        );
        Some((at, block.clone()))
    }

    fn resolve(&self, at: usize, tree: &Btree<'_, K>) -> Option<FsBlock> {
        let geometry = tree.volume.geometry();
        let number =
            |len: usize| self.bytes[at..at + len].iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        if K::LONG {
            let block = FsBlock(number(8));
            geometry.split(block).map(|_| block)
        } else {
            geometry.join(tree.ag, AgBlock(number(4) as u32))
        }
    }
}
