//! Taking a mount away, from whichever process: `undercroft umount`.
//!
//! The mount is asked for its server first, and taken away from the directory below it, which the server holds, so that
//! nothing else goes if a path leads elsewhere meanwhile. Any user may have made the server, so its answer is checked:
//! see `liveness`. A mount whose server does not say is looked for by name in the directory above, just before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use undercroft_block::mountinfo::{Mount, MountTable};

use crate::liveness::{Asked, ServerEnd, ServerWatch};
use crate::mount_point::MountPoint;
use crate::mount_table;
use crate::{UnmountError, abort, attach, own_mount};

/// How long a server may take to make everything durable and to close its image: what was written last may still
/// be on its way to a slow disk.
const SERVER_LIMIT: Duration = Duration::from_secs(600);

/// A server that has not ended by then may go on for a mount in another namespace, which is looked for.
const SOON: Duration = Duration::from_secs(2);

/// How long a server may take to identify itself, for which it does not need its disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Unmounts what is mounted on `dir`, as root or as the user that mounted it, and returns when the mount is gone,
/// everything that was written is durable, and the server has let go of the image.
///
/// # Errors
/// [`UnmountError`]; the mount is gone after [`ServerLingers`](UnmountError::ServerLingers),
/// [`ServerFailed`](UnmountError::ServerFailed), [`ServerDied`](UnmountError::ServerDied),
/// [`ServerUnseen`](UnmountError::ServerUnseen) and [`CutOff`](UnmountError::CutOff), and still there after the others.
pub fn unmount(dir: &Path) -> Result<(), UnmountError> {
    take_away(dir, ours_at(dir)?)
}

/// As [`unmount`], if what is mounted on `dir` has this device number, as `st_dev` shows it.
///
/// # Errors
/// As [`unmount`]; [`UnmountError::Refused`] where another filesystem is mounted there, on top of it or since.
pub fn unmount_device(dir: &Path, number: u64) -> Result<(), UnmountError> {
    let entry = ours_at(dir)?;
    if rustix::fs::makedev(entry.device.major, entry.device.minor) != number {
        let cause = io::Error::other("another filesystem is mounted there");
        return Err(UnmountError::Refused { dir: dir.to_owned(), cause });
    }
    take_away(dir, entry)
}

fn take_away(dir: &Path, entry: Mount) -> Result<(), UnmountError> {
    let refused = |cause| UnmountError::Refused { dir: dir.to_owned(), cause };
    let root = MountPoint::open(&entry.point).map_err(refused)?;
    if root.mount_id().map_err(refused)? != entry.id {
        return Err(refused(io::Error::other("something else was mounted there meanwhile")));
    }
    let unique_id = root.unique_id();
    let mut server = match ServerWatch::ask(&entry, root.into(), ANSWER_LIMIT) {
        Asked::Server(server) => server,
        Asked::Dead => {
            detach(&entry, None)?;
            return Err(UnmountError::ServerDied(entry.point));
        }
        Asked::Unknown => {
            detach(&entry, None)?;
            return Err(UnmountError::ServerUnseen(entry.point));
        }
        Asked::Silence if is_of_another_user(&entry) => {
            let is_it = || mount_table::find(entry.id, entry.device).is_ok_and(|found| found.is_some());
            abort::abort(entry.device, is_it).map_err(refused)?;
            detach(&entry, None)?;
            return Err(UnmountError::CutOff(entry.point));
        }
        Asked::Silence => return Err(UnmountError::Silent(entry.point)),
    };
    detach(&entry, server.point.as_ref())?;
    let now = mount_table::find(entry.id, entry.device).map_err(refused)?;
    if now.is_some_and(|now| unique_id.is_some() && own_mount::unique_id(&now) == unique_id) {
        return Err(refused(io::Error::other("its directory was moved meanwhile: try again")));
    }
    if has_mounted(server.process, &entry) {
        return Err(UnmountError::MountedElsewhere { dir: entry.point, process: server.process });
    }
    let end = match server.wait(SOON) {
        ServerEnd::Lingers => match elsewhere(&entry) {
            Some(process) => return Err(UnmountError::MountedElsewhere { dir: entry.point, process }),
            None => server.wait(SERVER_LIMIT),
        },
        ended => ended,
    };
    match end {
        ServerEnd::Well => Ok(()),
        ServerEnd::Ill(what) => Err(UnmountError::ServerFailed(what)),
        ServerEnd::Died => Err(UnmountError::ServerDied(entry.point)),
        ServerEnd::Lingers => Err(match elsewhere(&entry) {
            Some(process) => UnmountError::MountedElsewhere { dir: entry.point, process },
            None => UnmountError::ServerLingers(entry.point),
        }),
    }
}

