//! The kernel's mount table, as far as a mount of ours has to be found in it.
//!
//! A mount is known by its own number and its device's: mount points may be stacked or renamed, these stay for as long as
//! it lives. Both may come again afterwards, at the next mount even; `own_mount` tells that one from ours. Nothing here
//! asks the filesystem itself, whose server may be dead.

use std::io;
use std::path::{Component, Path, PathBuf};

use undercroft_block::mountinfo::{Mount, MountDevice, MountTable};

use crate::mount_point::MountPoint;

/// Whether the kernel has claimed a block device for it.
pub(crate) fn is_on_device(mount: &Mount) -> bool {
    mount.fs_type.starts_with("fuseblk.")
}

/// Where the kernel has the settings of what it caches for the filesystem.
pub(crate) fn cache_settings(mount: &Mount) -> PathBuf {
    let suffix = if is_on_device(mount) { "-fuseblk" } else { "" };
    PathBuf::from(format!("/sys/class/bdi/{}{suffix}", mount.device))
}

/// What is mounted on `point`, which must be absolute and free of links; of several mounts the one on top.
pub(crate) fn mount_at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(MountTable::own()?.mounts().rfind(|mount| mount.point == point))
}

/// What lies on this directory; of several mounts the one on top.
pub(crate) fn mount_on(point: &MountPoint) -> io::Result<Option<Mount>> {
    Ok(MountTable::own()?.mounts().rfind(|mount| point.is_below(mount)))
}

/// The mount of this number and device, as the table has it now.
pub(crate) fn find(id: u64, device: MountDevice) -> io::Result<Option<Mount>> {
    Ok(MountTable::own()?.mounts().find(|mount| mount.id == id && mount.device == device))
}

/// Whether something is mounted on top of this mount, at the same place.
pub(crate) fn is_covered(mount: &Mount) -> io::Result<bool> {
    let table = MountTable::own()?;
    let now = table.mounts().find(|now| now.id == mount.id && now.device == mount.device);
    Ok(now.is_some_and(|now| table.mounts().any(|above| above.parent == now.id && above.point == now.point)))
}

/// The mount of ours with this device number, if there is one.
pub(crate) fn ours(device: MountDevice) -> io::Result<Option<Mount>> {
    Ok(MountTable::own()?.mounts().find(|mount| mount.device == device && mount.is_ours()))
}

/// The path of a mount point, absolute and free of links. A mount point that cannot be looked at, because it is
/// another server's mount or one whose server is gone, is found by its directory.
pub(crate) fn absolute(point: &Path) -> io::Result<PathBuf> {
    let canonical = point.canonicalize();
    match (point.parent(), point.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) if canonical.is_err() => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => canonical,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_found_where_it_is_mounted() {
        let entry = mount_at(&absolute(Path::new("/proc/../proc")).unwrap()).unwrap().unwrap();
        assert_eq!(entry.fs_type, "proc");
        assert_eq!(find(entry.id, entry.device).unwrap().as_ref(), Some(&entry));
        assert!(find(entry.id + 1_000_000, entry.device).unwrap().is_none());
        assert!(mount_at(Path::new("/proc/self")).unwrap().is_none());
    }
}
