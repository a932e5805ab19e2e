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
use crate::superblock::Superblock;
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

/// A group descriptor that has been validated, as far as reading needs it: the inode table lies within the filesystem.
#[derive(Clone, Debug)]
pub(crate) struct GroupDescriptor {
    pub(crate) inode_table: FsBlock,
    pub(crate) free_clusters: u32,
    pub(crate) free_inodes: u32,
    /// Inodes at the table's end that were never used: their bytes mean nothing.
    pub(crate) unused_inodes: u32,
}

/// The rest of a descriptor: what allocation needs.
#[derive(Clone, Debug)]
pub(crate) struct GroupDetails {
    pub(crate) descriptor: GroupDescriptor,
    pub(crate) block_bitmap: FsBlock,
    pub(crate) inode_bitmap: FsBlock,
    pub(crate) used_directories: u32,
    pub(crate) flags: GroupFlags,
    /// Checksums of the bitmaps: 32 bits, of which a descriptor of 32 bytes keeps the lower half.
    pub(crate) block_bitmap_checksum: u32,
    pub(crate) inode_bitmap_checksum: u32,
}

/// Two halves of a number; the upper one only where the descriptor is long.
fn wide32(low: U32, high: Option<U32>) -> u64 {
    u64::from(low.get()) | high.map_or(0, |high| u64::from(high.get()) << 32)
}

fn wide16(low: U16, high: Option<U16>) -> u32 {
    u32::from(low.get()) | high.map_or(0, |high| u32::from(high.get()) << 16)
}

impl GroupDescriptor {
    /// The descriptor of `group`, which must be less than the number of groups, as its block has it. In a filesystem
    /// opened for writing the counts in memory are newer.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn read(volume: &Volume, group: Group) -> Result<Self> {
        Ok(GroupDetails::read_on_disk(volume, group)?.descriptor)
    }

    /// The same, whatever its checksum says: the journal, which has to be found, may have a newer one.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn read_before_recovery(volume: &Volume, group: Group) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let (block, byte) = geometry.descriptor_location(group);
        let buffer = volume.read_block(block)?;
        let bytes = &buffer[byte..byte + usize::from(geometry.descriptor_bytes())];
        Ok(GroupDetails::decode(volume.superblock(), group, block, bytes)?.descriptor)
    }
}

