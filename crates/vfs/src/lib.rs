//! The filesystem contract, and everything that is the same for every filesystem above it.

mod attr;
mod contract;
mod error;

pub use attr::{Attr, DeviceNumber, FileType, Ino, InodeFlags, Timestamp};
pub use contract::{DirEntry, DirOffset, Extent, FileSystem, Found, Inode, Limits, Mapping, StatFs};
pub use error::{Corruption, Error, Result};
