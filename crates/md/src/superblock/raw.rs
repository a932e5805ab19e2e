//! The bytes of a version 1 superblock: 256, then two for each entry of the table of roles; at most 4096.
//!
//! Lies at a multiple of 4 KiB: between 8 and 12 KiB before the device's end (1.0), at its beginning (1.1), or 4 KiB
//! after that (1.2). All numbers are little-endian, all lengths and places in sectors of 512 bytes.
//!
//! Source: the comments of `include/uapi/linux/raid/md_p.h`; what `mdadm --examine` says of real members.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Marks a superblock of any version.
pub(crate) const MAGIC: u32 = 0xa92b_4efc;
/// A superblock is never longer.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
/// Entries that fit into the table of roles.
pub(crate) const MAX_DEVICES: usize = (SUPERBLOCK_BYTES - size_of::<RawSuperblock>()) / 2;

/// Entries of the table of roles that are no role.
pub(crate) const ROLE_SPARE: u16 = 0xffff;
pub(crate) const ROLE_FAULTY: u16 = 0xfffe;
pub(crate) const ROLE_JOURNAL: u16 = 0xfffd;
/// The highest number that is a role.
pub(crate) const ROLE_MAX: u16 = 0xff00;

/// Field for field as on disk; the names are those of `md_p.h`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub(crate) magic: U32,
    pub(crate) major_version: U32,
    pub(crate) feature_map: U32,
    pub(crate) pad0: U32,
    pub(crate) set_uuid: [u8; 16],
    pub(crate) set_name: [u8; 32],
    /// 40 bits of seconds, 24 of microseconds.
    pub(crate) ctime: U64,
    pub(crate) level: I32,
    pub(crate) layout: U32,
    pub(crate) size: U64,
    pub(crate) chunksize: U32,
    pub(crate) raid_disks: U32,
    /// Sectors from the superblock to the bitmap, signed; of an array with a partial parity log, sectors to the log
    /// (16 bits, signed) and its size (16 bits).
    pub(crate) bitmap_offset: U32,
    pub(crate) new_level: U32,
    pub(crate) reshape_position: U64,
    pub(crate) delta_disks: U32,
    pub(crate) new_layout: U32,
    pub(crate) new_chunk: U32,
    pub(crate) new_offset: U32,
    pub(crate) data_offset: U64,
    pub(crate) data_size: U64,
    pub(crate) super_offset: U64,
    pub(crate) recovery_offset: U64,
    pub(crate) dev_number: U32,
    pub(crate) cnt_corrected_read: U32,
    pub(crate) device_uuid: [u8; 16],
    pub(crate) devflags: u8,
    pub(crate) bblog_shift: u8,
    pub(crate) bblog_size: U16,
    pub(crate) bblog_offset: I32,
    pub(crate) utime: U64,
    pub(crate) events: U64,
    pub(crate) resync_offset: U64,
    pub(crate) sb_csum: U32,
    pub(crate) max_dev: U32,
    pub(crate) pad3: [u8; 32],
}
const _: () = assert!(size_of::<RawSuperblock>() == 256);
const _: () = assert!(offset_of!(RawSuperblock, data_offset) == 128);
const _: () = assert!(offset_of!(RawSuperblock, utime) == 192);
const _: () = assert!(offset_of!(RawSuperblock, sb_csum) == 216);

bitflags::bitflags! {
    /// `feature_map`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Features: u32 {
        /// `bitmap_offset` says where the write-intent bitmap is.
        const BITMAP = 1;
        /// The member is right up to `recovery_offset` only.
        const RECOVERY_OFFSET = 2;
        /// The array is changing its shape.
        const RESHAPE = 4;
        /// The list of bad blocks is not empty.
        const BAD_BLOCKS = 8;
        /// The member stands in beside another of the same role, and will take its place.
        const REPLACEMENT = 16;
        /// The change of shape goes from the end to the beginning.
        const RESHAPE_BACKWARDS = 32;
        /// `new_offset` says where data goes in the new shape.
        const NEW_OFFSET = 64;
        /// The member lacks only what the write-intent bitmap says.
        const RECOVERY_BITMAP = 128;
        /// The array belongs to a cluster.
        const CLUSTERED = 256;
        /// One of the devices is a write journal.
        const JOURNAL = 512;
        /// There is a partial parity log.
        const PPL = 1024;
        /// There is a partial parity log with room for several.
        const MULTIPLE_PPLS = 2048;
        /// `layout` says how a RAID0 with members of several sizes is laid out.
        const RAID0_LAYOUT = 4096;

        const _ = !0;
    }

    /// `devflags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct DeviceFlags: u8 {
        /// Read only when no other member can be.
        const WRITE_MOSTLY = 1;
        /// Fails rather than retry.
        const FAIL_FAST = 2;

        const _ = !0;
    }
}

/// The sum over a superblock and its table of roles, which `bytes` ends with. The field that holds it counts as zero.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let at = offset_of!(RawSuperblock, sb_csum);
    let mut sum: u64 = 0;
    for (index, word) in bytes.chunks(4).enumerate() {
        if index * 4 == at {
            continue;
        }
        // The last one is half a word where the table has an odd number of entries.
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        sum += u64::from(u32::from_le_bytes(padded));
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
