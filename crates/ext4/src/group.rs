//! Block group descriptors: where a group keeps its bitmaps and inodes, and how much of it is free.
//!
//! Source: kernel documentation, section "Block Group Descriptors". 32 bytes, or 64 with the `64bit` feature,
//! in the blocks after the superblock or, with `meta_bg`, spread over the groups. Each carries a checksum:
//! CRC-16 with `uninit_bg`, half a CRC-32C with `metadata_csum`.

use std::mem::{offset_of, size_of};

use undercroft_vfs::Result;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{crc16, crc32c, crc32c_around};
use crate::error::corrupt_block;
use crate::features::RoCompat;
use crate::numbers::{FsBlock, Group};
use crate::volume::Volume;

const STRUCTURE: &str = "group descriptor";

/// The 32 bytes that every descriptor has.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDescriptor {
    bg_block_bitmap_lo: U32,
    bg_inode_bitmap_lo: U32,
    bg_inode_table_lo: U32,
    bg_free_blocks_count_lo: U16,
    bg_free_inodes_count_lo: U16,
    bg_used_dirs_count_lo: U16,
    bg_flags: U16,
    bg_exclude_bitmap_lo: U32,
    bg_block_bitmap_csum_lo: U16,
    bg_inode_bitmap_csum_lo: U16,
    bg_itable_unused_lo: U16,
    bg_checksum: U16,
}

/// The 32 bytes that follow with `64bit`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDescriptorHigh {
    bg_block_bitmap_hi: U32,
    bg_inode_bitmap_hi: U32,
    bg_inode_table_hi: U32,
    bg_free_blocks_count_hi: U16,
    bg_free_inodes_count_hi: U16,
    bg_used_dirs_count_hi: U16,
    bg_itable_unused_hi: U16,
    bg_exclude_bitmap_hi: U32,
    bg_block_bitmap_csum_hi: U16,
    bg_inode_bitmap_csum_hi: U16,
    bg_reserved: U32,
}

const CHECKSUM: std::ops::Range<usize> = offset_of!(RawDescriptor, bg_checksum)..size_of::<RawDescriptor>();
const _: () = assert!(CHECKSUM.start == 0x1E && size_of::<RawDescriptor>() == 32);
const _: () = assert!(size_of::<RawDescriptorHigh>() == 32);

bitflags::bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct GroupFlags: u16 {
        /// No inode of the group was ever used, and its bitmap was never written.
        const INODE_UNINIT = 0x1;
        /// The block bitmap was never written.
        const BLOCK_UNINIT = 0x2;
        /// The inode table has been zeroed.
        const INODE_ZEROED = 0x4;
        const _ = !0;
    }
}

/// A group descriptor that has been judged: the inode table lies within the filesystem.
#[derive(Clone, Debug)]
pub(crate) struct GroupDescriptor {
    pub(crate) inode_table: FsBlock,
    pub(crate) free_clusters: u32,
    pub(crate) free_inodes: u32,
    /// Inodes at the table's end that were never used: their bytes mean nothing.
    pub(crate) unused_inodes: u32,
}

impl GroupDescriptor {
    /// Reads the descriptor of `group`, which must be less than the number of groups.
    pub(crate) fn read(volume: &Volume, group: Group) -> Result<Self> {
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let (block, byte) = geometry.descriptor_location(group);
        let buffer = volume.read_block(block)?;
        let bytes = &buffer[byte..byte + usize::from(geometry.descriptor_bytes())];
        let wrong = |detail: String| corrupt_block(STRUCTURE, block, format!("group {group}: {detail}"));

        let Ok((raw, rest)) = RawDescriptor::read_from_prefix(bytes) else {
            return Err(wrong("too short".into()));
        };
        let high = RawDescriptorHigh::read_from_prefix(rest).ok().map(|(high, _)| high);
        let checked =
            superblock.features().ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM);
        if checked {
            let (stored, computed) = (raw.bg_checksum.get(), descriptor_checksum(volume, group, bytes));
            if stored != computed {
                return Err(wrong(format!("checksum is {stored:#06x}, its content gives {computed:#06x}")));
            }
        }

        let wide32 =
            |lo: U32, hi: Option<U32>| u64::from(lo.get()) | hi.map_or(0, |hi| u64::from(hi.get()) << 32);
        let wide16 =
            |lo: U16, hi: Option<U16>| u32::from(lo.get()) | hi.map_or(0, |hi| u32::from(hi.get()) << 16);
        let inode_table = FsBlock(wide32(raw.bg_inode_table_lo, high.as_ref().map(|h| h.bg_inode_table_hi)));
        if !geometry.contains(inode_table, u64::from(geometry.inode_table_blocks())) {
            return Err(wrong(format!("inode table at block {inode_table} lies outside the filesystem")));
        }
        let unused = wide16(raw.bg_itable_unused_lo, high.as_ref().map(|h| h.bg_itable_unused_hi));
        Ok(Self {
            inode_table,
            free_clusters: wide16(
                raw.bg_free_blocks_count_lo,
                high.as_ref().map(|h| h.bg_free_blocks_count_hi),
            ),
            free_inodes: wide16(
                raw.bg_free_inodes_count_lo,
                high.as_ref().map(|h| h.bg_free_inodes_count_hi),
            ),
            // Without checksums nobody keeps this field.
            unused_inodes: if checked { unused.min(geometry.inodes_per_group()) } else { 0 },
        })
    }
}

fn descriptor_checksum(volume: &Volume, group: Group, bytes: &[u8]) -> u16 {
    let superblock = volume.superblock();
    let number = group.0.to_le_bytes();
    if superblock.has_metadata_checksums() {
        let seed = crc32c(superblock.checksum_seed(), &number);
        return crc32c_around(seed, bytes, CHECKSUM) as u16;
    }
    let crc = crc16(crc16(!0, superblock.uuid().as_bytes()), &number);
    // The CRC-16 leaves its own two bytes out instead of taking them as zeroes.
    crc16(crc16(crc, &bytes[..CHECKSUM.start]), &bytes[CHECKSUM.end..])
}
