//! Everything that can be seen of a tree, as one value: made once from what the kernel shows and once from
//! what Undercroft shows, then compared.

use std::collections::BTreeMap;

use crate::Content;

/// A whole tree.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// By path from the root, without a leading slash; the root itself is the empty path. Paths may be far
    /// longer than a system call takes.
    pub entries: BTreeMap<Vec<u8>, Entry>,
    /// What statfs says of the filesystem.
    pub space: Option<Space>,
}

/// Seconds since 1970, and nanoseconds after that second.
pub type Time = (i64, u32);

/// One name in the tree, and the inode behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// The type that the directory entry itself tells, as type bits of a mode; `None` when it tells none.
    pub listed_type: Option<u32>,
    /// The inode number that the directory entry itself tells; the root has no entry.
    pub listed_ino: Option<u64>,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub sectors: u64,
    /// Preferred I/O size in bytes.
    pub io_bytes: u32,
    /// Last access.
    pub accessed: Time,
    /// Last change of content.
    pub modified: Time,
    /// Last change of the inode.
    pub changed: Time,
    /// Creation; `None` where the filesystem does not keep it.
    pub created: Option<Time>,
    /// Inode flags as FS_IOC_GETFLAGS gives them, for regular files and directories; `None` where the kernel
    /// was not asked.
    pub flags: Option<u32>,
    /// Generation and project id, where the kernel was asked.
    pub identity: Option<Identity>,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A symbolic link's target.
    pub target: Option<Vec<u8>>,
    /// A directory's `.` and `..`.
    pub dots: Option<(u64, u64)>,
    /// What a regular file holds.
    pub content: Option<Reading>,
}

/// What tells apart two uses of one inode number, and which project is charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Generation.
    pub generation: u32,
    /// Project id.
    pub project: u32,
}

/// The outcome of reading a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It could be read.
    Bytes(Content),
    /// Its content is encrypted and the key is missing.
    NoKey,
}

/// What statfs says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Unit of the block counts, in bytes.
    pub block_bytes: u64,
    /// Blocks for data.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that an ordinary user may take.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Filesystem id.
    pub fsid: u64,
    /// Longest name in bytes.
    pub name_max: u64,
}

impl Manifest {
    /// The same tree with every entry changed by `change`: for comparing with a tree that cannot agree in
    /// everything, such as the one that an image was filled from.
    #[must_use]
    pub fn map(mut self, mut change: impl FnMut(&[u8], &mut Entry)) -> Self {
        for (path, entry) in &mut self.entries {
            change(path, entry);
        }
        self
    }

    /// The entry at a path.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn at(&self, path: &str) -> &Entry {
        self.entries.get(path.as_bytes()).unwrap_or_else(|| panic!("the tree has no {path}"))
    }
}

impl Entry {
    /// The type bits of the mode.
    #[must_use]
    pub const fn type_bits(&self) -> u32 {
        self.mode & 0o170_000
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.type_bits() == 0o040_000
    }

    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        self.type_bits() == 0o100_000
    }
}

/// The path of `name` in the directory at `dir`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
