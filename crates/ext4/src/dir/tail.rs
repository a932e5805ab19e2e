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

/// Looks like an unused entry to who does not know it.
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

const _: () = assert!(size_of::<RawIndexTail>() == 8);

/// Judges the checksum of a block of entries.
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

/// Judges the checksum of an index block, whose entries begin at byte `entries_at` and are `count` of at most
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

fn compare(stored: u32, computed: u32) -> Verdict<()> {
    if stored == computed {
        return Ok(());
    }
    Err(format!("checksum is {stored:#010x}, its content gives {computed:#010x}").into())
}
