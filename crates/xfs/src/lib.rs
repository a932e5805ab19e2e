//! XFS, on Linux's own on-disk format: version 5 in full and version 4, read-only.
//!
//! Four layers: raw bytes (`RawX`, zerocopy structs) and checked types (`X`) in `format`, structures (`btree`, `ag`,
//! `map`, `dir`, `attr`), inodes, and a thin adapter to the vfs contract (`fs`). A structure is validated once, where
//! its bytes become a checked type: magic, checksum, UUID, block number and owner of the blocks that describe
//! themselves, and every number against the geometry.
//!
//! A filesystem that is opened for reading takes no locks but the metadata cache's.
//!
//! Every loop is bounded by a count that was checked against the geometry, every walk by a depth.
//!
//! Sources of each format fact are named in the module that uses it.

#![expect(
    dead_code,
    reason = "writing will use the rest: free lists, reverse mappings, cursors that step back, counters of changes"
)]

mod ag;
mod alloc;
mod attr;
mod btree;
mod check;
mod da;
mod describe;
mod dir;
mod error;
mod format;
mod fs;
mod inode;
mod live;
mod log;
mod map;
mod mkfs;
mod open;
mod options;
mod statfs;
mod symlink;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transaction;
mod volume;
mod writer;

pub use check::{CheckOptions, CheckReport, check, check_with_log};
pub use describe::{ExtentDescription, ForkDescription, InodeDescription};
pub use format::{Features, Geometry, Incompat, LogIncompat, QuotaFlags, RoCompat, Superblock};
pub use fs::{AgUsage, FreeExtents, InodeChunk, InodeTree, WriteStats, Xfs};
pub use log::{LogPosition, Recovery};
pub use mkfs::{Groups, MkfsOptions, NewFilesystem, Stripe, mkfs, plan_mkfs};
pub use open::OpenOptions;
pub use options::WriteOptions;
pub use undercroft_diskfs::Finding;
pub use undercroft_diskfs::making::{MkfsError, Present, what_is_on};
