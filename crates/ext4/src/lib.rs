//! ext2, ext3 and ext4, on Linux's own on-disk format.
//!
//! Four rings: raw bytes (`raw` modules, zerocopy structs), checked types ([`Superblock`], `GroupDescriptor`,
//! `Inode`), operations (`map`, `dir`, `xattr`, `journal`), and a thin adapter to the vfs contract (`fs`). A
//! structure is judged once, where its bytes become a checked type; nothing past that doubts it.
//!
//! A filesystem that is opened for reading takes no locks but the metadata cache's. One that takes changes has them in
//! `live` (inodes in use), `dir`, `alloc` and `transaction`, each told of where it is; their order is that of
//! `undercroft_sync::order`. How changes reach the disk is told in `transaction`.
//!
//! Every loop is bounded by a count that was checked against the device, every walk by a depth.
//!
//! Sources of each format fact are named in the module that uses it.
//!
//! ```no_run
//! use std::sync::Arc;
//! use undercroft_block::{FileDevice, FileOptions};
//! use undercroft_ext4::{Ext4, OpenOptions};
//! use undercroft_vfs::{Credentials, Vfs, VfsOptions};
//!
//! let device = Arc::new(FileDevice::open("disk.img", FileOptions::read_only())?);
//! let vfs = Vfs::new(Ext4::open_read_only(device, OpenOptions::default())?, VfsOptions::default());
//! let file = vfs.open(&Credentials::root(), b"/etc/os-release")?;
//! let mut bytes = vec![0; 4096];
//! let len = file.read_at(0, &mut bytes)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alloc;
mod append;
mod check;
mod checksum;
mod dir;
mod error;
mod features;
mod fs;
mod group;
mod grow;
mod inline;
mod inode;
mod journal;
mod live;
mod map;
mod mkfs;
mod mmp;
mod numbers;
mod open;
mod orphan;
mod redo;
mod statfs;
mod superblock;
mod symlink;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transaction;
mod volume;
mod writer;
mod xattr;

pub use check::{CheckOptions, CheckReport, Finding, check};
pub use features::{Compat, Features, Incompat, RoCompat};
pub use fs::{Ext4, WriteStats};
pub use grow::Grown;
pub use journal::RecoveryReport;
pub use mkfs::{Family, MkfsError, MkfsOptions, NewFilesystem, Present, mkfs, what_is_on};
pub use mmp::MmpWait;
pub use open::OpenOptions;
pub use superblock::{Geometry, State, Superblock};
pub use writer::{OrphanForm, WriteOptions};
