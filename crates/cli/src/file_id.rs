//! Which file, block device or filesystem is meant, whatever it is called.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, StatxFlags};
use serde::{Deserialize, Serialize};

use crate::plan::ImageSpec;

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
    /// Of what was named, and the user that it belongs to. `None` if there is no such file.
    pub(crate) fn of(spec: &ImageSpec) -> Option<(Self, u32)> {
        let found = fs::metadata(&spec.path).ok()?;
        let id = Self::of_file(&found)?;
        Some((Self { partition: spec.partition.map(u32::from), ..id }, found.uid()))
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
