//! Puts owner, mode, extended attributes and times on a copy.
//!
//! The order matters. A change of owner clears set-user-ID and capabilities, so owners come first. A mode may take
//! away the right to set `user.*` attributes, so those come before it; an access ACL is at one with the mode's group
//! bits, so ACLs come after it. Everything before may touch the times.
//!
//! An image that is not trusted could lend rights to its user: set-user-ID and set-group-ID modes, device nodes, and
//! attributes of the `security.*` and `trusted.*` name spaces are kept on request only. Without root, owners cannot be
//! kept; set-user-ID and set-group-ID are then left off in any case, since they would lend the rights of the user that
//! runs the copy.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use serde::Serialize;
use undercroft_vfs::{self as vfs, Attr, FileType, Node, Timestamp};

use crate::failure::Failure;
use crate::text::human::counted;
use crate::text::names::safe;
use crate::text::note::note;
use crate::xattrs::listed_xattr;

/// What this process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// Give files away, set every attribute.
    Root,
    /// The same as far as a user namespace goes, as in a container without root: to the users that it has.
    Mapped,
    /// Only what any user may.
    User,
}

impl Privilege {
    /// Of this process.
    pub(crate) fn current() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::User;
        }
        // The first namespace has all users.
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let has_all = map.is_empty() || map.split_whitespace().eq(["0", "0", "4294967295"]);
        if has_all { Self::Root } else { Self::Mapped }
    }
}

/// What of an original is put on its copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// What this process may do.
    pub(crate) privilege: Privilege,
    /// What lends rights was asked for: see this module's header.
    pub(crate) special: bool,
    /// The copy may have more than is put on it, from an earlier run with other options or from a default ACL of the
    /// place: what the original does not have, or what is not kept, is taken off.
    pub(crate) strip: bool,
}

impl Keep {
    /// The bits of a mode that are kept.
    pub(crate) const fn mode_mask(self) -> u16 {
        match self {
            Self { privilege: Privilege::Root | Privilege::Mapped, special: true, .. } => 0o7777,
            _ => 0o1777,
        }
    }

    /// Whether an extended attribute of this name is kept.
    pub(crate) fn takes_xattr(self, name: &[u8]) -> bool {
        self.special || !lends_rights(name)
    }
}

const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Whether new names in a directory get an ACL from it.
pub(crate) fn has_default_acl(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fgetxattr(dir, ACLS[1], &mut [0_u8; 0]).is_ok()
}

fn lends_rights(xattr: &[u8]) -> bool {
    xattr.starts_with(b"security.") || xattr.starts_with(b"trusted.")
}

/// What could not be kept or was left out, counted, for one note of each kind at the end.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Lost {
    /// Owners, for want of root.
    pub(crate) owners: u64,
    /// Set-user-ID and set-group-ID modes.
    pub(crate) set_id_modes: u64,
    /// Device nodes.
    pub(crate) device_nodes: u64,
    /// Attributes of the name spaces `security.*` and `trusted.*`, and others that only root may set.
    pub(crate) privileged_xattrs: u64,
    /// Attributes that the destination's filesystem does not take.
    pub(crate) unsupported_xattrs: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, other: Self) {
        self.owners += other.owners;
        self.set_id_modes += other.set_id_modes;
        self.device_nodes += other.device_nodes;
        self.privileged_xattrs += other.privileged_xattrs;
        self.unsupported_xattrs += other.unsupported_xattrs;
    }

    /// Says on standard error what was left out of what lends rights.
    pub(crate) fn note_special(self, advice: &str) {
        not_kept(self.set_id_modes, "set-user-ID or set-group-ID mode", advice);
        not_kept(self.device_nodes, "device node", advice);
        not_kept(self.privileged_xattrs, "extended attribute", advice);
    }

    /// Says on standard error which owners could not be kept.
    pub(crate) fn note_owners(self) {
        not_kept(self.owners, "owner", "run as root to keep owners");
    }
}

