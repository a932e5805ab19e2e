//! Records and keys of each kind of tree, as bytes.

use zerocopy::IntoBytes;

use super::super::kinds::{
    Bmbt, BySize, BySpace, Finobt, FreeExtent, Inobt, InodeChunk, Owner, REFCOUNT_COW, RMAP_ATTR_FORK,
    RMAP_BMBT, RMAP_UNWRITTEN, RefcountBt, RefcountRecord, RmapBt, RmapKey, RmapRecord,
};
use super::ChangeKind;
use crate::format::extent::{Extent, RawExtent};
use crate::format::{AgBlock, Geometry};

fn put_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put_long_word(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

macro_rules! free_space_tree {
    ($kind:ident) => {
        impl ChangeKind for $kind {
            fn pack(record: &FreeExtent, bytes: &mut [u8], _: &Geometry) {
                put_word(bytes, 0, record.start.0);
                put_word(bytes, 4, record.count);
            }

            /// Both trees have the whole record for a key.
            fn pack_key(record: &FreeExtent, bytes: &mut [u8]) {
                put_word(bytes, 0, record.start.0);
                put_word(bytes, 4, record.count);
            }
        }
    };
}

free_space_tree!(BySpace);
free_space_tree!(BySize);

macro_rules! inode_tree {
    ($kind:ident) => {
        impl ChangeKind for $kind {
            fn pack(record: &InodeChunk, bytes: &mut [u8], geometry: &Geometry) {
                put_word(bytes, 0, record.start.0);
                if geometry.has_sparse_inodes() {
                    bytes[4..6].copy_from_slice(&record.holes.to_be_bytes());
                    bytes[6] = record.count;
                    bytes[7] = record.free_count as u8;
                } else {
                    put_word(bytes, 4, record.free_count);
                }
                put_long_word(bytes, 8, record.free);
            }

            fn pack_key(record: &InodeChunk, bytes: &mut [u8]) {
                put_word(bytes, 0, record.start.0);
            }
        }
    };
}

inode_tree!(Inobt);
inode_tree!(Finobt);

fn rmap_flags(record: &RmapRecord) -> u64 {
    let attr_fork = if record.attr_fork { RMAP_ATTR_FORK } else { 0 };
    attr_fork | if record.bmbt { RMAP_BMBT } else { 0 }
}

/// The last block of a reverse mapping as a key. Blocks of the filesystem itself and of a fork's tree have no offset
/// that rises with the block.
fn high_rmap_key(record: &RmapRecord) -> RmapKey {
    let more = record.count.saturating_sub(1);
    let start = AgBlock(record.start.0.saturating_add(more));
    let rises = matches!(record.owner, Owner::Inode(_)) && !record.bmbt;
    let offset = record.offset.0 + if rises { u64::from(more) } else { 0 };
    RmapKey { start, owner: record.owner.raw(), offset: offset | rmap_flags(record) }
}

impl ChangeKind for RmapBt {
    const OVERLAPS: bool = true;

    fn pack(record: &RmapRecord, bytes: &mut [u8], _: &Geometry) {
        put_word(bytes, 0, record.start.0);
        put_word(bytes, 4, record.count);
        put_long_word(bytes, 8, record.owner.raw());
        let unwritten = if record.unwritten { RMAP_UNWRITTEN } else { 0 };
        put_long_word(bytes, 16, record.offset.0 | rmap_flags(record) | unwritten);
    }

    fn pack_key(record: &RmapRecord, bytes: &mut [u8]) {
        let low = RmapKey {
            start: record.start,
            owner: record.owner.raw(),
            offset: record.offset.0 | rmap_flags(record),
        };
        for (at, key) in [(0, low), (20, high_rmap_key(record))] {
            put_word(bytes, at, key.start.0);
            put_long_word(bytes, at + 4, key.owner);
            put_long_word(bytes, at + 12, key.offset);
        }
    }
}

fn refcount_start(record: &RefcountRecord) -> u32 {
    record.start.0 | if record.cow { REFCOUNT_COW } else { 0 }
}

impl ChangeKind for RefcountBt {
    fn pack(record: &RefcountRecord, bytes: &mut [u8], _: &Geometry) {
        put_word(bytes, 0, refcount_start(record));
        put_word(bytes, 4, record.count);
        put_word(bytes, 8, record.users);
    }

    fn pack_key(record: &RefcountRecord, bytes: &mut [u8]) {
        put_word(bytes, 0, refcount_start(record));
    }
}

impl ChangeKind for Bmbt {
    fn pack(record: &Extent, bytes: &mut [u8], _: &Geometry) {
        bytes.copy_from_slice(RawExtent::pack(record).as_bytes());
    }

    fn pack_key(record: &Extent, bytes: &mut [u8]) {
        put_long_word(bytes, 0, record.file.0);
    }
}
