//! XFS, on Linux's own on-disk format: version 5, read, written, checked and made; version 4, read and checked.
//!
//! Four layers: raw bytes (`RawX`, zerocopy structs) and checked types (`X`) in `format`, structures (`btree`, `ag`,
//! `map`, `dir`, `attr`), inodes, and a thin adapter to the vfs contract (`fs`). A structure is validated once, where
//! its bytes become a checked type: magic, checksum, UUID, block number and owner of the blocks that describe
//! themselves, and every number against the geometry.
//!
//! A filesystem that is opened for reading takes no locks but the metadata cache's, and those of in-memory inodes, which are
//! only ever shared then.
//!
//! One that takes changes has a `writer::Writer`: an operation starts a `transaction::Handle`, under which it
//! changes blocks of the cache; the engine of `undercroft_journal` gathers them, and each of its transactions is one
//! checkpoint of XFS's log (`log::write`). What each operation does in one handle is there whole after a crash, or not at
//! all. `alloc` has the allocation groups, `live` the in-memory inodes.
//!
//! Every loop is bounded by a count that was checked against the geometry, every walk by a depth.
//!
//! Sources of each format fact are named in the module that uses it.

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
mod grow;
mod identity;
mod inode;
mod live;
mod log;
mod map;
mod mkfs;
mod open;
mod options;
mod statfs;
mod superblocks;
mod symlink;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transaction;
mod unfinished;
mod volume;
mod writer;

pub use check::{CheckOptions, CheckReport, check, check_with_log};
pub use describe::{ExtentDescription, ForkDescription, InodeDescription};
pub use format::{Features, Geometry, Incompat, LogIncompat, QuotaFlags, RoCompat, Superblock};
pub use fs::{AgUsage, FreeExtents, InodeChunk, InodeTree, Xfs};
pub use grow::Grown;
pub use identity::{LABEL_MAX_BYTES, NewUuid, check_label, set_uuid};
pub use log::{LogPosition, Recovery};
pub use mkfs::{Groups, MkfsOptions, NewFilesystem, Stripe, mkfs, plan_mkfs};
pub use open::OpenOptions;
pub use options::WriteOptions;
pub use undercroft_diskfs::mkfs::{MkfsError, Present, what_is_on};
pub use undercroft_diskfs::{Finding, WriteStats};
