//! A file of the copy that is not complete yet.
//!
//! It has a temporary name in the directory where it belongs and gets its own name when its bytes and its metadata
//! are there. A copy that is interrupted therefore leaves no file that looks complete and is not; what it leaves
//! under temporary names, the next run to the same place removes ([`remove_leftovers`]).
//!
//! A temporary name holds the user, the process and a number, and the file is locked (`flock`) while it is in use. A
//! leftover that another run looks at is removed only while that run holds its lock. A new file that was removed
//! between its creation and its lock has no name when it is locked, and is then made again.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::directory::Directory;
use super::metadata;

const PREFIX: &str = ".undercroft-partial";
const WHILE_COPYING: Mode = Mode::RUSR.union(Mode::WUSR);

/// Removed when it is dropped before it was published.
#[derive(Debug)]
pub(crate) struct Partial {
    /// The file, open for writing.
    pub(crate) file: File,
    dir: Arc<Directory>,
    temporary: String,
    name: Vec<u8>,
    /// Whether what has the name already is replaced.
    replaces: bool,
    published: bool,
}

impl Partial {
    /// Makes an empty file that will become `name`, perhaps in the place of another.
    pub(crate) fn create(dir: &Arc<Directory>, name: &[u8], replaces: bool) -> Result<Self, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let temporary = next_name();
            let file = match rustix::fs::openat(&dir.fd, &temporary, flags, WHILE_COPYING) {
                Ok(file) => File::from(file),
                // Each number is tried once, so this ends when the directory's leftovers have been passed.
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error),
            };
            // Where a filesystem has no locks, the process in the name tells that it is in use.
            let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive).is_ok();
            if locked && rustix::fs::fstat(&file)?.st_nlink == 0 {
                continue;
            }
            let (dir, name) = (Arc::clone(dir), name.to_vec());
            return Ok(Self { file, dir, temporary, name, replaces, published: false });
        }
    }

    /// Only in part a copy: it does not replace what is there.
    pub(crate) fn is_incomplete(&mut self) {
        self.replaces = false;
    }

    /// Gives it its name, unless something has that name that it does not replace.
    pub(crate) fn publish(mut self) -> Result<(), Errno> {
        let (dir, from) = (&self.dir.fd, &self.temporary);
        if self.replaces {
            rustix::fs::renameat(dir, from, dir, &self.name)?;
            self.published = true;
            return Ok(());
        }
        match rustix::fs::renameat_with(dir, from, dir, &self.name, RenameFlags::NOREPLACE) {
            Ok(()) => self.published = true,
            // A filesystem that cannot promise to replace nothing; a link never replaces. The drop takes the
            // temporary name away.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(dir, from, dir, &self.name, AtFlags::empty())?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.published {
            // If this fails, the next run to the same place tries again.
            let _ = rustix::fs::unlinkat(&self.dir.fd, &self.temporary, AtFlags::empty());
        }
    }
}

/// A temporary name that this process has not used yet.
fn next_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (user, process) = (rustix::process::geteuid().as_raw(), std::process::id());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}-{user}-{process}-{number}")
}

/// Makes in one step what has no content, by a call that accepts no name that exists. What has the name already is
/// replaced if `replaces` says so and it is no directory.
pub(crate) fn make_named(
    dir: &OwnedFd,
    name: &[u8],
    replaces: bool,
    make: impl Fn(&[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match make(name) {
        Err(Errno::EXIST) if replaces => {}
        made => return made,
    }
    // Each number is tried once, so this ends when the directory's leftovers have been passed.
    let temporary = loop {
        let temporary = next_name();
        match make(temporary.as_bytes()) {
            Err(Errno::EXIST) => {}
            made => break made.map(|()| temporary)?,
        }
    };
    let replaced = rustix::fs::renameat(dir, &temporary, dir, name);
    // It is still there too if both are names of one file.
    let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
    replaced
}

/// Removes what interrupted runs of this user left in a directory, and nothing that a run uses.
pub(crate) fn remove_leftovers(dir: &OwnedFd) -> Result<(), Errno> {
    let mut leftovers = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if let Some(process) = process_of(entry.file_name().to_bytes()) {
            leftovers.push((entry.file_name().to_owned(), process));
        }
    }
    for (name, process) in leftovers {
        match remove_leftover(dir, &name, process) {
            // Another run was faster.
            Err(Errno::NOENT) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Whether a name is of the form of this user's temporary names.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    process_of(name).is_some()
}

/// The process in a temporary name, if this user's processes give such names.
fn process_of(name: &[u8]) -> Option<Pid> {
    let mut parts = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
    let mut number = || parts.next().filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let (user, process, count) = (number()?, number()?, number()?);
    count.parse::<u64>().ok()?;
    let ours = user.parse() == Ok(rustix::process::geteuid().as_raw()) && parts.next().is_none();
    Pid::from_raw(process.parse().ok()?).filter(|_| ours)
}

fn remove_leftover(dir: &OwnedFd, name: &CStr, process: Pid) -> Result<(), Errno> {
    let handle =
        rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    let user = rustix::process::geteuid();
    // Root gives the copy its owner before its name.
    let ours = user.is_root() || stat.st_uid == user.as_raw();
    if !ours || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(metadata::magic_path(handle.as_fd()), flags, Mode::empty());
    let locked = file
        .as_ref()
        .map_err(|error| *error)
        .and_then(|file| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive));
    let in_use = match locked {
        Ok(()) => false,
        Err(Errno::WOULDBLOCK) => true,
        // The copy's own mode keeps its owner out, or the filesystem has no locks.
        Err(_) => rustix::process::test_kill_process(process) != Err(Errno::SRCH),
    };
    if in_use { Ok(()) } else { rustix::fs::unlinkat(dir, name, AtFlags::empty()) }
}
