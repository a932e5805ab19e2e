//! The filesystem contract, and everything that is the same for every filesystem above it.
//!
//! A filesystem implements [`FileSystem`] and [`Inode`]; [`Vfs`] puts the inode cache, the name cache,
//! permissions, path walking and the shared data path above it. Users are the FUSE server, which calls by inode,
//! and the library's users and the program, who call by path.
//!
//! An operation on an open file or in a cached directory takes no global lock and looks into no global table.
//! This crate knows nothing of any format, of FUSE, or of the program.

mod acl;
mod attr;
mod attributes;
mod cached_inode;
mod change;
pub mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contract;
mod credentials;
mod data;
mod error;
mod file;
mod hash;
mod hashed_name;
mod inode_cache;
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
mod vfs;
mod walk;

pub use attr::{Attr, DeviceNumber, FileType, Ino, InodeFlags, Ownership, Timestamp};
pub use change::{
    AttrChange, Durable, FallocateMode, NewInode, NewKind, NewObject, NewTime, RenameFlags, XattrMode,
};
pub use contract::{DirEntry, DirOffset, Extent, FileSystem, Found, Inode, Limits, Mapping, StatFs, Written};
pub use credentials::Credentials;
pub use error::{Corruption, Error, Result};
pub use file::File;
pub use hashed_name::HashedName;
pub use name_table::{InsertError, NameTable};
pub use node::Node;
pub use path::{Follow, PATH_MAX_BYTES};
pub use permission::{
    Access, NewFile, SET_GROUP_ID, SET_USER_ID, check_access, check_delete, new_file_owner,
};
pub use vfs::{Vfs, VfsOptions};
pub use walk::{WalkEntry, WalkEvent, WalkFlow, WalkOptions};
