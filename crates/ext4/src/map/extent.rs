//! Extent trees: runs of blocks in a B+tree whose root lies in the inode.
//!
//! Source: kernel documentation, section "Extent Tree". Each node is a header of 12 bytes and entries of 12;
//! with `metadata_csum` a node in a block of its own ends in a checksum. The root holds 4 entries.
//!
//! A look-up walks from the root to one leaf, at most [`MAX_DEPTH`] blocks. Every node must have exactly the
//! depth its parent promises, so a loop in a hostile tree ends there; entries must rise and stay within the
//! range that the parent gives, so the first answer found is the only one.

use std::mem::size_of;

use undercroft_cache::Buffer;
use undercroft_vfs::{Error, Result};
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FILE_BLOCKS, Run, RunState};
use crate::checksum::crc32c;
use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::{Judged, Volume};

const STRUCTURE: &str = "extent tree node";
const MAGIC: u16 = 0xF30A;
/// Deeper than any tree can be: five levels of the smallest node hold 2^32 blocks.
const MAX_DEPTH: u16 = 5;
/// A length above this means an unwritten extent, which is this much shorter.
const MAX_WRITTEN_LEN: u16 = 1 << 15;

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    eh_magic: U16,
    eh_entries: U16,
    eh_max: U16,
    eh_depth: U16,
    eh_generation: U32,
}

/// An entry of an inner node.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIndex {
    ei_block: U32,
    ei_leaf_lo: U32,
    ei_leaf_hi: U16,
    ei_unused: U16,
}

/// An entry of a leaf.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawExtent {
    ee_block: U32,
    ee_len: U16,
    ee_start_hi: U16,
    ee_start_lo: U32,
}

const ENTRY_BYTES: usize = 12;
const _: () = assert!(size_of::<RawHeader>() == ENTRY_BYTES);
const _: () = assert!(size_of::<RawIndex>() == ENTRY_BYTES);
const _: () = assert!(size_of::<RawExtent>() == ENTRY_BYTES);

impl RawIndex {
    fn leaf(&self) -> FsBlock {
        FsBlock(u64::from(self.ei_leaf_lo.get()) | u64::from(self.ei_leaf_hi.get()) << 32)
    }
}

impl RawExtent {
    fn start(&self) -> FsBlock {
        FsBlock(u64::from(self.ee_start_lo.get()) | u64::from(self.ee_start_hi.get()) << 32)
    }

    fn is_unwritten(&self) -> bool {
        self.ee_len.get() > MAX_WRITTEN_LEN
    }

    fn len(&self) -> u64 {
        let len = self.ee_len.get();
        u64::from(if self.is_unwritten() { len - MAX_WRITTEN_LEN } else { len })
    }

    fn first(&self) -> u64 {
        u64::from(self.ee_block.get())
    }

    fn end(&self) -> u64 {
        self.first() + self.len()
    }
}

pub(super) fn lookup(volume: &Volume, inode: &Inode, block: FileBlock) -> Result<Run> {
    let wanted = u64::from(block.0);
    let root = Node { inode, home: None, bytes: &inode.i_block };
    let mut depth = root.check_header(None)?;
    root.check_entries(volume, depth)?;
    // The file blocks that the node at hand answers for.
    let (mut low, mut high) = (0, FILE_BLOCKS);
    let mut buffer: Buffer;
    let mut node = root;
    while depth > 0 {
        let indexes: &[RawIndex] = node.entries();
        let after = indexes.partition_point(|index| u64::from(index.ei_block.get()) <= wanted);
        if let Some(next) = indexes.get(after) {
            high = high.min(u64::from(next.ei_block.get()));
        }
        let Some(index) = after.checked_sub(1).map(|i| &indexes[i]) else {
            return Ok(Run::hole(block, high));
        };
        low = low.max(u64::from(index.ei_block.get()));
        let home = index.leaf();
        depth -= 1;
        buffer = volume.read_block(home)?;
        node = Node { inode, home: Some(home), bytes: &buffer };
        node.check_header(Some(depth))?;
        buffer.verify_once(Judged::ExtentNode as u32, || {
            node.check_checksum(volume)?;
            node.check_entries(volume, depth)
        })?;
    }
    let extents: &[RawExtent] = node.entries();
    if let (Some(first), Some(last)) = (extents.first(), extents.last())
        && (first.first() < low || last.end() > high)
    {
        let detail = format!("holds file blocks outside its range of {low} to {high}");
        return Err(node.corrupt(detail));
    }
    let after = extents.partition_point(|extent| extent.first() <= wanted);
    if let Some(extent) = after.checked_sub(1).map(|i| &extents[i])
        && wanted < extent.end()
    {
        let into = wanted - extent.first();
        let physical = FsBlock(extent.start().0 + into);
        let state =
            if extent.is_unwritten() { RunState::Unwritten(physical) } else { RunState::Mapped(physical) };
        return Ok(Run { start: block, len: extent.len() - into, state });
    }
    let hole_end = extents.get(after).map_or(high, RawExtent::first);
    Ok(Run::hole(block, hole_end))
}

