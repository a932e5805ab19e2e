//! Fast commits as they lie in the log: tag, length, value.
//!
//! Little-endian, unlike the rest of the log. An element never crosses a block; [`Tag::PAD`] fills up. Each
//! commit ends with [`Tag::TAIL`], which fills the rest of its block; the first one begins with
//! [`Tag::HEAD`]. Source: kernel documentation, section "Fast commits", and observation.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u16);

impl Tag {
    pub(crate) const ADD_RANGE: Self = Self(1);
    pub(crate) const DEL_RANGE: Self = Self(2);
    pub(crate) const CREAT: Self = Self(3);
    pub(crate) const LINK: Self = Self(4);
    pub(crate) const UNLINK: Self = Self(5);
    pub(crate) const INODE: Self = Self(6);
    pub(crate) const PAD: Self = Self(7);
    pub(crate) const TAIL: Self = Self(8);
    pub(crate) const HEAD: Self = Self(9);
}

/// First bytes of an element.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawElement {
    pub(crate) fc_tag: U16,
    /// Bytes of the value that follows.
    pub(crate) fc_len: U16,
}

const _: () = assert!(size_of::<RawElement>() == 4);

/// Value of [`Tag::HEAD`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawHead {
    pub(crate) fc_features: U32,
    /// The transaction that was running, and so is not in the log.
    pub(crate) fc_tid: U32,
}

const _: () = assert!(size_of::<RawHead>() == 8);

/// First bytes of the value of [`Tag::TAIL`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawTail {
    pub(crate) fc_tid: U32,
    /// CRC-32C from 0 over all elements since the last tail, this one's transaction number included.
    pub(crate) fc_crc: U32,
}

const _: () = assert!(size_of::<RawTail>() == 8);

/// Value of [`Tag::ADD_RANGE`]: an inode and a leaf of the extent tree.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawAddRange {
    pub(crate) fc_ino: U32,
    pub(crate) ee_block: U32,
    /// More than 32768: unwritten, by the excess.
    pub(crate) ee_len: U16,
    pub(crate) ee_start_hi: U16,
    pub(crate) ee_start_lo: U32,
}

const _: () = assert!(size_of::<RawAddRange>() == 16);

/// Value of [`Tag::DEL_RANGE`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawDelRange {
    pub(crate) fc_ino: U32,
    pub(crate) fc_lblk: U32,
    pub(crate) fc_len: U32,
}

const _: () = assert!(size_of::<RawDelRange>() == 12);

/// First bytes of the value of [`Tag::CREAT`], [`Tag::LINK`] and [`Tag::UNLINK`]; the name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawName {
    pub(crate) fc_parent_ino: U32,
    pub(crate) fc_ino: U32,
}

const _: () = assert!(size_of::<RawName>() == 8);