fn not_kept(number: u64, noun: &str, advice: &str) {
    if number > 0 {
        note(format_args!("{} not kept; {advice}", counted(number, noun)));
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

/// What became of a copy's metadata.
#[derive(Debug)]
pub(crate) struct Applied {
    lost: Lost,
    /// Why attributes are missing that the image lists.
    damage: Option<Failure>,
}

impl Applied {
    /// What could not be kept.
    ///
    /// # Errors
    /// The image's damage. The copy is complete but for that, and stays.
    pub(crate) fn into_result(self) -> Result<Lost, Failure> {
        self.damage.map_or(Ok(self.lost), Err)
    }
}

/// Puts everything on.
pub(crate) fn apply(subject: &Subject<'_>, node: &Node, path: &[u8], keep: Keep) -> Result<Applied, Failure> {
    let attr = node.attr();
    let mut lost = Lost::default();
    let refuse = |what: &'static str| {
        move |error: Errno| {
            Failure::host(format!("cannot set the {what} of the copy of {}", safe(path)), &error.into())
        }
    };
    match keep.privilege {
        Privilege::Root => subject.set_owner(&attr).map_err(refuse("owner"))?,
        // A user that the namespace does not have.
        Privilege::Mapped => match subject.set_owner(&attr) {
            Err(Errno::INVAL | Errno::PERM) => lost.owners += 1,
            owned => owned.map_err(refuse("owner"))?,
        },
        Privilege::User if attr.uid != rustix::process::geteuid().as_raw() => lost.owners += 1,
        Privilege::User => {}
    }
    let (with_mode, before_mode): (Vec<_>, Vec<_>) = node
        .list_xattrs()
        .map_err(|error| Failure::inside(path, &error))?
        .into_iter()
        .partition(|name| name.starts_with(b"system.") || lends_rights(name));
    let without_acl = |acl: &&[u8]| with_mode.iter().all(|name| name[..] != **acl);
    let foreign_acls: Vec<_> = ACLS.into_iter().filter(without_acl).collect();
    let mut damage = None;
    set_xattrs(subject, node, path, before_mode, keep, &mut lost, &mut damage)?;
    // A symbolic link's mode means nothing and cannot be set.
    if attr.kind != FileType::Symlink {
        let mode = attr.permissions & keep.mode_mask();
        if attr.permissions & 0o7777 != mode {
            lost.set_id_modes += 1;
        }
        subject.set_mode(Mode::from_raw_mode(u32::from(mode))).map_err(refuse("mode"))?;
    }
    set_xattrs(subject, node, path, with_mode, keep, &mut lost, &mut damage)?;
    if keep.strip && attr.kind != FileType::Symlink {
        // After the mode: without an ACL, the group's bits are the mode's.
        for acl in foreign_acls {
            subject.remove_xattr(acl).map_err(refuse("ACL"))?;
        }
    }
    subject.set_times(&attr).map_err(refuse("times"))?;
    Ok(Applied { lost, damage: damage.map(|error| Failure::inside(path, &error)) })
}

/// Puts attributes on. One that cannot be read is `damage`, and keeps no other from its place.
fn set_xattrs<N: AsRef<[u8]>>(
    subject: &Subject<'_>,
    node: &Node,
    path: &[u8],
    names: Vec<N>,
    keep: Keep,
    lost: &mut Lost,
    damage: &mut Option<vfs::Error>,
) -> Result<(), Failure> {
    for name in names {
        let name = name.as_ref();
        if !keep.takes_xattr(name) {
            lost.privileged_xattrs += 1;
            if keep.strip {
                subject.remove_xattr(name).map_err(|error| refuse_xattr(name, path, error))?;
            }
            continue;
        }
        let value = match listed_xattr(node, name) {
            Ok(value) => value,
            Err(error) => {
                damage.get_or_insert(error);
                continue;
            }
        };
        match subject.set_xattr(name, &value) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::ACCESS) if keep.privilege != Privilege::Root => {
                lost.privileged_xattrs += 1;
            }
            // It names such a user.
            Err(Errno::INVAL) if keep.privilege == Privilege::Mapped && ACLS.contains(&name) => {
                lost.privileged_xattrs += 1;
            }
            Err(Errno::OPNOTSUPP) => lost.unsupported_xattrs += 1,
            Err(error) => return Err(refuse_xattr(name, path, error)),
        }
    }
    Ok(())
}

fn refuse_xattr(name: &[u8], path: &[u8], error: Errno) -> Failure {
    Failure::host(format!("cannot set attribute {} on the copy of {}", safe(name), safe(path)), &error.into())
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
            Self::Named { .. } => rustix::fs::chmod(magic_path(self.handle()?.as_fd()), mode),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Named { .. } => {
                rustix::fs::setxattr(magic_path(self.handle()?.as_fd()), name, value, XattrFlags::empty())
            }
        }
    }

    /// A name that is not there, or that this process may not take off and so did not put on, is no error.
    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        let removed = match self {
            Self::Open(fd) => rustix::fs::fremovexattr(fd, name),
            Self::Named { .. } => rustix::fs::removexattr(magic_path(self.handle()?.as_fd()), name),
        };
        match removed {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => Ok(()),
            removed => removed,
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

    /// A handle of exactly this object that opens nothing and follows nothing.
    fn handle(&self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Open(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 0),
            Self::Named { dir, name } => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(dir, *name, flags, Mode::empty())
            }
        }
    }
}

/// A path to exactly the object of a handle, for calls that take no handle.
pub(crate) fn magic_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// What is set for a time of the image.
pub(crate) fn timespec(time: Timestamp) -> Timespec {
    // An image may say anything; a fraction that is none would be a request to leave the time alone.
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds.min(999_999_999)) }
}
