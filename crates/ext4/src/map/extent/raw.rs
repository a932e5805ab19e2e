//! An extent tree's bytes: headers and entries, and the plain edits of one node.
//!
//! Source: kernel documentation, section "Extent Tree". Each node is a header of 12 bytes and entries of 12; with
//! `metadata_csum` a node in a block of its own ends in a checksum. The edits keep the count; the caller ensures that
//! entries rise and fit.

use std::mem::size_of;
use std::ops::Range;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::numbers::FsBlock;

pub(super) const STRUCTURE: &str = "extent tree node";
pub(super) const MAGIC: u16 = 0xF30A;
/// Deeper than any tree can be: five levels of the smallest node hold 2^32 blocks.
pub(super) const MAX_DEPTH: u16 = 5;
/// Longest extent that was written, in blocks. A length above this means an unwritten one, which is this much shorter.
const MAX_WRITTEN_LEN: u16 = 1 << 15;
const MAX_UNWRITTEN_LEN: u16 = MAX_WRITTEN_LEN - 1;

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) eh_magic: U16,
    pub(super) eh_entries: U16,
    pub(super) eh_max: U16,
    pub(super) eh_depth: U16,
    pub(super) eh_generation: U32,
}

/// An entry of an inner node.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawIndex {
    pub(super) ei_block: U32,
    pub(super) ei_leaf_lo: U32,
    pub(super) ei_leaf_hi: U16,
    pub(super) ei_unused: U16,
}

/// An entry of a leaf.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawExtent {
    ee_block: U32,
    ee_len: U16,
    ee_start_hi: U16,
    ee_start_lo: U32,
}

pub(super) const ENTRY_BYTES: usize = 12;
const _: () = assert!(size_of::<RawHeader>() == ENTRY_BYTES);
const _: () = assert!(size_of::<RawIndex>() == ENTRY_BYTES);
const _: () = assert!(size_of::<RawExtent>() == ENTRY_BYTES);

impl RawIndex {
    pub(super) fn new(first: u64, child: FsBlock) -> Self {
        Self {
            ei_block: U32::new(first as u32),
            ei_leaf_lo: U32::new(child.0 as u32),
            ei_leaf_hi: U16::new((child.0 >> 32) as u16),
            ei_unused: U16::new(0),
        }
    }

    pub(super) fn first(&self) -> u64 {
        u64::from(self.ei_block.get())
    }

    pub(super) fn child(&self) -> FsBlock {
        FsBlock(u64::from(self.ei_leaf_lo.get()) | u64::from(self.ei_leaf_hi.get()) << 32)
    }
}

impl RawExtent {
    fn new(extent: Extent) -> Self {
        let len = extent.len as u16;
        Self {
            ee_block: U32::new(extent.first as u32),
            ee_len: U16::new(if extent.written { len } else { len + MAX_WRITTEN_LEN }),
            ee_start_hi: U16::new((extent.start.0 >> 32) as u16),
            ee_start_lo: U32::new(extent.start.0 as u32),
        }
    }

    pub(super) fn get(&self) -> Extent {
        let len = self.ee_len.get();
        let written = len <= MAX_WRITTEN_LEN;
        Extent {
            first: self.first(),
            len: u64::from(if written { len } else { len - MAX_WRITTEN_LEN }),
            start: FsBlock(u64::from(self.ee_start_lo.get()) | u64::from(self.ee_start_hi.get()) << 32),
            written,
        }
    }

    pub(super) fn first(&self) -> u64 {
        u64::from(self.ee_block.get())
    }
}

/// A run of blocks as a leaf has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The first block of the file.
    pub(super) first: u64,
    /// Blocks.
    pub(super) len: u64,
    /// Where they lie.
    pub(super) start: FsBlock,
    pub(super) written: bool,
}

impl Extent {
    pub(super) fn end(&self) -> u64 {
        self.first + self.len
    }

    /// The most blocks that one entry holds.
    pub(super) fn max_len(written: bool) -> u64 {
        u64::from(if written { MAX_WRITTEN_LEN } else { MAX_UNWRITTEN_LEN })
    }

    /// The part that lies before `at`, which is after the first block.
    pub(super) fn before(self, at: u64) -> Self {
        Self { len: self.len.min(at - self.first), ..self }
    }

    /// The part from `at` on, which is not before the first block.
    pub(super) fn from(self, at: u64) -> Self {
        let cut = at - self.first;
        Self { first: at, len: self.len - cut, start: FsBlock(self.start.0 + cut), ..self }
    }

    /// Both as one, if `next` goes on where this ends, in the file and on the device, and one entry holds both.
    pub(super) fn joined(self, next: Self) -> Option<Self> {
        let joins = self.written == next.written
            && self.end() == next.first
            && self.start.0 + self.len == next.start.0
            && self.len + next.len <= Self::max_len(self.written);
        joins.then_some(Self { len: self.len + next.len, ..self })
    }
}

