//! ext2, ext3 and ext4, on Linux's own on-disk format.
//!
//! Raw bytes (`raw` modules, zerocopy structs) become checked types ([`Superblock`], `GroupDescriptor`, `Inode`): a
//! structure is validated once, there, and later code relies on it.
//!
//! A filesystem that is opened for reading takes no locks but the metadata cache's. One that is opened for writing also
//! has locks in `live` (in-memory inodes), `dir`, `alloc` and `transaction`, each described in its module; their order is
//! that of `undercroft_sync::order`. How changes reach the disk is described in `transaction`.
//!
//! What changes a filesystem is laid in floors, and imports go down. `volume` reads blocks; what is kept in memory of
//! free space, orphans and locks lies above it, without operations that need a transaction; `writer` puts these together,
//! and a `transaction::Handle` carries the writer. Operations take a handle: `map` and `xattr` on an inode's fields, `dir`
//! and `orphan` on the `inode::InodeState` of an in-memory inode. `live` is the whole in-memory inode, and `fs` the filesystem
//! behind the vfs contract.
//!
//! Every loop is bounded by a count that was checked against the device, every walk by a depth.
//!
//! Sources of each format fact are named in the module that uses it.
//!
//! ```
//! use std::sync::Arc;
//! use undercroft_block::MemoryDevice;
//! use undercroft_ext4::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};
//! use undercroft_vfs::{Credentials, Vfs, VfsOptions};
//!
//! // Any block device: a file, a disk image, a partition of one, an array.
//! let device = Arc::new(MemoryDevice::new(64 << 20));
//! mkfs(&*device, &MkfsOptions::new(Family::Ext4))?;
//!
//! let ext4 = Ext4::open(device.clone(), OpenOptions::default(), WriteOptions::default())?;
//! let vfs = Vfs::new(ext4, VfsOptions::default());
//! vfs.write(&Credentials::root(), "/note", "text")?;
//! vfs.close()?;
//!
//! let vfs = Vfs::new(Ext4::open_read_only(device, OpenOptions::default())?, VfsOptions::default());
//! assert_eq!(vfs.read(&Credentials::root(), "/note")?, b"text");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The README's program.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod alloc;
mod backup;
mod check;
mod checksum;
mod dir;
mod error;
mod fast_commit;
mod features;
mod fs;
mod group;
mod grow;
mod identity;
mod inline;
mod inode;
mod jbd2;

mod live;
mod map;
mod mkfs;
mod mmp;
mod numbers;
mod open;
mod options;
mod orphan;
mod shrink;

mod statfs;
mod superblock;
mod symlink;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transaction;
mod tune;
mod volume;
mod writer;
mod xattr;

pub use backup::BackupSuperblock;
pub use check::{CheckOptions, CheckReport, check};
pub use features::{Compat, FeatureChange, Features, Incompat, RoCompat};
pub use fs::Ext4;
pub use grow::Grown;
pub use identity::{LABEL_MAX_BYTES, check_label};
pub use jbd2::RecoveryReport;
pub use mkfs::{
    Amount, ConfError, Family, Mke2fsConf, MkfsOptions, NewFilesystem, c_number, mkfs, plan_mkfs,
};
pub use mmp::MmpWait;
pub use open::OpenOptions;
pub use options::{OrphanForm, WriteOptions};
pub use shrink::{Minimum, Shrunk, minimum, shrink};
pub use superblock::{Geometry, HashAlgorithm, MountDefault, OnError, State, Superblock};
pub use tune::{Reserved, Tuning, check_tuning, tune};
pub use undercroft_diskfs::mkfs::{MkfsError, Present, what_is_on};
pub use undercroft_diskfs::{Finding, WriteStats};
