//! Taking a mount away, from whichever process: `undercroft umount`.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use crate::mount_table::{self, MountEntry};
use crate::presence::ServerWatch;
use crate::{UnmountError, attach};

/// How long a server may take to make everything durable and to close its image: what was written last may still
/// be on its way to a slow disk.
const SERVER_LIMIT: Duration = Duration::from_secs(600);

/// Unmounts what is mounted on `dir`, as root or as the user who mounted it, and returns when the mount is gone,
/// everything that was written is durable, and the server has let go of the image.
///
/// # Errors
/// [`UnmountError`]; except for [`ServerLingers`](UnmountError::ServerLingers) the mount is still there.
pub fn unmount(dir: &Path) -> Result<(), UnmountError> {
    let entry = ours_at(dir)?;
    let server = ServerWatch::connect(entry.device, &entry.point);
    detach(&entry.point, false)?;
    match server {
        Some(server) if !server.wait(SERVER_LIMIT) => Err(UnmountError::ServerLingers(entry.point)),
        _ => Ok(()),
    }
}

/// The mount of ours on `dir`.
fn ours_at(dir: &Path) -> Result<MountEntry, UnmountError> {
    let refused = |cause| UnmountError::Refused { dir: dir.to_owned(), cause };
    let point = mount_table::absolute(dir).map_err(refused)?;
    match mount_table::mount_at(&point).map_err(refused)? {
        None => Err(UnmountError::NotMounted(dir.to_owned())),
        Some(entry) if attach::is_ours(&entry.fs_type) => Ok(entry),
        Some(entry) => Err(UnmountError::Foreign { dir: dir.to_owned(), fs_type: entry.fs_type }),
    }
}

/// Takes the mount away, with the reasons why it cannot be put into words.
pub(crate) fn detach(dir: &Path, lazily: bool) -> Result<(), UnmountError> {
    attach::detach(dir, lazily).map_err(|cause| match Errno::from_io_error(&cause) {
        Some(Errno::BUSY) => UnmountError::Busy(dir.to_owned()),
        Some(Errno::INVAL) => UnmountError::NotMounted(dir.to_owned()),
        _ => UnmountError::Refused { dir: dir.to_owned(), cause },
    })
}