/// What kind of entries a node holds.
pub(super) trait Entry: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {}
impl Entry for RawIndex {}
impl Entry for RawExtent {}

/// How many entries fit a node of so many bytes.
pub(super) fn room(node_bytes: usize) -> usize {
    (node_bytes / ENTRY_BYTES).saturating_sub(1).min(usize::from(u16::MAX))
}

/// Makes an empty node of `bytes`.
pub(super) fn init(bytes: &mut [u8], depth: u16) {
    let max = room(bytes.len()) as u16;
    if let Ok((header, _)) = RawHeader::mut_from_prefix(bytes) {
        *header = RawHeader {
            eh_magic: U16::new(MAGIC),
            eh_entries: U16::new(0),
            eh_max: U16::new(max),
            eh_depth: U16::new(depth),
            eh_generation: U32::new(0),
        };
    }
}

/// How many entries a validated node has, and at most.
pub(super) fn counts(bytes: &[u8]) -> (usize, usize) {
    RawHeader::ref_from_prefix(bytes).map_or((0, 0), |(header, _)| {
        (usize::from(header.eh_entries.get()), usize::from(header.eh_max.get()))
    })
}

/// A validated node's distance from the leaves.
pub(super) fn depth(bytes: &[u8]) -> u16 {
    RawHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.eh_depth.get())
}

/// The entries of a validated node.
pub(super) fn entries<T: Entry>(bytes: &[u8]) -> &[T] {
    let (count, _) = counts(bytes);
    bytes
        .get(ENTRY_BYTES..)
        .and_then(|rest| <[T]>::ref_from_prefix_with_elems(rest, count).ok())
        .map_or(&[], |(entries, _)| entries)
}

/// The entries of a validated node, to be changed.
pub(super) fn entries_mut<T: Entry>(bytes: &mut [u8]) -> &mut [T] {
    let (count, _) = counts(bytes);
    bytes
        .get_mut(ENTRY_BYTES..)
        .and_then(|rest| <[T]>::mut_from_prefix_with_elems(rest, count).ok())
        .map_or(&mut [], |(entries, _)| entries)
}

/// Puts `new` in the place of the entries in `range`. There is room.
pub(super) fn splice<T: Entry>(bytes: &mut [u8], range: Range<usize>, new: &[T]) {
    let (count, max) = counts(bytes);
    let after = count - range.len() + new.len();
    assert!(range.end <= count && after <= max, "{count} of {max} entries, {range:?} become {}", new.len());
    let byte = |entry: usize| ENTRY_BYTES * (1 + entry);
    bytes.copy_within(byte(range.end)..byte(count), byte(range.start + new.len()));
    bytes[byte(range.start)..byte(range.start + new.len())].copy_from_slice(new.as_bytes());
    set_count(bytes, after);
}

/// The same for a leaf.
pub(super) fn splice_extents(bytes: &mut [u8], range: Range<usize>, new: &[Extent]) {
    match *new {
        [] => splice::<RawExtent>(bytes, range, &[]),
        [a] => splice(bytes, range, &[RawExtent::new(a)]),
        [a, b] => splice(bytes, range, &[a, b].map(RawExtent::new)),
        _ => splice(bytes, range, &new.iter().copied().map(RawExtent::new).collect::<Vec<_>>()),
    }
}

/// Takes the entries from `from` on out of a node, as bytes for [`fill`].
pub(super) fn take_from(bytes: &mut [u8], from: usize) -> Vec<u8> {
    let (count, _) = counts(bytes);
    let taken = bytes[ENTRY_BYTES * (1 + from)..ENTRY_BYTES * (1 + count)].to_vec();
    set_count(bytes, from);
    taken
}

/// Fills an empty node with entries that were taken out of another.
pub(super) fn fill(bytes: &mut [u8], taken: &[u8]) {
    bytes[ENTRY_BYTES..ENTRY_BYTES + taken.len()].copy_from_slice(taken);
    set_count(bytes, taken.len() / ENTRY_BYTES);
}

fn set_count(bytes: &mut [u8], count: usize) {
    if let Ok((header, _)) = RawHeader::mut_from_prefix(bytes) {
        header.eh_entries.set(count as u16);
    }
}

/// Moves an entry of a leaf to another place in the file.
pub(super) fn move_extent(entry: &mut RawExtent, first: u64) {
    entry.ee_block.set(first as u32);
}

/// The first file block that a node covers by its own entries.
pub(super) fn first_key(bytes: &[u8]) -> Option<u64> {
    // Both kinds of entry begin with it.
    entries::<RawIndex>(bytes).first().map(RawIndex::first)
}

/// Puts a node's checksum behind the room for its entries.
pub(crate) fn seal_extent_node(seed: u32, bytes: &mut [u8]) {
    let (_, max) = counts(bytes);
    let covered = ENTRY_BYTES * (1 + max);
    if covered + 4 <= bytes.len() {
        let sum = crc32c(seed, &bytes[..covered]);
        bytes[covered..covered + 4].copy_from_slice(&sum.to_le_bytes());
    }
}
