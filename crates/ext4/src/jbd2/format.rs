//! jbd2's structures as they lie in the log: bytes that have not been validated yet.
//!
//! Everything is big-endian, unlike the rest of ext4. Each block of the log that is not a copied block begins
//! with [`RawHeader`]. Source: kernel documentation, "ext4 Data Structures and Algorithms", section "Journal
//! (jbd2)", checked against logs that the kernel, mke2fs and debugfs wrote. Two facts are not on that page:
//! with checksum version 2 a tag is two bytes longer than its structure (10 or 14 bytes, the last two of
//! them unused), and the fast-commit fields of the superblock.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First four bytes of every block that jbd2 itself writes.
pub(super) const MAGIC: u32 = 0xC03B_3998;

/// Bytes of the log's first block that are the journal superblock.
pub(super) const SUPERBLOCK_BYTES: usize = 1024;

/// The smallest log that jbd2 accepts, apart from its fast-commit area.
pub(super) const MIN_LOG_BLOCKS: u32 = 1024;

/// Size of the fast-commit area when the superblock says 0.
pub(super) const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// What a block of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockType(pub(super) u32);

impl BlockType {
    pub(super) const DESCRIPTOR: Self = Self(1);
    pub(super) const COMMIT: Self = Self(2);
    pub(super) const SUPERBLOCK_V1: Self = Self(3);
    pub(super) const SUPERBLOCK_V2: Self = Self(4);
    pub(super) const REVOKE: Self = Self(5);
}

/// How a checksum was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChecksumType(pub(super) u8);

impl ChecksumType {
    /// No checksum was stored.
    pub(super) const NONE: Self = Self(0);
    /// The CRC-32 of Ethernet, most significant bit first.
    pub(super) const CRC32: Self = Self(1);
    /// CRC-32C.
    pub(super) const CRC32C: Self = Self(4);
}

/// First bytes of every block that jbd2 itself writes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) h_magic: U32,
    pub(super) h_blocktype: U32,
    pub(super) h_sequence: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 12);

/// The journal superblock; fields from `s_feature_compat` on mean something in version 2 only.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawSuperblock {
    pub(super) s_header: RawHeader,
    pub(super) s_blocksize: U32,
    pub(super) s_maxlen: U32,
    pub(super) s_first: U32,
    pub(super) s_sequence: U32,
    pub(super) s_start: U32,
    pub(super) s_errno: U32,
    pub(super) s_feature_compat: U32,
    pub(super) s_feature_incompat: U32,
    pub(super) s_feature_ro_compat: U32,
    pub(super) s_uuid: [u8; 16],
    pub(super) s_nr_users: U32,
    pub(super) s_dynsuper: U32,
    pub(super) s_max_transaction: U32,
    pub(super) s_max_trans_data: U32,
    pub(super) s_checksum_type: u8,
    pub(super) s_padding2: [u8; 3],
    pub(super) s_num_fc_blks: U32,
    pub(super) s_head: U32,
    pub(super) s_padding: [U32; 40],
    pub(super) s_checksum: U32,
    pub(super) s_users: [[u8; 16]; 48],
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_checksum_type) == 0x50);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, s_checksum) == SUPERBLOCK_CHECKSUM_OFFSET);

/// Where the journal superblock's checksum lies in it.
pub(super) const SUPERBLOCK_CHECKSUM_OFFSET: usize = 0xFC;

/// A tag without checksum or with one of version 2. `t_blocknr_high` is there with 64-bit numbers only.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawTag {
    pub(super) t_blocknr: U32,
    pub(super) t_checksum: U16,
    pub(super) t_flags: U16,
    pub(super) t_blocknr_high: U32,
}

const _: () = assert!(size_of::<RawTag>() == 12);

/// A tag with a checksum of version 3, whatever the width of block numbers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawTag3 {
    pub(super) t_blocknr: U32,
    pub(super) t_flags: U32,
    pub(super) t_blocknr_high: U32,
    pub(super) t_checksum: U32,
}

const _: () = assert!(size_of::<RawTag3>() == 16);

/// Bytes of the UUID that follows a tag without [`TAG_SAME_UUID`].
pub(super) const TAG_UUID_BYTES: usize = 16;

/// The copied block began with the magic, which the log replaces by zeroes.
pub(super) const TAG_ESCAPED: u32 = 1;
/// No UUID follows the tag.
pub(super) const TAG_SAME_UUID: u32 = 2;
/// The last tag of its descriptor block. (4 means "deleted" and is not used.)
pub(super) const TAG_LAST: u32 = 8;

/// Bytes at the end of descriptor and revoke blocks that hold a checksum of version 2 or 3.
pub(super) const TAIL_BYTES: usize = size_of::<U32>();

/// First bytes of a revoke block; block numbers of 4 or 8 bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRevokeHeader {
    pub(super) r_header: RawHeader,
    /// Bytes in use, this header included.
    pub(super) r_count: U32,
}

const _: () = assert!(size_of::<RawRevokeHeader>() == 16);

/// First bytes of a commit block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawCommit {
    pub(super) h_header: RawHeader,
    pub(super) h_chksum_type: u8,
    pub(super) h_chksum_size: u8,
    pub(super) h_padding: [u8; 2],
    /// Version 1: CRC-32 of the transaction's descriptors and copied blocks. Versions 2 and 3: CRC-32C of
    /// this block. The first word only.
    pub(super) h_chksum: [U32; 8],
    pub(super) h_commit_sec: U64,
    pub(super) h_commit_nsec: U32,
}

const _: () = assert!(size_of::<RawCommit>() == 60);
const _: () = assert!(std::mem::offset_of!(RawCommit, h_chksum) == COMMIT_CHECKSUM_OFFSET);
const _: () = assert!(std::mem::offset_of!(RawCommit, h_commit_sec) == 0x30);

/// Where a commit block's checksum lies in it.
pub(super) const COMMIT_CHECKSUM_OFFSET: usize = 0x10;

/// `size_of` the kernel's commit header, which its compiler pads to a multiple of 8.
pub(super) const COMMIT_HEADER_BYTES: usize = 64;

/// The number at the start of `bytes`, which the caller has checked to be long enough.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
