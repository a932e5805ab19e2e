//! A mount of this process, taken away by itself and nothing else with it.

use std::path::PathBuf;

use rustix::mount::UnmountFlags;

use crate::mount_point::MountPoint;
use crate::mount_table::{self, MountEntry};
use crate::{UnmountError, attach};

/// A mount, and the directory that it lies on.
#[derive(Debug)]
pub(crate) struct OwnMount {
    /// Absolute; for people, and for the helper of ordinary users.
    pub(crate) dir: PathBuf,
    pub(crate) point: MountPoint,
    pub(crate) entry: MountEntry,
}

impl OwnMount {
    /// Takes it away: if it is not in use, or lazily.
    pub(crate) fn detach(&self, lazily: bool) -> Result<(), UnmountError> {
        if mount_table::is_covered(&self.entry).unwrap_or(false) {
            return Err(UnmountError::Busy(self.dir.clone()));
        }
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        attach::detach(&self.point.path(), &self.dir, flags)
            .map_err(|cause| UnmountError::of(self.dir.clone(), cause))
    }

    /// Whether it is mounted anywhere we can see.
    pub(crate) fn is_there(&self) -> bool {
        mount_table::is_mounted(self.entry.device).unwrap_or(true)
    }
}
