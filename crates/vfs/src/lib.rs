//! The filesystem contract, and everything that is the same for every filesystem above it.
//!
//! A filesystem implements [`FileSystem`] and [`Inode`]; [`Vfs`] puts the inode cache, the name cache, permissions,
//! path walking and the shared data path above it. Users are the FUSE server, which calls by inode, and programs with
//! the library inside, which call by path.
//!
//! An operation on an open file or in a cached directory takes no global lock and looks into no global table. This
//! crate does not depend on any format, on FUSE, or on the program.
//!
//! ```
//! use std::io::Write;
//! use undercroft_vfs::{Credentials, Vfs};
//!
//! /// Counts the program's starts in a filesystem of any kind.
//! fn count_start(vfs: &Vfs) -> std::io::Result<u64> {
//!     let user = Credentials::root();
//!     vfs.create_dir_all(&user, "/var/lib/program")?;
//!     let starts = match vfs.read(&user, "/var/lib/program/starts") {
//!         Ok(bytes) => String::from_utf8_lossy(&bytes).trim().parse().unwrap_or(0),
//!         Err(undercroft_vfs::Error::NotFound) => 0,
//!         Err(error) => return Err(error.into()),
//!     };
//!     let mut file = vfs.create_file(&user, "/var/lib/program/starts")?.into_cursor();
//!     writeln!(file, "{}", starts + 1)?;
//!     vfs.sync()?;
//!     Ok(starts + 1)
//! }
//! ```

mod access;
mod acl;
mod attr;
mod attributes;
mod by_path;
mod cached_inode;
mod change;
pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contract;
mod credentials;
mod cursor;
mod data;
mod errno;
mod error;
mod file;
mod hash;
mod hashed_name;
mod inode_cache;
mod inode_making;
#[cfg(test)]
mod memory_fs;
#[cfg(all(test, shuttle))]
mod model_tests;
mod name_cache;
mod name_table;
mod namespace;
mod node;
mod owned_name;
mod path;
mod permission;
mod place;
mod place_word;
mod vfs;
mod walk;

pub use access::Access;
pub use attr::{Attr, DeviceNumber, FileType, Ino, InodeFlags, Ownership, Timestamp};
pub use by_path::{ReadDir, ReadDirEntry};
pub use change::{
    AttrChange, Durable, ExtentSizeHints, FallocateMode, NewInode, NewKind, NewObject, NewTime, RenameFlags,
    XattrMode,
};
pub use contract::{
    DirEntry, DirOffset, Extent, FileSystem, Found, Inode, Limits, Mapping, StatFs, WriteKind,
};
pub use credentials::Credentials;
pub use cursor::FileCursor;
pub use data::DataRanges;
pub use error::{Corruption, Error, Result};
pub use file::File;
pub use hashed_name::HashedName;
pub use inode_making::Announce;
pub use name_table::{InsertError, NameTable};
pub use node::Node;
pub use path::{Follow, PATH_MAX_BYTES};
pub use permission::{NewFile, SET_GROUP_ID, SET_USER_ID, check_access, check_delete, new_file_owner};
pub use vfs::{Vfs, VfsOptions};
pub use walk::{WalkEntry, WalkEvent, WalkFlow, WalkOptions};
