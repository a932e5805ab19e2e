//! Which file, block device or filesystem is meant, whatever it is called.

use std::fs::{self, Metadata};
use std::num::NonZeroU32;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use serde::{Deserialize, Serialize};

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

/// The number of the filesystem that a directory is in, from what the kernel knows.
pub(crate) fn device_of_directory(path: &Path) -> Option<u64> {
    let asked = StatxFlags::TYPE | StatxFlags::INO;
    let found = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, asked).ok()?;
    let is_directory = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
    is_directory.then(|| rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor))
}
