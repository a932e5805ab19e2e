//! A file of the copy that is not complete yet.
//!
//! It has a temporary name in the directory where it belongs and gets its own name when its bytes and its metadata
//! are there. A copy that is interrupted therefore leaves no file that looks complete and is not; what it leaves
//! under temporary names, the next run with `--resume` removes ([`remove_leftovers`]).

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::directory::Directory;

const PREFIX: &str = ".undercroft-partial-";
const WHILE_COPYING: Mode = Mode::RUSR.union(Mode::WUSR);

/// Removed when it is dropped before it was published.
#[derive(Debug)]
pub(crate) struct Partial {
    /// The file, open for writing.
    pub(crate) file: File,
    dir: Arc<Directory>,
    temporary: String,
    name: Vec<u8>,
    published: bool,
}

impl Partial {
    /// Makes an empty file that will become `name`.
    pub(crate) fn create(dir: &Arc<Directory>, name: &[u8]) -> Result<Self, Errno> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temporary = format!("{PREFIX}{}-{number}", std::process::id());
            match rustix::fs::openat(&dir.fd, &temporary, flags, WHILE_COPYING) {
                Ok(file) => {
                    let (dir, name) = (Arc::clone(dir), name.to_vec());
                    return Ok(Self { file: File::from(file), dir, temporary, name, published: false });
                }
                // Each number is tried once, so this ends when the directory's leftovers have been passed.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives it its name, unless something has that name.
    pub(crate) fn publish(mut self) -> Result<(), Errno> {
        let (dir, from) = (&self.dir.fd, &self.temporary);
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
            // If this fails, the next run with --resume tries again.
            let _ = rustix::fs::unlinkat(&self.dir.fd, &self.temporary, AtFlags::empty());
        }
    }
}

/// Removes what interrupted runs left in a directory.
pub(crate) fn remove_leftovers(dir: &OwnedFd) -> Result<(), Errno> {
    let mut leftovers = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(PREFIX.as_bytes())
            && rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        {
            leftovers.push(name.to_owned());
        }
    }
    for name in leftovers {
        rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
    }
    Ok(())
}
