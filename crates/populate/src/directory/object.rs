//! What the system says about one name of a directory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use undercroft_vfs::{DeviceNumber, Timestamp};

use super::{FileId, levels};
use crate::{Metadata, Xattr};

/// Most parts with data that a file may have: what is beyond is taken as data.
const PARTS_MAX: usize = 1 << 20;

/// A file of the host; regular files and directories are open, except directories of other filesystems that are not wanted.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) stat: Stat,
    pub(super) open: Option<OwnedFd>,
}

impl Object {
    /// Looks at a name, and opens what can be opened without side effects: of directories only those on the device `only_on`,
    /// if there is one. A directory that something is mounted on may be one that this user may not open.
    pub(super) fn look(
        dir: BorrowedFd<'_>,
        name: &[u8],
        told: FileType,
        only_on: Option<u64>,
    ) -> io::Result<Self> {
        let look = || fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = match told {
            FileType::Unknown => FileType::from_raw_mode(look()?.st_mode),
            told => told,
        };
        if let (FileType::Directory, Some(device)) = (kind, only_on) {
            let stat = look()?;
            if FileType::from_raw_mode(stat.st_mode) == kind && stat.st_dev != device {
                return Ok(Self { stat, open: None });
            }
        }
        match kind {
            FileType::RegularFile | FileType::Directory => {
                let open = open_quietly(dir, name, kind)?;
                let stat = fs::fstat(&open)?;
                if FileType::from_raw_mode(stat.st_mode) != kind {
                    return Err(changed());
                }
                Ok(Self { stat, open: Some(open) })
            }
            _ => Ok(Self { stat: look()?, open: None }),
        }
    }

    pub(super) fn id(&self) -> FileId {
        id_of(&self.stat)
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(super) fn device_number(&self) -> DeviceNumber {
        let number = self.stat.st_rdev;
        DeviceNumber { major: fs::major(number), minor: fs::minor(number) }
    }

    /// The extended attributes that this user may read.
    pub(super) fn xattrs(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<Xattr>> {
        match &self.open {
            Some(open) => xattrs_of_open(open.as_fd()),
            None => {
                // There is no call by directory and name before Linux 6.13.
                let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
                path.extend_from_slice(name);
                let list = |buf: &mut Vec<u8>| fs::llistxattr(&*path, spare_capacity(buf));
                let get = |name: &[u8], buf: &mut Vec<u8>| fs::lgetxattr(&*path, name, spare_capacity(buf));
                match read_xattrs(list, get) {
                    Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                        let what =
                            "its extended attributes cannot be read: /proc is not mounted, or it is gone";
                        Err(io::Error::other(what))
                    }
                    xattrs => xattrs,
                }
            }
        }
    }
}

/// Opens without changing the time of access, where this user may ask for that.
fn open_quietly(dir: BorrowedFd<'_>, name: &[u8], kind: FileType) -> io::Result<OwnedFd> {
    let flags = match kind {
        FileType::Directory => levels::flags(),
        _ => OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
    };
    match fs::openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => Ok(fs::openat(dir, name, flags, Mode::empty())?),
        open => Ok(open?),
    }
}

/// The extended attributes of an open file.
pub(super) fn xattrs_of_open(open: BorrowedFd<'_>) -> io::Result<Vec<Xattr>> {
    read_xattrs(
        |buf| fs::flistxattr(open, spare_capacity(buf)),
        |name, buf| fs::fgetxattr(open, name, spare_capacity(buf)),
    )
}

type Got = Result<usize, Errno>;

/// Reads names and values. What this user may not read is left out.
fn read_xattrs(
    list: impl Fn(&mut Vec<u8>) -> Got,
    get: impl Fn(&[u8], &mut Vec<u8>) -> Got,
) -> io::Result<Vec<Xattr>> {
    let mut names = Vec::new();
    if !read_whole(&mut names, list)? {
        return Ok(Vec::new());
    }
    let mut xattrs = Vec::new();
    let names = names.split(|&byte| byte == 0).filter(|name| is_kept(name));
    for name in names {
        let mut value = Vec::new();
        if read_whole(&mut value, |buf| get(name, buf))? {
            xattrs.push(Xattr { name: name.into(), value: value.into() });
        }
    }
    xattrs.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(xattrs)
}

/// Reads what may need a larger buffer. `false`: there is none, or none for this user.
fn read_whole(buf: &mut Vec<u8>, read: impl Fn(&mut Vec<u8>) -> Got) -> io::Result<bool> {
    buf.reserve(256);
    loop {
        buf.clear();
        match read(buf) {
            Ok(_) => return Ok(true),
            // Linux has no more than 64 KiB, of names and of a value.
            Err(Errno::RANGE) if buf.capacity() < 1 << 17 => buf.reserve(1 << 17),
            Err(Errno::NOTSUP | Errno::NODATA | Errno::ACCESS | Errno::PERM) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an attribute is the file's own, and not another filesystem's view of itself.
fn is_kept(name: &[u8]) -> bool {
    let namespaces: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
    namespaces.iter().any(|namespace| name.starts_with(namespace))
}

pub(super) fn metadata(stat: &Stat, xattrs: Vec<Xattr>) -> Metadata {
    Metadata {
        uid: stat.st_uid,
        gid: stat.st_gid,
        permissions: (stat.st_mode & 0o7777) as u16,
        modified: Timestamp {
            seconds: stat.st_mtime,
            nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        },
        accessed: None,
        xattrs,
    }
}

pub(super) fn id_of(stat: &Stat) -> FileId {
    FileId { device: stat.st_dev, inode: stat.st_ino }
}

/// The target of a symbolic link.
pub(super) fn target(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Box<[u8]>> {
    Ok(fs::readlinkat(dir, name, Vec::new())?.into_bytes().into())
}

/// Where a file has data, unless that is all of it.
pub(super) fn data_of(file: &File, size_bytes: u64) -> io::Result<Option<Box<[Range<u64>]>>> {
    let mut data = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        let start = match fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = fs::seek(file, SeekFrom::Hole(start))?;
        let end = if data.len() + 1 < PARTS_MAX { hole.min(size_bytes) } else { size_bytes };
        if start >= end {
            break;
        }
        if start == 0 && end == size_bytes {
            return Ok(None);
        }
        data.push(start..end);
        at = end;
    }
    Ok(Some(data.into()))
}

/// Whether an open file is what it was when it was looked at, as far as its size and times tell.
pub(super) fn is_as_before(file: &File, before: &Stat) -> io::Result<bool> {
    let now = fs::fstat(file)?;
    let version =
        |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
    Ok(version(&now) == version(before))
}

/// The file is not what it was when it was looked at.
pub(super) fn changed() -> io::Error {
    io::Error::other("it changed while it was being read")
}
