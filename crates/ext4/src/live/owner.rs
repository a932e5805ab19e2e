//! What permission checks ask of an inode, and what new ones in a directory have from it, answered without a lock.
//!
//! A directory is asked several times in each operation on a name in it, by every thread that works there. Three words
//! say it all; each is whole, and a thread that reads them while an owner and permissions change together may see one
//! of the two, as on Linux.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use undercroft_vfs::{FileType, Ownership};

use crate::inode::{Inheritance, Inode, InodeFlags};

/// Owner, permissions and flags as they were shown last.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Owner, and above it the group.
    owner: AtomicU64,
    /// Permissions, and above them the flags.
    access: AtomicU64,
    project: AtomicU32,
}

impl Shown {
    pub(super) fn new(inode: &Inode) -> Self {
        let shown = Self { owner: AtomicU64::new(0), access: AtomicU64::new(0), project: AtomicU32::new(0) };
        shown.show(inode);
        shown
    }

    /// Shows what `inode` has by now. Called after a change, with its fields locked.
    pub(super) fn show(&self, inode: &Inode) {
        self.owner.store(u64::from(inode.uid) | u64::from(inode.gid) << 32, Ordering::Relaxed);
        let access = u64::from(inode.permissions) | u64::from(inode.flags.bits()) << 32;
        self.access.store(access, Ordering::Relaxed);
        self.project.store(inode.project, Ordering::Relaxed);
    }

    /// What new inodes in the directory have from it.
    pub(super) fn inheritance(&self) -> Inheritance {
        let flags = (self.access.load(Ordering::Relaxed) >> 32) as u32;
        Inheritance {
            flags: InodeFlags::from_bits_retain(flags),
            project: self.project.load(Ordering::Relaxed),
        }
    }

    /// What was shown. The flags are those that were set; how the inode keeps its content may have changed since.
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
