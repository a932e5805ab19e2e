//! Cached permissions: what permission checks need of an inode and what a directory passes on to new inodes, read
//! without a lock.
//!
//! Each operation on a name reads them several times for the directory, on every thread that works there. They are
//! three atomic words. A thread that reads them while owner and permissions change together may see one of the two old
//! and the other new, as on Linux.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use undercroft_vfs::{FileType, Ownership};

use crate::inode::{Inheritance, Inode, InodeFlags};

/// Owner, permissions and flags, as of the last change.
#[derive(Debug)]
pub(crate) struct CachedPermissions {
    /// Owner, and above it the group.
    owner: AtomicU64,
    /// Permissions, and above them the flags.
    access: AtomicU64,
    project: AtomicU32,
}

impl CachedPermissions {
    pub(super) fn new(inode: &Inode) -> Self {
        let cached = Self { owner: AtomicU64::new(0), access: AtomicU64::new(0), project: AtomicU32::new(0) };
        cached.update(inode);
        cached
    }

    /// Takes over the values of `inode`. Called after a change, with its fields locked.
    pub(super) fn update(&self, inode: &Inode) {
        self.owner.store(u64::from(inode.uid) | u64::from(inode.gid) << 32, Ordering::Relaxed);
        let access = u64::from(inode.permissions) | u64::from(inode.flags.bits()) << 32;
        self.access.store(access, Ordering::Relaxed);
        self.project.store(inode.project, Ordering::Relaxed);
    }

    /// What new inodes inherit from the directory.
    pub(super) fn inheritance(&self) -> Inheritance {
        let flags = (self.access.load(Ordering::Relaxed) >> 32) as u32;
        Inheritance {
            flags: InodeFlags::from_bits_retain(flags),
            project: self.project.load(Ordering::Relaxed),
        }
    }

    /// The cached values. Flags that describe how content is stored may have changed since.
    pub(super) fn ownership(&self, kind: FileType) -> Ownership {
        let (owner, access) = (self.owner.load(Ordering::Relaxed), self.access.load(Ordering::Relaxed));
        Ownership {
            kind,
            permissions: access as u16,
            uid: owner as u32,
            gid: (owner >> 32) as u32,
            flags: InodeFlags::from_bits_retain((access >> 32) as u32).shown(),
        }
    }
}
