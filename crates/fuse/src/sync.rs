//! Making everything durable that was written through a mount, from whichever process: `undercroft sync`.
//!
//! The kernel answers `syncfs(2)` for a FUSE mount without asking the server, and newer kernels without having written
//! back what they cache. They do write it back when a file is closed, and for an fsync. So every file is synced here
//! that some process has open, or mapped, for writing; then the directory, for which the server makes everything durable
//! that it was given.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use undercroft_block::mountinfo::MountDevice;

use crate::SyncError;
use crate::mount_table;

/// Makes everything durable that was written before, through the mount of ours that `dir` is in: names, attributes, and
/// what programs have written to files that they have still open.
///
/// # Errors
/// [`SyncError`].
pub fn sync(dir: &Path) -> Result<(), SyncError> {
    let failed = |cause| SyncError::Failed { dir: dir.to_owned(), cause };
    let opened = File::open(dir).map_err(failed)?;
    let number = opened.metadata().map_err(failed)?.dev();
    let device = MountDevice { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
    let Some(mount) = mount_table::ours(device).map_err(failed)? else {
        return Err(SyncError::NotOurs(dir.to_owned()));
    };
    // Has the kernel begin with all files at once.
    rustix::fs::syncfs(&opened).map_err(|errno| failed(errno.into()))?;
    let mut files = OpenFiles { device, synced: HashSet::new(), unseen: false, unopened: false };
    files.sync_all().map_err(failed)?;
    opened.sync_all().map_err(failed)?;
    if files.unopened || files.unseen && mount.super_option("allow_other").is_some() {
        return Err(SyncError::Unseen { dir: dir.to_owned() });
    }
    Ok(())
}

/// The files of one mount that processes have open for writing.
struct OpenFiles {
    device: MountDevice,
    /// By inode.
    synced: HashSet<u64>,
    /// A process of another user may not be looked at.
    unseen: bool,
    /// A file is not for this user to open.
    unopened: bool,
}

impl OpenFiles {
    fn sync_all(&mut self) -> io::Result<()> {
        for process in fs::read_dir("/proc")?.flatten() {
            if process.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
                match self.sync_open(&process.path()).and_then(|()| self.sync_mapped(&process.path())) {
                    Err(error) if is_hidden(&error) => self.unseen |= is_of_another_user(&process.path()),
                    // It has ended, and its files are closed.
                    Err(error) if is_gone(&error) => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }

    fn sync_open(&mut self, process: &Path) -> io::Result<()> {
        for entry in fs::read_dir(process.join("fd"))?.flatten() {
            let told = fs::read_to_string(process.join("fdinfo").join(entry.file_name()));
            if told.is_ok_and(|told| is_open_for_writing(&told)) {
                self.sync_file(&entry.path())?;
            }
        }
        Ok(())
    }

    fn sync_mapped(&mut self, process: &Path) -> io::Result<()> {
        for line in fs::read_to_string(process.join("maps"))?.lines() {
            let Some((range, path)) = mapped_for_writing(line, self.device) else { continue };
            // The first is for privileged processes alone, and finds files without a name too.
            match self.sync_file(&process.join("map_files").join(range)) {
                Err(error) if is_hidden(&error) => self.sync_file(&path)?,
                done => done?,
            }
        }
        Ok(())
    }

    fn sync_file(&mut self, path: &Path) -> io::Result<()> {
        // Held, so that what is opened is what was looked at.
        let held = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
            held => held?,
        };
        // What is known of it without asking its server, which may be another's and not answer.
        let asked = StatxFlags::TYPE | StatxFlags::INO;
        let found = match rustix::fs::statx(&held, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, asked)
        {
            // Of another mount: this one let us in.
            Err(Errno::ACCESS) => return Ok(()),
            found => found?,
        };
        let on = MountDevice { major: found.stx_dev_major, minor: found.stx_dev_minor };
        let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
        if on != self.device || !is_file || !self.synced.insert(found.stx_ino) {
            return Ok(());
        }
        let open = |write: bool| {
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let path = format!("/proc/self/fd/{}", held.as_raw_fd());
            OpenOptions::new().read(!write).write(write).custom_flags(flags).open(path)
        };
        match open(false).or_else(|_| open(true)) {
            // A process got at it that may do more than this one, or its mode was changed since.
            Err(error) if is_hidden(&error) => self.unopened = true,
            opened => opened?.sync_all()?,
        }
        Ok(())
    }
}

/// Whether a `/proc/.../fdinfo/...` is one of a file open for writing.
fn is_open_for_writing(told: &str) -> bool {
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 0o3 != 0)
}

/// The range and the path of a line of `/proc/.../maps` that maps a file of `device` so that writing changes the file.
fn mapped_for_writing(line: &str, device: MountDevice) -> Option<(&str, PathBuf)> {
    let mut fields = line.splitn(6, ' ');
    let (range, permissions, _offset, on) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (major, minor) = on.split_once(':')?;
    let on = MountDevice {
        major: u32::from_str_radix(major, 16).ok()?,
        minor: u32::from_str_radix(minor, 16).ok()?,
    };
    let changes = permissions.as_bytes().get(1) == Some(&b'w') && permissions.ends_with('s');
    (changes && on == device).then(|| (range, PathBuf::from(fields.nth(1).unwrap_or_default().trim_start())))
}

fn is_hidden(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

fn is_of_another_user(process: &Path) -> bool {
    fs::metadata(process).is_ok_and(|found| found.uid() != rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_for_writing_are_told_from_others() {
        assert!(is_open_for_writing("pos:\t0\nflags:\t0100001\nmnt_id:\t9\n"));
        assert!(is_open_for_writing("pos:\t0\nflags:\t02100002\n"));
        assert!(!is_open_for_writing("pos:\t0\nflags:\t0100000\n"));
        assert!(!is_open_for_writing(""));
    }

    #[test]
    fn shared_mappings_for_writing_are_told_from_others() {
        let device = MountDevice { major: 0, minor: 0x2f };
        let path = |line| mapped_for_writing(line, device).map(|(range, path)| (range.to_owned(), path));
        let found = path("7f0000000000-7f0000001000 rw-s 00000000 00:2f 12          /mnt/a b");
        assert_eq!(found, Some(("7f0000000000-7f0000001000".to_owned(), PathBuf::from("/mnt/a b"))));
        assert_eq!(path("7f0000000000-7f0000001000 rw-p 00000000 00:2f 12          /mnt/a"), None);
        assert_eq!(path("7f0000000000-7f0000001000 r--s 00000000 00:2f 12          /mnt/a"), None);
        assert_eq!(path("7f0000000000-7f0000001000 rw-s 00000000 00:30 12          /mnt/a"), None);
        assert_eq!(path("7f0000000000-7f0000001000 rw-s 00000000 00:00 0"), None);
    }
}