impl GroupDetails {
    /// The descriptor as it lies in its block.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn read_on_disk(volume: &Volume, group: Group) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let (block, byte) = geometry.descriptor_location(group);
        let buffer = volume.read_block(block)?;
        let bytes = &buffer[byte..byte + usize::from(geometry.descriptor_bytes())];
        Self::validate(volume.superblock(), group, block, bytes)
    }

    /// The descriptor that `bytes` of a block are.
    ///
    /// # Errors
    /// Corruption.
    pub(crate) fn validate(
        superblock: &Superblock,
        group: Group,
        block: FsBlock,
        bytes: &[u8],
    ) -> Result<Self> {
        if are_checked(superblock) {
            let (stored, computed) = (stored_checksum(bytes), descriptor_checksum(superblock, group, bytes));
            if stored != computed {
                let detail =
                    format!("group {group}: checksum is {stored:#06x}, its content gives {computed:#06x}");
                return Err(corrupt_block(STRUCTURE, block, detail));
            }
        }
        Self::decode(superblock, group, block, bytes)
    }

    /// The same, whatever its checksum says.
    fn decode(superblock: &Superblock, group: Group, block: FsBlock, bytes: &[u8]) -> Result<Self> {
        let geometry = superblock.geometry();
        let wrong = |detail: String| corrupt_block(STRUCTURE, block, format!("group {group}: {detail}"));

        let Ok((raw, rest)) = RawDescriptor::read_from_prefix(bytes) else {
            return Err(wrong("too short".into()));
        };
        let high = RawDescriptorHigh::read_from_prefix(rest).ok().map(|(high, _)| high);
        let high = high.as_ref();
        let checked = are_checked(superblock);
        let block_bitmap = FsBlock(wide32(raw.bg_block_bitmap_lo, high.map(|h| h.bg_block_bitmap_hi)));
        let inode_bitmap = FsBlock(wide32(raw.bg_inode_bitmap_lo, high.map(|h| h.bg_inode_bitmap_hi)));
        let inode_table = FsBlock(wide32(raw.bg_inode_table_lo, high.map(|h| h.bg_inode_table_hi)));
        if !geometry.contains(inode_table, u64::from(geometry.inode_table_blocks())) {
            return Err(wrong(format!("inode table at block {inode_table} lies outside the filesystem")));
        }
        let unused = wide16(raw.bg_itable_unused_lo, high.map(|h| h.bg_itable_unused_hi));
        let flags = GroupFlags::from_bits_retain(raw.bg_flags.get());
        let descriptor = GroupDescriptor {
            inode_table,
            free_clusters: wide16(raw.bg_free_blocks_count_lo, high.map(|h| h.bg_free_blocks_count_hi)),
            free_inodes: wide16(raw.bg_free_inodes_count_lo, high.map(|h| h.bg_free_inodes_count_hi)),
            // Without checksums this field is not kept, nor the flags.
            unused_inodes: if checked { unused.min(geometry.inodes_per_group()) } else { 0 },
        };
        Ok(Self {
            descriptor,
            block_bitmap,
            inode_bitmap,
            used_directories: wide16(raw.bg_used_dirs_count_lo, high.map(|h| h.bg_used_dirs_count_hi)),
            flags: if checked { flags } else { GroupFlags::empty() },
            block_bitmap_checksum: wide16(
                raw.bg_block_bitmap_csum_lo,
                high.map(|h| h.bg_block_bitmap_csum_hi),
            ),
            inode_bitmap_checksum: wide16(
                raw.bg_inode_bitmap_csum_lo,
                high.map(|h| h.bg_inode_bitmap_csum_hi),
            ),
        })
    }

    /// Checks what only writers rely on: that the bitmaps lie within the filesystem.
    ///
    /// # Errors
    /// Corruption.
    pub(crate) fn check_bitmaps(&self, volume: &Volume, group: Group) -> Result<()> {
        let geometry = volume.superblock().geometry();
        for (name, bitmap) in [("block", self.block_bitmap), ("inode", self.inode_bitmap)] {
            if !geometry.contains(bitmap, 1) {
                let detail =
                    format!("group {group}: {name} bitmap at block {bitmap} lies outside the filesystem");
                return Err(corrupt_block(STRUCTURE, geometry.descriptor_location(group).0, detail));
            }
        }
        Ok(())
    }

    /// Puts where things lie, which never changes afterwards, and then [the rest](Self::put) into the descriptor of a
    /// group of a new filesystem.
    pub(crate) fn put_new(&self, superblock: &Superblock, group: Group, bytes: &mut [u8]) {
        let Ok((raw, rest)) = RawDescriptor::mut_from_prefix(bytes) else { return };
        let places = [self.block_bitmap.0, self.inode_bitmap.0, self.descriptor.inode_table.0];
        let low = [&mut raw.bg_block_bitmap_lo, &mut raw.bg_inode_bitmap_lo, &mut raw.bg_inode_table_lo];
        for (field, place) in low.into_iter().zip(places) {
            field.set(place as u32);
        }
        if let Ok((raw, _)) = RawDescriptorHigh::mut_from_prefix(rest) {
            let high = [&mut raw.bg_block_bitmap_hi, &mut raw.bg_inode_bitmap_hi, &mut raw.bg_inode_table_hi];
            for (field, place) in high.into_iter().zip(places) {
                field.set((place >> 32) as u32);
            }
        }
        self.put(superblock, group, bytes);
    }

    /// Puts what changes into the descriptor of `group`, `bytes`, and makes its checksum right.
    pub(crate) fn put(&self, superblock: &Superblock, group: Group, bytes: &mut [u8]) {
        let checked = are_checked(superblock);
        let Ok((raw, rest)) = RawDescriptor::mut_from_prefix(bytes) else { return };
        raw.bg_free_blocks_count_lo.set(self.descriptor.free_clusters as u16);
        raw.bg_free_inodes_count_lo.set(self.descriptor.free_inodes as u16);
        raw.bg_used_dirs_count_lo.set(self.used_directories as u16);
        if checked {
            raw.bg_itable_unused_lo.set(self.descriptor.unused_inodes as u16);
            raw.bg_flags.set(self.flags.bits());
        }
        if superblock.has_metadata_checksums() {
            raw.bg_block_bitmap_csum_lo.set(self.block_bitmap_checksum as u16);
            raw.bg_inode_bitmap_csum_lo.set(self.inode_bitmap_checksum as u16);
        }
        if let Ok((high, _)) = RawDescriptorHigh::mut_from_prefix(rest) {
            high.bg_free_blocks_count_hi.set((self.descriptor.free_clusters >> 16) as u16);
            high.bg_free_inodes_count_hi.set((self.descriptor.free_inodes >> 16) as u16);
            high.bg_used_dirs_count_hi.set((self.used_directories >> 16) as u16);
            if checked {
                high.bg_itable_unused_hi.set((self.descriptor.unused_inodes >> 16) as u16);
            }
            if superblock.has_metadata_checksums() {
                high.bg_block_bitmap_csum_hi.set((self.block_bitmap_checksum >> 16) as u16);
                high.bg_inode_bitmap_csum_hi.set((self.inode_bitmap_checksum >> 16) as u16);
            }
        }
        if checked {
            let sum = descriptor_checksum(superblock, group, bytes);
            bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// The checksum of a bitmap that says what is free of `bits` things, as far as descriptors keep it.
pub(crate) fn bitmap_checksum(superblock: &Superblock, bitmap: &[u8], bits: u32) -> u32 {
    let sum = crc32c(superblock.checksum_seed(), &bitmap[..bits as usize / 8]);
    if superblock.geometry().descriptor_bytes() >= 64 { sum } else { sum & 0xffff }
}

fn stored_checksum(descriptor: &[u8]) -> u16 {
    u16::from_le_bytes([descriptor[CHECKSUM.start], descriptor[CHECKSUM.start + 1]])
}

/// Whether descriptors carry checksums, and with them the fields that came with these.
pub(crate) fn are_checked(superblock: &Superblock) -> bool {
    superblock.features().ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
}

/// The checksum that a descriptor, `bytes`, should have.
pub(crate) fn descriptor_checksum(superblock: &Superblock, group: Group, bytes: &[u8]) -> u16 {
    let number = group.0.to_le_bytes();
    if superblock.has_metadata_checksums() {
        let seed = crc32c(superblock.checksum_seed(), &number);
        return crc32c_around(seed, bytes, CHECKSUM) as u16;
    }
    let crc = crc16(crc16(!0, superblock.uuid().as_bytes()), &number);
    // The CRC-16 leaves its own two bytes out instead of taking them as zeroes.
    crc16(crc16(crc, &bytes[..CHECKSUM.start]), &bytes[CHECKSUM.end..])
}
