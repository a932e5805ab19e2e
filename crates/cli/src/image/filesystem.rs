//! The kinds of filesystem that an IMAGE may hold: the one place that knows them all.
//!
//! A filesystem is recognised by its mark, opened or checked as its kind, and used through the vfs after that. What is told of it by
//! kind (`info`), or can be done to some kinds only (`grow`), matches on [`Filesystem`].

use std::sync::{Arc, Weak};

use undercroft_block::{Device, probe};
use undercroft_ext4::{self as ext4, Ext4};
use undercroft_vfs::{Error, FileSystem, Ino, Result};
use undercroft_xfs::{self as xfs, Xfs};

use super::checked::Checked;
use super::details::Details;
use super::{Use, rescue, tell_of_wait};

/// The kinds in words, for advice.
pub(crate) const KINDS: &str = "ext2, ext3, ext4 and XFS";

/// A kind of filesystem that can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilesystemKind {
    Ext4,
    Xfs,
}

/// A filesystem by its own type.
#[derive(Clone, Debug)]
pub(crate) enum Filesystem {
    Ext4(Arc<Ext4>),
    Xfs(Arc<Xfs>),
}

/// A filesystem that is used elsewhere and may be gone.
#[derive(Debug)]
pub(crate) enum WeakFilesystem {
    Ext4(Weak<Ext4>),
    Xfs(Weak<Xfs>),
}

impl FilesystemKind {
    /// The kind that a device begins with.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn on(device: &Device) -> Result<Option<Self>> {
        if ext4::Superblock::is_present(&**device)? {
            return Ok(Some(Self::Ext4));
        }
        match probe::probe(&**device) {
            Ok(found) => Ok(found.filter(|found| found.format.name == "xfs").map(|_| Self::Xfs)),
            // The end of a device that is cut short cannot be read, where a member of an array has its superblock.
            Err(_) if xfs::Superblock::declared_bytes(&**device).is_ok() => Ok(Some(Self::Xfs)),
            Err(error) => Err(error.into()),
        }
    }

    /// How many bytes the filesystem that a device begins with says that it has; `None` without a good superblock.
    pub(crate) fn declared_on(device: &Device) -> Option<u64> {
        Self::on(device).ok().flatten()?.declared_bytes(device)
    }

    /// How many bytes its superblock says that it has; `None` without a good one.
    pub(super) fn declared_bytes(self, device: &Device) -> Option<u64> {
        match self {
            Self::Ext4 => ext4::Superblock::declared_bytes(&**device).ok(),
            Self::Xfs => xfs::Superblock::declared_bytes(&**device).ok(),
        }
    }

    /// Checks a filesystem of the kind, and changes nothing. Its log may lie on a device of its own.
    ///
    /// # Errors
    /// What keeps it from being checked at all; damage is none.
    pub(crate) fn check(self, device: Device, log_device: Option<&Device>) -> Result<Checked> {
        match self {
            Self::Ext4 => {
                refuse_log_device(log_device)?;
                let options =
                    ext4::CheckOptions { on_mmp_wait: tell_of_wait, ..ext4::CheckOptions::default() };
                ext4::check(device, &options).map(Checked::from)
            }
            Self::Xfs => {
                let options = xfs::CheckOptions::default();
                xfs::check_with_log(&device, log_device, &options).map(Checked::from)
            }
        }
    }

    /// Opens a filesystem of the kind. Its log may lie on a device of its own.
    ///
    /// # Errors
    /// Corruption; what the kind cannot do; I/O failure.
    pub(super) fn open(
        self,
        device: Device,
        log_device: Option<Device>,
        what_for: Use,
        shown: &str,
    ) -> Result<Filesystem> {
        let recover = what_for != Use::ReadAsIs;
        match self {
            Self::Ext4 => {
                refuse_log_device(log_device.as_ref())?;
                let options =
                    ext4::OpenOptions { on_mmp_wait: tell_of_wait, recover, ..ext4::OpenOptions::default() };
                match what_for {
                    Use::Read => rescue::open_what_is_there(&device, shown, |recover| {
                        Ext4::open_read_only(Arc::clone(&device), ext4::OpenOptions { recover, ..options })
                    }),
                    Use::ReadAsIs => Ext4::open_read_only(device, options),
                    Use::Write(how) | Use::Try(how) => Ext4::open(device, options, how.of_ext4()?),
                }
                .map(Filesystem::Ext4)
            }
            Self::Xfs => {
                let options = xfs::OpenOptions { log_device, recover, ..xfs::OpenOptions::default() };
                match what_for {
                    Use::Read => rescue::open_what_is_there(&device, shown, |recover| {
                        let options = xfs::OpenOptions { recover, ..options.clone() };
                        Xfs::open_read_only(Arc::clone(&device), options)
                    }),
                    Use::ReadAsIs => Xfs::open_read_only(device, options),
                    Use::Write(how) | Use::Try(how) => Xfs::open(device, options, how.of_xfs()?),
                }
                .map(Filesystem::Xfs)
            }
        }
    }
}

fn refuse_log_device(log_device: Option<&Device>) -> Result<()> {
    match log_device {
        None => Ok(()),
        Some(_) => Err(Error::Unsupported("a journal on another device than the filesystem".into())),
    }
}

impl Filesystem {
    /// What the vfs works with.
    pub(crate) fn for_vfs(&self) -> Arc<dyn FileSystem> {
        match self {
            Self::Ext4(ext4) => Arc::clone(ext4) as Arc<dyn FileSystem>,
            Self::Xfs(xfs) => Arc::clone(xfs) as Arc<dyn FileSystem>,
        }
    }

    /// What only its kind has to tell of an inode.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn details(&self, ino: Ino) -> Result<Option<Details>> {
        match self {
            Self::Ext4(_) => Ok(None),
            Self::Xfs(xfs) => Details::of_xfs(xfs, ino).map(Some),
        }
    }

    /// A handle that does not keep it open.
    pub(crate) fn downgrade(&self) -> WeakFilesystem {
        match self {
            Self::Ext4(ext4) => WeakFilesystem::Ext4(Arc::downgrade(ext4)),
            Self::Xfs(xfs) => WeakFilesystem::Xfs(Arc::downgrade(xfs)),
        }
    }
}

impl WeakFilesystem {
    /// The filesystem, unless it is gone.
    pub(crate) fn upgrade(&self) -> Option<Filesystem> {
        match self {
            Self::Ext4(ext4) => ext4.upgrade().map(Filesystem::Ext4),
            Self::Xfs(xfs) => xfs.upgrade().map(Filesystem::Xfs),
        }
    }
}
