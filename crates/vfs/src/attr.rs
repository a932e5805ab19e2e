//! What `stat` reports: numbers, kinds, times and flags, in units that do not depend on the filesystem.

use std::fmt;
use std::time::{Duration, SystemTime};

/// An inode number, unique within one filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What kind of file an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Bytes.
    Regular,
    /// Names.
    Directory,
    /// Another path.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A character device's node.
    CharDevice,
    /// A block device's node.
    BlockDevice,
    /// A Unix socket's node.
    Socket,
}

impl FileType {
    /// From the type bits of a POSIX mode (`mode & 0o170000`); `None` for a type that does not exist.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// The type bits of a POSIX mode.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// A point in time: seconds since 1970 (negative before), and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds since the epoch, rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Self { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let started = u64::from(before.subsec_nanos() > 0);
                Self {
                    seconds: 0_i64.wrapping_sub_unsigned(before.as_secs() + started),
                    nanoseconds: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

impl Timestamp {
    /// The same point in the system's terms; `None` for one that it has no number for.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.seconds.unsigned_abs());
        let whole = if self.seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(seconds)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(seconds)
        };
        whole?.checked_add(Duration::from_nanos(self.nanoseconds.into()))
    }
}

/// Which device a device node stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device among the driver's.
    pub minor: u32,
}

bitflags::bitflags! {
    /// Per-inode flags, with the meaning and the bit values of `FS_IOC_GETFLAGS` (`lsattr` prints them). A filesystem
    /// translates the flags of its format into these.
    ///
    /// The vfs acts on those that forbid (`IMMUTABLE`, `APPEND`, `VERITY`), on `SYNC` of files, `NOATIME`, `ENCRYPTED` and
    /// `CASEFOLD`.
    /// `INDEXED`, `EXTENTS` and `INLINE_DATA` are shown to users and ignored by the vfs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// `s`: overwrite on deletion.
        const SECURE_DELETION = 0x0000_0001;
        /// `u`: keep for undeletion.
        const UNDELETE = 0x0000_0002;
        /// `c`: compressed.
        const COMPRESSED = 0x0000_0004;
        /// `S`: synchronous updates.
        const SYNC = 0x0000_0008;
        /// `i`: cannot be changed.
        const IMMUTABLE = 0x0000_0010;
        /// `a`: can only be appended to.
        const APPEND = 0x0000_0020;
        /// `d`: not dumped.
        const NODUMP = 0x0000_0040;
        /// `A`: access times are not updated.
        const NOATIME = 0x0000_0080;
        /// `E`: encrypted.
        const ENCRYPTED = 0x0000_0800;
        /// `I`: directory with a hashed index.
        const INDEXED = 0x0000_1000;
        /// `j`: data goes through the journal.
        const JOURNAL_DATA = 0x0000_4000;
        /// `t`: tails are not merged.
        const NOTAIL = 0x0000_8000;
        /// `D`: synchronous directory updates.
        const DIRSYNC = 0x0001_0000;
        /// `T`: top of a directory hierarchy.
        const TOPDIR = 0x0002_0000;
        /// `e`: mapped by extents.
        const EXTENTS = 0x0008_0000;
        /// `V`: protected by fs-verity.
        const VERITY = 0x0010_0000;
        /// `C`: not copied on write.
        const NOCOW = 0x0080_0000;
        /// `x`: direct access to memory.
        const DAX = 0x0200_0000;
        /// `N`: data lives in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// `P`: children inherit the project.
        const PROJECT_INHERIT = 0x2000_0000;
        /// `F`: names are looked up without regard to case.
        const CASEFOLD = 0x4000_0000;
        /// What else a filesystem shows passes through.
        const _ = !0;
    }
}

/// An inode's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Generation of this use of the number.
    pub generation: u32,
    /// Kind of file.
    pub kind: FileType,
    /// Permission bits with set-user-ID, set-group-ID and sticky (`mode & 0o7777`).
    pub permissions: u16,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What a device node stands for; zero otherwise.
    pub rdev: DeviceNumber,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Allocated, in units of 512 bytes.
    pub sectors: u64,
    /// Preferred I/O size in bytes.
    pub block_bytes: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Creation, where the filesystem keeps it.
    pub created: Option<Timestamp>,
    /// Flags.
    pub flags: InodeFlags,
    /// Project for quotas; 0 is the default project.
    pub project: u32,
}

/// What permission checks need of a file. Cheaper to get than [`Attr`], and does not mark the times as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Kind of file.
    pub kind: FileType,
    /// Permission bits with set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Flags.
    pub flags: InodeFlags,
}

impl Attr {
    /// The part that permission checks need.
    #[must_use]
    pub const fn ownership(&self) -> Ownership {
        let Self { kind, permissions, uid, gid, flags, .. } = *self;
        Ownership { kind, permissions, uid, gid, flags }
    }

    /// Type and permission bits as one POSIX mode.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions as u32
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Linux's own reading of a time that `SystemTime` says in its way.
    #[test]
    fn times_are_those_that_linux_tells_of_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-77_777, 500_000_000)] {
            let time = Timestamp { seconds, nanoseconds };
            file.as_file().set_modified(time.to_system_time().unwrap()).unwrap();
            let told = file.as_file().metadata().unwrap();
            assert_eq!((told.mtime(), told.mtime_nsec()), (seconds, nanoseconds.into()));
            assert_eq!(Timestamp::from(told.modified().unwrap()), time);
        }
        for seconds in [i64::MIN, i64::MAX] {
            let extreme = Timestamp { seconds, nanoseconds: 999_999_999 };
            assert_eq!(extreme.to_system_time().map(Timestamp::from), Some(extreme));
        }
    }
}
