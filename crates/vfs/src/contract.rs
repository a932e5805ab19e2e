//! What a filesystem must provide.
//!
//! A filesystem hands out inodes as shared handles; everything that can be the same for every filesystem
//! (caches, permissions, path walking, moving data) is done above this line, once.

use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_block::Device;

use crate::{Attr, FileType, Ino, Result};

/// A position in a directory stream. 0 is the start; other values come from [`DirEntry::next`] of the same
/// directory and stay valid while the directory lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirOffset(pub u64);

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name's bytes: any but `/` and NUL, not necessarily UTF-8.
    pub name: &'a [u8],
    /// The inode it names.
    pub ino: Ino,
    /// The kind of file, where the directory knows it.
    pub kind: Option<FileType>,
    /// Where the stream goes on after this entry.
    pub next: DirOffset,
}

/// Answer to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The inode the name stands for.
    pub ino: Ino,
}

/// What lies under a byte range of a file.
#[derive(Clone, Debug)]
pub enum Mapping {
    /// Nothing is allocated; reads as zeroes.
    Hole,
    /// Allocated and never written; reads as zeroes.
    Unwritten,
    /// On the data device, from this byte on.
    Device {
        /// First byte on [`FileSystem::data_device`].
        offset: u64,
    },
    /// The filesystem keeps the bytes itself (inline data); what is missing at the end reads as zeroes.
    Inline(Arc<[u8]>),
}

/// A run of a file's bytes that is mapped in one way.
#[derive(Clone, Debug)]
pub struct Extent {
    /// First byte of the run within the file; at or before the byte that was asked for.
    pub start: u64,
    /// Length of the run in bytes; reaches past the byte that was asked for. May reach past the end of the
    /// file: the size bounds what is read, not the mapping.
    pub len: u64,
    /// What lies under it.
    pub mapping: Mapping,
}

/// What `statfs` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the block counts below, in bytes.
    pub block_bytes: u32,
    /// Blocks for data, as the kernel counts them (without the filesystem's own overhead).
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that an ordinary user may take.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Filesystem id.
    pub fsid: u64,
    /// Longest name in bytes.
    pub name_max_bytes: u32,
}

/// What a filesystem can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest name in bytes.
    pub name_max_bytes: u32,
    /// Largest file in bytes.
    pub file_max_bytes: u64,
}

/// A mounted filesystem. Threads call it at will.
pub trait FileSystem: Send + Sync + 'static {
    /// The kind, as `mount` names it: `ext4`.
    fn kind(&self) -> &'static str;

    /// The root directory's number.
    fn root(&self) -> Ino;

    /// Reads an inode by number. The vfs keeps one handle for each number, so this is called once while any
    /// handle lives.
    ///
    /// # Errors
    /// [`Stale`](crate::Error::Stale) for a number that names no live inode.
    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn Inode>>;

    /// Where the bytes of [`Mapping::Device`] lie; `None` for a filesystem that has no device.
    fn data_device(&self) -> Option<&Device>;

    /// Free and used space.
    ///
    /// # Errors
    /// Corruption or I/O failure in the counters' home.
    fn statfs(&self) -> Result<StatFs>;

    /// What it can hold.
    fn limits(&self) -> Limits;

    /// The kernel's hint that many inodes of `entries` are wanted soon (readdirplus, a tree walk): the
    /// filesystem may bring their homes into its cache with few large reads. Failures are not reported; the
    /// later reads will meet them.
    fn prefetch_inodes(&self, _entries: &[Ino]) {}
}

/// An inode in use.
pub trait Inode: Send + Sync + 'static {
    /// The attributes now. Cheap: no I/O.
    fn attr(&self) -> Attr;

    /// About how many bytes of memory this handle occupies.
    fn memory_bytes(&self) -> usize;

    /// Looks a name up in a directory. `.` and `..` are answered as the directory has them.
    ///
    /// # Errors
    /// [`NotDirectory`](crate::Error::NotDirectory); `Ok(None)` says that there is no such name.
    fn lookup(&self, name: &[u8]) -> Result<Option<Found>>;

    /// Gives `sink` the entries from `from` on, `.` and `..` included, until it breaks or the directory ends.
    /// No lock is held while `sink` runs that a lookup in the same directory needs.
    ///
    /// # Errors
    /// [`NotDirectory`](crate::Error::NotDirectory). After a corrupt part, an error; entries already given
    /// were good.
    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) when it is not one.
    fn read_link(&self) -> Result<Vec<u8>>;

    /// What lies under `offset`, and how far the same holds.
    ///
    /// # Errors
    /// [`IsDirectory`](crate::Error::IsDirectory), [`InvalidArgument`](crate::Error::InvalidArgument) for what
    /// has no bytes, [`NoKey`](crate::Error::NoKey), [`Unsupported`](crate::Error::Unsupported).
    fn map(&self, offset: u64) -> Result<Extent>;

    /// The value of an extended attribute by its full name (`user.note`); `None` when there is none.
    /// `system.posix_acl_access` and `_default` are in the form that `getxattr` gives.
    ///
    /// # Errors
    /// Corruption or I/O failure.
    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The full names of all extended attributes.
    ///
    /// # Errors
    /// Corruption or I/O failure.
    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>>;
}
