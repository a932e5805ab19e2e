//! Checksums of directory blocks, at their ends.
//!
//! Source: kernel documentation, sections "Linear (Classic) Directories" and "Hash Tree Directories". With
//! `metadata_csum` a block of entries ends in an unused entry of 12 bytes that holds its checksum; an index
//! block has it after the room for its entries, of which those in use are covered. Both are seeded with the
//! directory's number and generation.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::error::Verdict;

/// Looks like an unused entry to a reader without support for it.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLeafTail {
    det_reserved_zero1: U32,
    det_rec_len: U16,
    det_reserved_zero2: u8,
    det_reserved_ft: u8,
    det_checksum: U32,
}

pub(super) const LEAF_TAIL_BYTES: usize = size_of::<RawLeafTail>();
const LEAF_TAIL_KIND: u8 = 0xde;
const _: () = assert!(LEAF_TAIL_BYTES == 12);

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIndexTail {
    dt_reserved: U32,
    dt_checksum: U32,
}

pub(super) const INDEX_TAIL_BYTES: usize = size_of::<RawIndexTail>();
const _: () = assert!(INDEX_TAIL_BYTES == 8);

/// Where the limit and the count lie, and after them the entries: in the root behind `.`, `..` and its header.
const ROOT_ENTRIES_AT: usize = 0x20;
const NODE_ENTRIES_AT: usize = 8;

/// Validates the checksum of a block of entries.
pub(super) fn check_leaf(seed: u32, bytes: &[u8]) -> Verdict<()> {
    let Ok((entries, tail)) = RawLeafTail::ref_from_suffix(bytes) else {
        return Err("too short".into());
    };
    let is_tail = tail.det_reserved_zero1.get() == 0
        && usize::from(tail.det_rec_len.get()) == LEAF_TAIL_BYTES
        && tail.det_reserved_zero2 == 0
        && tail.det_reserved_ft == LEAF_TAIL_KIND;
    if !is_tail {
        return Err("no checksum at its end".into());
    }
    compare(tail.det_checksum.get(), crc32c(seed, entries))
}

/// Validates the checksum of an index block, whose entries begin at byte `entries_at` and are `count` of at most
/// `limit`, 8 bytes each.
pub(super) fn check_index(
    seed: u32,
    bytes: &[u8],
    entries_at: usize,
    count: usize,
    limit: usize,
) -> Verdict<()> {
    let covered = bytes.get(..entries_at + count * 8);
    let tail = bytes.get(entries_at + limit * 8..).and_then(|rest| RawIndexTail::ref_from_prefix(rest).ok());
    let (Some(covered), Some((tail, _))) = (covered, tail) else {
        return Err(format!("{count} index entries of {limit} leave no room for a checksum").into());
    };
    let computed = crc32c(crc32c(crc32c(seed, covered), tail.dt_reserved.as_bytes()), &[0; 4]);
    compare(tail.dt_checksum.get(), computed)
}

/// Puts the checksum of a block of entries into its end.
pub(crate) fn seal_leaf(seed: u32, bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(LEAF_TAIL_BYTES) else { return };
    let sum = crc32c(seed, &bytes[..end]);
    let tail = RawLeafTail {
        det_reserved_zero1: U32::ZERO,
        det_rec_len: U16::new(LEAF_TAIL_BYTES as u16),
        det_reserved_zero2: 0,
        det_reserved_ft: LEAF_TAIL_KIND,
        det_checksum: U32::new(sum),
    };
    bytes[end..].copy_from_slice(tail.as_bytes());
}

/// Puts the checksum of an index block, the root or another, behind the room for its entries.
pub(crate) fn seal_index(seed: u32, bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    // What is not the root begins with one unused entry over the whole block.
    let entries_at = if word(bytes, 4) == 12 { ROOT_ENTRIES_AT } else { NODE_ENTRIES_AT };
    let (limit, count) = (word(bytes, entries_at), word(bytes, entries_at + 2));
    let tail_at = entries_at + limit * 8;
    if count > limit || tail_at + size_of::<RawIndexTail>() > bytes.len() {
        return;
    }
    let covered = crc32c(seed, &bytes[..entries_at + count * 8]);
    let sum = crc32c(crc32c(covered, &bytes[tail_at..tail_at + 4]), &[0; 4]);
    bytes[tail_at + 4..tail_at + 8].copy_from_slice(&sum.to_le_bytes());
}

fn compare(stored: u32, computed: u32) -> Verdict<()> {
    if stored == computed {
        return Ok(());
    }
    Err(format!("checksum is {stored:#010x}, its content gives {computed:#010x}").into())
}