/// Whether the mount is in the mount namespace of a process, if that is another one than ours: its server goes on then.
/// In ours, its number may have been given to a new mount.
fn has_mounted(process: u32, entry: &Mount) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let theirs = namespace(&process.to_string());
    if theirs.is_none() || theirs == namespace("self") {
        return false;
    }
    let is_it =
        |mount: &Mount| mount.device == entry.device && mount.source == entry.source && mount.is_ours();
    let table = MountTable::read(format!("/proc/{process}/mountinfo").as_ref());
    table.is_ok_and(|table| table.mounts().any(|mount| is_it(&mount)))
}

/// A process in whose mount namespace the mount is. Processes of others cannot be looked at, unless by root.
fn elsewhere(entry: &Mount) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|found| found.file_name().to_str()?.parse().ok());
    numbers.find(|&process| has_mounted(process, entry))
}

/// Whether we are root, and need not wait for other users.
fn is_of_another_user(entry: &Mount) -> bool {
    rustix::process::geteuid().is_root() && entry.owner().is_some_and(|(user, _)| user != 0)
}

/// The mount of ours on `dir`.
fn ours_at(dir: &Path) -> Result<Mount, UnmountError> {
    let refused = |cause| UnmountError::Refused { dir: dir.to_owned(), cause };
    let point = mount_table::absolute(dir).map_err(refused)?;
    match mount_table::mount_at(&point).map_err(refused)? {
        None => Err(UnmountError::NotMounted(dir.to_owned())),
        Some(entry) if entry.is_ours() => Ok(entry),
        Some(entry) => Err(UnmountError::Foreign { dir: dir.to_owned(), fs_type: entry.fs_type }),
    }
}

/// Takes a mount away, from the directory below it where that is known.
fn detach(entry: &Mount, below: Option<&MountPoint>) -> Result<(), UnmountError> {
    if mount_table::is_covered(entry).unwrap_or(false) {
        return Err(UnmountError::Busy(entry.point.clone()));
    }
    let by_directory = below.map(|below| attach::detach(&below.path(), &entry.point, UnmountFlags::empty()));
    let detached = match by_directory {
        // Nothing is mounted on it here: the server sees other mounts than we do.
        Some(Err(error)) if Errno::from_io_error(&error) == Some(Errno::INVAL) => detach_by_name(entry),
        Some(detached) => detached,
        None => detach_by_name(entry),
    };
    detached.map_err(|cause| UnmountError::of(entry.point.clone(), cause))
}

/// Takes away what has the mount's name, in the directory above as that is now, if it is the mount.
fn detach_by_name(entry: &Mount) -> io::Result<()> {
    let above = entry.point.parent().map(MountPoint::open).transpose()?;
    let path: PathBuf = match (&above, entry.point.file_name()) {
        (Some(above), Some(name)) => above.path().join(name),
        _ => entry.point.clone(),
    };
    if MountPoint::open(&path)?.mount_id()? != entry.id {
        return Err(Errno::INVAL.into());
    }
    attach::detach(&path, &entry.point, UnmountFlags::NOFOLLOW)
}
