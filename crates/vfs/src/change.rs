//! Requests that change a filesystem: the types that the contract and its users share.

use crate::{Announce, DeviceNumber, FileType, InodeFlags, Timestamp};

/// What kind of object is to be made, with what only that kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// An empty file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to this path: at least one byte, no NUL.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A Unix socket's node.
    Socket,
    /// A character device's node.
    CharDevice(DeviceNumber),
    /// A block device's node.
    BlockDevice(DeviceNumber),
}

impl NewKind<'_> {
    /// The kind of file that comes of it.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        match self {
            Self::Regular => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::CharDevice(_) => FileType::CharDevice,
            Self::BlockDevice(_) => FileType::BlockDevice,
        }
    }
}

/// An object as a user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewObject<'a> {
    /// What it is.
    pub kind: NewKind<'a>,
    /// Permission bits with set-user-ID, set-group-ID and sticky, before the mask.
    pub permissions: u16,
    /// Permission bits to leave out, unless the directory hands on an access control list.
    pub umask: u16,
}

impl<'a> NewObject<'a> {
    /// A regular file with these permissions and no mask.
    #[must_use]
    pub const fn file(permissions: u16) -> Self {
        Self { kind: NewKind::Regular, permissions, umask: 0 }
    }

    /// A directory with these permissions and no mask.
    #[must_use]
    pub const fn directory(permissions: u16) -> Self {
        Self { kind: NewKind::Directory, permissions, umask: 0 }
    }

    /// A symbolic link to a path.
    #[must_use]
    pub const fn symlink(target: &'a [u8]) -> Self {
        Self { kind: NewKind::Symlink(target), permissions: 0o777, umask: 0 }
    }
}

/// An inode as the filesystem is to make it: owner, permissions and lists are decided.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// What it is.
    pub kind: NewKind<'a>,
    /// Permission bits with set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes it has from the beginning, by full name: the access control lists it inherits.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
    /// Where its number is announced.
    pub announce: Announce<'a>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The time at which it is set.
    Now,
    /// As [`Now`](Self::Now), with the moment that a cache above has taken and shown.
    NowAs(Timestamp),
    /// This one.
    At(Timestamp),
}

/// How large a file's extents should be, in bytes, as `FS_IOC_FSSETXATTR` has it; zero for no hint. In a directory it is for
/// what is made there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentSizeHints {
    /// Space is allocated in multiples of this.
    pub size: u32,
    /// Copies of shared space are made in multiples of this.
    pub copy_size: u32,
}

/// Attributes to change; `None` stays as it is. The time of change becomes now, unless it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrChange {
    /// Permission bits with set-user-ID, set-group-ID and sticky.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<NewTime>,
    /// Last change of content.
    pub modified: Option<NewTime>,
    /// Last change of the inode.
    pub changed: Option<Timestamp>,
    /// All flags, those that users may set and those that stay.
    pub flags: Option<InodeFlags>,
    /// Project.
    pub project: Option<u32>,
    /// How large extents should be.
    pub hints: Option<ExtentSizeHints>,
}

/// Whether an extended attribute may or must be there when it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Either way.
    Set,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

bitflags::bitflags! {
    /// How a rename treats its target, with the bit values of `renameat2(2)`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// The new name must not exist.
        const NO_REPLACE = 1;
        /// Both names exist and change places.
        const EXCHANGE = 2;
        /// The old name becomes a whiteout: a character device 0:0, as overlay filesystems use it.
        const WHITEOUT = 4;
    }
}

/// What `fallocate(2)` does to a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallocateMode {
    /// Space is reserved: writes into it will not fail for want of space. Content stays.
    Allocate,
    /// Space is freed; reads as zeroes afterwards.
    PunchHole,
    /// Reads as zeroes afterwards; space stays reserved.
    Zero,
    /// The range is taken out and what follows moves up.
    Collapse,
    /// A hole of this length is put in before what follows.
    Insert,
}

/// How much of an inode must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// The bytes, and what is needed to read them again.
    Data,
    /// Everything, times and permissions as well.
    Everything,
}
