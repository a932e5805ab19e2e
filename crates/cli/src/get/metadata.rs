//! Puts owner, mode, extended attributes and times on a copy.
//!
//! The order matters: a change of owner clears set-user-ID and capabilities, an access ACL is at one with the
//! mode's group bits, and everything before may touch the times. So: owner, mode, attributes, times.
//!
//! Without root, owners cannot be kept; then set-user-ID and set-group-ID are left off, since they would lend the
//! rights of whoever runs the copy.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use undercroft_vfs::{Attr, FileType, Node, Timestamp};

use crate::failure::Failure;
use crate::text::names::safe;

/// What this process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// Give files away, set every attribute.
    Root,
    /// Only what any user may.
    User,
}

impl Privilege {
    /// Of this process.
    pub(crate) fn current() -> Self {
        if rustix::process::geteuid().is_root() { Self::Root } else { Self::User }
    }
}

/// What could not be kept, counted, for one note at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost {
    /// Owners, for want of root.
    pub(crate) owners: u64,
    /// Attributes that only root may set.
    pub(crate) privileged_xattrs: u64,
    /// Attributes that the destination's filesystem does not take.
    pub(crate) unsupported_xattrs: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, other: Self) {
        self.owners += other.owners;
        self.privileged_xattrs += other.privileged_xattrs;
        self.unsupported_xattrs += other.unsupported_xattrs;
    }
}

/// A copy.
#[derive(Debug)]
pub(crate) enum Subject<'a> {
    /// A regular file or directory that is open.
    Open(BorrowedFd<'a>),
    /// Anything else: it must not be opened, and a link must not be followed.
    Named {
        /// The directory.
        dir: BorrowedFd<'a>,
        /// The name in it.
        name: &'a [u8],
    },
}

/// Puts everything on.
pub(crate) fn apply(
    subject: &Subject<'_>,
    node: &Node,
    path: &[u8],
    privilege: Privilege,
) -> Result<Lost, Failure> {
    let attr = node.attr();
    let mut lost = Lost::default();
    let refuse = |what: &'static str| {
        move |error: Errno| {
            Failure::host(format!("cannot set the {what} of the copy of {}", safe(path)), &error.into())
        }
    };
    match privilege {
        Privilege::Root => subject.set_owner(&attr).map_err(refuse("owner"))?,
        Privilege::User if attr.uid != rustix::process::geteuid().as_raw() => lost.owners += 1,
        Privilege::User => {}
    }
    // A symbolic link's mode means nothing and cannot be set.
    if attr.kind != FileType::Symlink {
        let mask = if privilege == Privilege::Root { 0o7777 } else { 0o1777 };
        subject.set_mode(Mode::from_raw_mode(u32::from(attr.permissions) & mask)).map_err(refuse("mode"))?;
    }
    set_xattrs(subject, node, path, privilege, &mut lost)?;
    subject.set_times(&attr).map_err(refuse("times"))?;
    Ok(lost)
}

fn set_xattrs(
    subject: &Subject<'_>,
    node: &Node,
    path: &[u8],
    privilege: Privilege,
    lost: &mut Lost,
) -> Result<(), Failure> {
    let inside = |error| Failure::inside(path, &error);
    for name in node.list_xattrs().map_err(inside)? {
        let Some(value) = node.xattr(&name).map_err(inside)? else { continue };
        match subject.set_xattr(&name, &value) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::ACCESS) if privilege == Privilege::User => lost.privileged_xattrs += 1,
            Err(Errno::OPNOTSUPP) => lost.unsupported_xattrs += 1,
            Err(error) => {
                let what = format!("cannot set attribute {} on the copy of {}", safe(&name), safe(path));
                return Err(Failure::host(what, &error.into()));
            }
        }
    }
    Ok(())
}

impl Subject<'_> {
    fn set_owner(&self, attr: &Attr) -> Result<(), Errno> {
        // All ones would mean "leave as it is", and no filesystem of Linux gives it to a file.
        let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
        match self {
            Self::Open(fd) => rustix::fs::fchown(fd, Some(uid), Some(gid)),
            Self::Named { dir, name } => {
                rustix::fs::chownat(dir, *name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fchmod(fd, mode),
            Self::Named { .. } => rustix::fs::chmod(self.magic_path()?.path(), mode),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Named { .. } => {
                rustix::fs::setxattr(self.magic_path()?.path(), name, value, XattrFlags::empty())
            }
        }
    }

    fn set_times(&self, attr: &Attr) -> Result<(), Errno> {
        let times =
            Timestamps { last_access: timespec(attr.accessed), last_modification: timespec(attr.modified) };
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, &times),
            Self::Named { dir, name } => rustix::fs::utimensat(dir, *name, &times, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    /// A path to exactly this object, by way of a handle that opens nothing and follows nothing.
    fn magic_path(&self) -> Result<MagicPath, Errno> {
        let handle = match self {
            Self::Open(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 0)?,
            Self::Named { dir, name } => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(dir, *name, flags, Mode::empty())?
            }
        };
        Ok(MagicPath(handle))
    }
}

struct MagicPath(OwnedFd);

impl MagicPath {
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_fd().as_raw_fd())
    }
}

fn timespec(time: Timestamp) -> Timespec {
    // An image may say anything; a fraction that is none would be a request to leave the time alone.
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds.min(999_999_999)) }
}
