//! An inode's bytes.
//!
//! Source: kernel documentation, section "Index Nodes".

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The 128 bytes that every inode has.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    pub(crate) i_mode: U16,
    pub(crate) i_uid_lo: U16,
    pub(crate) i_size_lo: U32,
    pub(crate) i_atime: U32,
    pub(crate) i_ctime: U32,
    pub(crate) i_mtime: U32,
    /// Time of deletion; on the orphan list, the next orphan's number.
    pub(crate) i_dtime: U32,
    pub(crate) i_gid_lo: U16,
    pub(crate) i_links_count: U16,
    pub(crate) i_blocks_lo: U32,
    pub(crate) i_flags: U32,
    pub(crate) i_version_lo: U32,
    /// Block pointers, the root of an extent tree, a short symlink's target, or inline data.
    pub(crate) i_block: [u8; 60],
    pub(crate) i_generation: U32,
    pub(crate) i_file_acl_lo: U32,
    pub(crate) i_size_high: U32,
    pub(crate) i_obso_faddr: U32,
    pub(crate) i_blocks_high: U16,
    pub(crate) i_file_acl_high: U16,
    pub(crate) i_uid_high: U16,
    pub(crate) i_gid_high: U16,
    pub(crate) i_checksum_lo: U16,
    pub(crate) i_reserved: U16,
}

/// What may follow in inodes of 256 bytes and more; `i_extra_isize` says how much of it is there.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawInodeExtra {
    /// Bytes in use after the first 128, this field included.
    pub(crate) i_extra_isize: U16,
    pub(crate) i_checksum_hi: U16,
    pub(crate) i_ctime_extra: U32,
    pub(crate) i_mtime_extra: U32,
    pub(crate) i_atime_extra: U32,
    pub(crate) i_crtime: U32,
    pub(crate) i_crtime_extra: U32,
    pub(crate) i_version_hi: U32,
    pub(crate) i_projid: U32,
}

impl RawInodeExtra {
    /// The fields that are there, of the first `extra_bytes` of `rest`; the others are zero.
    pub(super) fn of(rest: &[u8], extra_bytes: u16) -> Self {
        let mut extra = Self::new_zeroed();
        let present = usize::from(extra_bytes).min(size_of::<Self>());
        extra.as_mut_bytes()[..present].copy_from_slice(&rest[..present]);
        extra
    }

    /// Puts the fields that are there back; the others are not written.
    pub(super) fn put(&self, rest: &mut [u8], extra_bytes: u16) {
        let present = usize::from(extra_bytes).min(size_of::<Self>());
        rest[..present].copy_from_slice(&self.as_bytes()[..present]);
    }
}

pub(crate) const BASE_BYTES: usize = size_of::<RawInode>();
pub(crate) const GENERATION: std::ops::Range<usize> = 0x64..0x68;
pub(crate) const CHECKSUM_LO: std::ops::Range<usize> = 0x7C..0x7E;
pub(crate) const CHECKSUM_HI: std::ops::Range<usize> = 0x82..0x84;

const _: () = assert!(BASE_BYTES == 128);
const _: () = assert!(offset_of!(RawInode, i_block) == 0x28);
const _: () = assert!(offset_of!(RawInode, i_generation) == GENERATION.start);
const _: () = assert!(offset_of!(RawInode, i_checksum_lo) == CHECKSUM_LO.start);
const _: () = assert!(offset_of!(RawInodeExtra, i_checksum_hi) + BASE_BYTES == CHECKSUM_HI.start);
const _: () = assert!(size_of::<RawInodeExtra>() == 32);
