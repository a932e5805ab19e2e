//! Which file, block device or filesystem is meant, whatever it is called.

use std::fs::{self, Metadata};
use std::num::NonZeroU32;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use serde::{Deserialize, Serialize};
use undercroft_block::mountinfo::STATX_MNT_ID_UNIQUE;

/// Which file or block device it is, whatever it is called, and which partition of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Of a block device its own number.
    dev: u64,
    /// 0 for a block device.
    ino: u64,
    partition: Option<u32>,
}

impl FileId {
    /// Of what is there under a name. `None` if there is no such file.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        Self::of_file(&fs::metadata(path).ok()?)
    }

    /// Of a partition of it.
    pub(crate) fn part(self, partition: Option<NonZeroU32>) -> Self {
        Self { partition: partition.map(u32::from), ..self }
    }

    /// Of a file or block device as a whole.
    pub(crate) fn of_file(found: &Metadata) -> Option<Self> {
        let (dev, ino) = match found.file_type() {
            kind if kind.is_block_device() => (found.rdev(), 0),
            kind if kind.is_file() => (found.dev(), found.ino()),
            _ => return None,
        };
        Some(Self { dev, ino, partition: None })
    }
}

/// Asks for a number of the mount that no other mount gets.
const UNIQUE_ID: StatxFlags = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);

/// The mount that a directory is in, from what the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryMount {
    /// The number of the filesystem.
    pub(crate) device: u64,
    /// The number of the mount; an older kernel gives it to another mount later.
    pub(crate) mount: Option<u64>,
}

impl DirectoryMount {
    /// `None` for what is no directory, or cannot be looked at.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let asked = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID | UNIQUE_ID;
        let found = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, asked).ok()?;
        if FileType::from_raw_mode(found.stx_mode.into()) != FileType::Directory {
            return None;
        }
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        let has_mount = found.stx_mask & (StatxFlags::MNT_ID | UNIQUE_ID).bits() != 0;
        Some(Self { device, mount: has_mount.then_some(found.stx_mnt_id) })
    }
}

/// The number of the filesystem that a directory is in, from what the kernel knows.
pub(crate) fn device_of_directory(path: &Path) -> Option<u64> {
    DirectoryMount::of(path).map(|mount| mount.device)
}
