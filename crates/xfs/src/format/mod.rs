//! The on-disk format: numbers, checksums, and the structures that need nothing but their own bytes and the geometry.
//!
//! | module | what |
//! | --- | --- |
//! | [`address`] | block numbers, told apart by type |
//! | [`geometry`] | sizes and counts, and the conversions between addresses |
//! | [`features`] | feature and version bits, and which of them can be read |
//! | [`superblock`] | the superblock |
//! | [`crc`] | the checksum of every version 5 structure |
//! | [`block_header`] | the headers of self-describing blocks |
//! | [`buffer_kind`] | what the log calls a buffer |
//! | [`dinode`] | the inode core |
//! | [`time`] | timestamps |
//! | [`extent`] | extent records |
//!
//! Source: "XFS Algorithms & Data Structures"; images made by mkfs.xfs, looked at with xfs_db.

pub(crate) mod address;
pub(crate) mod block_header;
pub(crate) mod buffer_kind;
pub(crate) mod crc;
pub(crate) mod dinode;
pub(crate) mod extent;
pub(crate) mod features;
pub(crate) mod geometry;
pub(crate) mod superblock;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod time;

pub(crate) use address::{AgBlock, AgIno, AgNumber, Daddr, FileBlock, FsBlock};
pub use features::{Features, Incompat, LogIncompat, QuotaFlags, RoCompat};
pub use geometry::Geometry;
pub use superblock::Superblock;