/// A node's bytes and where they lie; `home` is `None` for the root.
#[derive(Clone, Copy)]
struct Node<'a> {
    inode: &'a Inode,
    home: Option<FsBlock>,
    bytes: &'a [u8],
}

impl Node<'_> {
    /// Judges the header and answers with the node's depth.
    fn check_header(&self, expected_depth: Option<u16>) -> Result<u16> {
        let Ok((header, _)) = RawHeader::ref_from_prefix(self.bytes) else {
            return Err(self.corrupt("no room for a header"));
        };
        let (magic, depth) = (header.eh_magic.get(), header.eh_depth.get());
        if magic != MAGIC {
            return Err(self.corrupt(format!("magic number is {magic:#06x}, not {MAGIC:#06x}")));
        }
        if expected_depth.is_some_and(|expected| expected != depth) || depth > MAX_DEPTH {
            let expected = expected_depth.map_or_else(|| format!("at most {MAX_DEPTH}"), |d| d.to_string());
            return Err(self.corrupt(format!("depth is {depth}, expected {expected}")));
        }
        let room = self.bytes.len() / ENTRY_BYTES - 1;
        let (entries, max) = (usize::from(header.eh_entries.get()), usize::from(header.eh_max.get()));
        if entries > max || max > room {
            return Err(self.corrupt(format!("{entries} entries of at most {max}, with room for {room}")));
        }
        Ok(depth)
    }

    fn check_checksum(&self, volume: &Volume) -> Result<()> {
        if !volume.superblock().has_metadata_checksums() {
            return Ok(());
        }
        let max = RawHeader::ref_from_prefix(self.bytes).map_or(0, |(h, _)| usize::from(h.eh_max.get()));
        let covered = ENTRY_BYTES * (1 + max);
        let Some(stored) = self.bytes.get(covered..).and_then(|tail| tail.first_chunk::<4>()) else {
            return Err(self.corrupt("no room for a checksum"));
        };
        let stored = u32::from_le_bytes(*stored);
        let computed = crc32c(self.inode.checksum_seed(volume), &self.bytes[..covered]);
        if stored != computed {
            return Err(
                self.corrupt(format!("checksum is {stored:#010x}, its content gives {computed:#010x}"))
            );
        }
        Ok(())
    }

    /// Judges that entries rise, do not overlap, and point into the filesystem.
    fn check_entries(&self, volume: &Volume, depth: u16) -> Result<()> {
        let geometry = volume.superblock().geometry();
        let mut free_from = 0;
        if depth > 0 {
            for index in self.entries::<RawIndex>() {
                let first = u64::from(index.ei_block.get());
                if first < free_from {
                    return Err(self.corrupt(format!("index entries do not rise at file block {first}")));
                }
                free_from = first + 1;
                if !geometry.contains(index.leaf(), 1) {
                    return Err(
                        self.corrupt(format!("points to block {} outside the filesystem", index.leaf()))
                    );
                }
            }
            return Ok(());
        }
        for extent in self.entries::<RawExtent>() {
            let (first, len) = (extent.first(), extent.len());
            if len == 0 || first < free_from || extent.end() > FILE_BLOCKS {
                return Err(
                    self.corrupt(format!("extent of {len} blocks at file block {first} overlaps or wraps"))
                );
            }
            free_from = extent.end();
            if !geometry.contains(extent.start(), len) {
                let detail = format!("maps {len} blocks from {} outside the filesystem", extent.start());
                return Err(self.corrupt(detail));
            }
        }
        Ok(())
    }

    /// The entries that the (judged) header counts.
    fn entries<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> &[T] {
        let Ok((header, rest)) = RawHeader::ref_from_prefix(self.bytes) else { return &[] };
        let count = usize::from(header.eh_entries.get());
        <[T]>::ref_from_prefix_with_elems(rest, count).map_or(&[], |(entries, _)| entries)
    }

    fn corrupt(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        corrupt_inode(STRUCTURE, self.inode.number, self.home, detail)
    }
}
