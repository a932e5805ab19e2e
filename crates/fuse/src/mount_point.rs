//! The directory under a mount, held by a descriptor from before the mount until after it.
//!
//! A path leads elsewhere as soon as the owner of a directory on the way wants it to; a directory that is held stays the
//! one that it is, and what is mounted on it is ours, or lies on ours. So a mount is made, and taken away, by the
//! descriptor (`/proc/self/fd/N`). It is a descriptor of what lies below: the mount itself is not in use by it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use undercroft_block::mountinfo::{Mount, STATX_MNT_ID_UNIQUE};

/// Asks for a number of the mount that no other mount gets.
const UNIQUE_ID: StatxFlags = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);

/// A directory that something is mounted on, or is going to be.
#[derive(Debug)]
pub(crate) struct MountPoint(OwnedFd);

impl MountPoint {
    /// What `path` leads to now: where something is mounted there already, the root of that.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// A path to it for system calls of this process.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.raw()))
    }

    /// The number of the descriptor.
    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Another descriptor of it, for a child process.
    pub(crate) fn for_child(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// The number of the mount that it lies in.
    pub(crate) fn mount_id(&self) -> io::Result<u64> {
        let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.raw()))?;
        let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        id.and_then(|id| id.trim().parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl MountPoint {
    /// The number of the mount that it lies in which no later mount gets; `None` from a kernel without such numbers.
    /// The filesystem is not asked.
    pub(crate) fn unique_id(&self) -> Option<u64> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(&self.0, "", flags, UNIQUE_ID).ok()?;
        (found.stx_mask & UNIQUE_ID.bits() != 0).then_some(found.stx_mnt_id)
    }

    /// The path that the mount table has for what lies on it.
    pub(crate) fn name(&self) -> io::Result<PathBuf> {
        fs::read_link(self.path())
    }

    /// Whether a mount lies on this directory, here where we see it.
    pub(crate) fn is_below(&self, mount: &Mount) -> bool {
        self.mount_id().is_ok_and(|id| id == mount.parent)
            && self.name().is_ok_and(|name| name == mount.point)
    }
}

impl From<MountPoint> for OwnedFd {
    fn from(point: MountPoint) -> Self {
        point.0
    }
}
