//! A mount of this process, taken away by itself and nothing else with it.
//!
//! A mount's number and its device's come again: a process that unmounts and mounts again at once gets both a second time, on the
//! same directory, while the first server is still making everything durable. So a mount is also known by a number that
//! does not come again, where the kernel has one (Linux 6.8).

use std::io;
use std::path::PathBuf;

use rustix::mount::UnmountFlags;
use undercroft_block::mountinfo::Mount;

use crate::mount_point::MountPoint;
use crate::mount_table;
use crate::{UnmountError, attach};

/// A mount, and the directory that it lies on.
#[derive(Debug)]
pub(crate) struct OwnMount {
    /// Absolute; for people, and for the helper of ordinary users.
    pub(crate) dir: PathBuf,
    pub(crate) point: MountPoint,
    pub(crate) entry: Mount,
    unique_id: Option<u64>,
}

impl OwnMount {
    /// `entry` has just been mounted on `point`, which is `dir`.
    pub(crate) fn new(dir: PathBuf, point: MountPoint, entry: Mount) -> Self {
        let unique_id = unique_id(&entry);
        Self { dir, point, entry, unique_id }
    }

    /// Takes it away, if it is there: if it is not in use, or lazily. What else lies on the directory stays.
    pub(crate) fn detach(&self, lazily: bool) -> Result<(), UnmountError> {
        let refused = |cause| UnmountError::Refused { dir: self.dir.clone(), cause };
        if !self.is_there() {
            return Ok(());
        }
        if mount_table::is_covered(&self.entry).unwrap_or(false) {
            return Err(UnmountError::Busy(self.dir.clone()));
        }
        if let Ok(Some(now)) = mount_table::find(self.entry.id, self.entry.device)
            && !self.point.is_below(&now)
        {
            return Err(refused(io::Error::other("it was moved to another directory")));
        }
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        let detached = if mount_table::is_on_device(&self.entry) {
            attach::detach_by_another(&self.point, &self.dir, flags)
        } else {
            attach::detach(&self.point.path(), &self.dir, flags)
        };
        detached.map_err(|cause| UnmountError::of(self.dir.clone(), cause))
    }

    /// Whether it is still mounted, as far as we can see.
    pub(crate) fn is_there(&self) -> bool {
        match mount_table::find(self.entry.id, self.entry.device) {
            Ok(None) => false,
            Ok(Some(now)) => match (self.unique_id, unique_id(&now)) {
                (Some(then), Some(now)) => then == now,
                // Something lies on top of it, or the kernel has no such numbers.
                _ => true,
            },
            Err(_) => true,
        }
    }
}

/// The number of a mount that no other gets, unless something lies on top of it.
pub(crate) fn unique_id(mount: &Mount) -> Option<u64> {
    let root = MountPoint::open(&mount.point).ok()?;
    let is_it = root.mount_id().is_ok_and(|id| id == mount.id);
    root.unique_id().filter(|_| is_it)
}
