//! Cached permissions: what permission checks need of an inode and what a directory passes on to new inodes, read
//! without a lock.
//!
//! Each operation on a name reads them several times for the directory, on every thread that works there. They are a
//! few atomic words. A thread that reads them while owner and permissions change together may see one of the two old
//! and the other new, as on Linux.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use undercroft_vfs::{ExtentSizeHints, FileType, InodeFlags, Ownership};

use crate::format::dinode::{DiFlags, DiFlags2};
use crate::inode::{Inheritance, Inode};

/// Owner, permissions and flags, as of the last change.
#[derive(Debug)]
pub(crate) struct CachedPermissions {
    /// Owner, and above it the group.
    owner: AtomicU64,
    /// Permissions in the low 16 bits, above them `di_flags`, and above those the low half of `di_flags2`, which has
    /// all flags that mean something here.
    access: AtomicU64,
    /// The extent size hints: of new ones, and above it of copies.
    extent_sizes: AtomicU64,
    project: AtomicU32,
    /// The volume does not distinguish capital letters in the names of directories.
    folds_case: bool,
}

impl CachedPermissions {
    pub(super) fn new(inode: &Inode, folds_case: bool) -> Self {
        let cached = Self {
            owner: AtomicU64::new(0),
            access: AtomicU64::new(0),
            extent_sizes: AtomicU64::new(0),
            project: AtomicU32::new(0),
            folds_case: folds_case && inode.core.kind == FileType::Directory,
        };
        cached.update(inode);
        cached
    }

    /// Takes over the values of `inode`. Called after a change, with its fields locked.
    pub(super) fn update(&self, inode: &Inode) {
        let core = &inode.core;
        self.owner.store(u64::from(core.uid) | u64::from(core.gid) << 32, Ordering::Relaxed);
        let flags = u64::from(core.flags.bits()) << 16 | core.flags2.bits() << 32;
        self.access.store(u64::from(core.permissions) | flags, Ordering::Relaxed);
        let sizes = u64::from(core.extent_size) | u64::from(core.cow_extent_size) << 32;
        self.extent_sizes.store(sizes, Ordering::Relaxed);
        self.project.store(core.project, Ordering::Relaxed);
    }

    /// What new inodes inherit from the directory.
    pub(super) fn inheritance(&self) -> Inheritance {
        let (flags, flags2) = self.flags();
        let sizes = self.extent_sizes.load(Ordering::Relaxed);
        Inheritance {
            flags,
            flags2,
            project: self.project.load(Ordering::Relaxed),
            extent_size: sizes as u32,
            cow_extent_size: (sizes >> 32) as u32,
        }
    }

    /// The extent size hints, where a block has so many bytes, as a power of two.
    pub(super) fn extent_size_hints(&self, block_log: u8) -> ExtentSizeHints {
        let (flags, flags2) = self.flags();
        let sizes = self.extent_sizes.load(Ordering::Relaxed);
        let bytes = |is_set: bool, blocks: u32| {
            let bytes = u64::from(blocks) << block_log;
            if is_set { u32::try_from(bytes).unwrap_or(u32::MAX) } else { 0 }
        };
        ExtentSizeHints {
            size: bytes(flags.intersects(DiFlags::EXTENT_SIZE | DiFlags::EXTENT_SIZE_INHERIT), sizes as u32),
            copy_size: bytes(flags2.contains(DiFlags2::COW_EXTENT_SIZE), (sizes >> 32) as u32),
        }
    }

    /// How many blocks a file's space is allocated in multiples of; 0 without such a hint.
    pub(super) fn extent_size(&self) -> u32 {
        if self.flags().0.contains(DiFlags::EXTENT_SIZE) {
            self.extent_sizes.load(Ordering::Relaxed) as u32
        } else {
            0
        }
    }

    /// The cached values.
    pub(super) fn ownership(&self, kind: FileType) -> Ownership {
        let (owner, access) = (self.owner.load(Ordering::Relaxed), self.access.load(Ordering::Relaxed));
        let (flags, flags2) = split_flags(access);
        let mut flags = shown_flags(flags, flags2);
        // Linux shows no flag for it: it applies to the whole volume.
        flags.set(InodeFlags::CASEFOLD, self.folds_case);
        Ownership { kind, permissions: access as u16, uid: owner as u32, gid: (owner >> 32) as u32, flags }
    }

    fn flags(&self) -> (DiFlags, DiFlags2) {
        split_flags(self.access.load(Ordering::Relaxed))
    }
}

fn split_flags(access: u64) -> (DiFlags, DiFlags2) {
    let flags = DiFlags::from_bits_retain((access >> 16) as u16);
    (flags, DiFlags2::from_bits_retain(access >> 32))
}

/// Flags that users set and see, but for [`InodeFlags::DAX`], which lies among the second flags.
pub(super) const FLAGS: [(DiFlags, InodeFlags); 6] = [
    (DiFlags::IMMUTABLE, InodeFlags::IMMUTABLE),
    (DiFlags::APPEND, InodeFlags::APPEND),
    (DiFlags::SYNC, InodeFlags::SYNC),
    (DiFlags::NOATIME, InodeFlags::NOATIME),
    (DiFlags::NODUMP, InodeFlags::NODUMP),
    (DiFlags::PROJECT_INHERIT, InodeFlags::PROJECT_INHERIT),
];

/// The flags of an inode as the contract has them.
pub(super) fn shown_flags(flags: DiFlags, flags2: DiFlags2) -> InodeFlags {
    let mut shown = InodeFlags::empty();
    if flags.is_empty() && !flags2.contains(DiFlags2::DAX) {
        return shown;
    }
    for (flag, means) in FLAGS {
        shown.set(means, flags.contains(flag));
    }
    shown.set(InodeFlags::DAX, flags2.contains(DiFlags2::DAX));
    shown
}
