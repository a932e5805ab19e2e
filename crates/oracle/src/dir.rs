//! A directory held open, and making things in it: every name is made relative to its directory, so that trees
//! may grow deeper than a path can be.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, IFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};

use crate::Result;
use crate::error::Context;
use crate::manifest::Time;

/// A directory in which a tree is made.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

impl Dir {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(Self).context("open", path)
    }

    pub(crate) fn dir(&self, name: impl AsRef<[u8]>) -> Result<Self> {
        let name = name.as_ref();
        rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755)).context("make the directory", name)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(Self).context("open", name)
    }

    pub(crate) fn file(&self, name: impl AsRef<[u8]>) -> Result<File> {
        let name = name.as_ref();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o644)).context("create", name)?;
        Ok(File::from(file))
    }

    /// A file of `len` bytes that no other seed has.
    pub(crate) fn file_with(&self, name: impl AsRef<[u8]>, seed: u64, len: usize) -> Result<File> {
        let name = name.as_ref();
        let file = self.file(name)?;
        let mut data = vec![0; len];
        crate::populate::noise(seed, &mut data);
        file.write_all_at(&data, 0).context("write", name)?;
        Ok(file)
    }

    pub(crate) fn existing(&self, name: &str) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(File::from).context("open", name)
    }

    pub(crate) fn sub(&self, name: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::empty()).map(Self).context("open", name)
    }

    pub(crate) fn rmdir(&self, name: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR).context("remove the directory", name)
    }

    pub(crate) fn symlink(&self, name: impl AsRef<[u8]>, target: &[u8]) -> Result<()> {
        let name = name.as_ref();
        rustix::fs::symlinkat(target, &self.0, name).context("make the link", name)
    }

    pub(crate) fn link(&self, name: impl AsRef<[u8]>, to: &Self, new: impl AsRef<[u8]>) -> Result<()> {
        let new = new.as_ref();
        rustix::fs::linkat(&self.0, name.as_ref(), &to.0, new, AtFlags::empty()).context("link", new)
    }

    pub(crate) fn rename(&self, name: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        rustix::fs::renameat(&self.0, name, &self.0, new.as_ref()).context("rename", name)
    }

    pub(crate) fn rename_to(&self, name: &str, to: &Self, new: &str) -> Result<()> {
        rustix::fs::renameat(&self.0, name, &to.0, new).context("rename", name)
    }

    pub(crate) fn unlink(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        rustix::fs::unlinkat(&self.0, name, AtFlags::empty()).context("unlink", name)
    }

    pub(crate) fn node(&self, name: &str, kind: FileType, major: u32, minor: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(&self.0, name, kind, mode, rustix::fs::makedev(major, minor))
            .context("make the node", name)
    }

    pub(crate) fn chmod(&self, name: &str, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(&self.0, name, mode, AtFlags::empty()).context("change the mode of", name)
    }

    pub(crate) fn chown(&self, name: &str, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        rustix::fs::chownat(&self.0, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .context("change the owner of", name)
    }

    pub(crate) fn times(&self, name: &str, accessed: Time, modified: Time) -> Result<()> {
        let spec = |(seconds, ns): Time| Timespec { tv_sec: seconds, tv_nsec: ns.into() };
        let times = Timestamps { last_access: spec(accessed), last_modification: spec(modified) };
        rustix::fs::utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .context("set the times of", name)
    }

    pub(crate) fn xattr(&self, name: &str, attribute: &str, value: &[u8]) -> Result<()> {
        let through = format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd());
        rustix::fs::lsetxattr(through, attribute, value, XattrFlags::empty())
            .context("set an extended attribute of", name)
    }

    /// Adds flags to a regular file or directory.
    pub(crate) fn flags(&self, name: &str, flags: u32) -> Result<()> {
        let oflags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, name, oflags, Mode::empty()).context("open", name)?;
        let old = rustix::fs::ioctl_getflags(&file).context("read the flags of", name)?;
        rustix::fs::ioctl_setflags(&file, old | IFlags::from_bits_retain(flags))
            .context("set the flags of", name)
    }
}
