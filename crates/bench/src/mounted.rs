//! A directory of a mounted filesystem and files in it, by the system calls that programs make.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Mode, OFlags, RawDir, StatxFlags, fsync, ftruncate, mkdirat, openat, renameat, statx, unlinkat,
};
use rustix::io::{Errno, pwrite, retry_on_intr};

use crate::BenchError;
use crate::directory::{Caching, Content, Directory, Resizable};

/// What the C library reads a directory with.
const LISTING_BUFFER_BYTES: usize = 32 * 1024;

/// An open directory.
pub(crate) struct MountedDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

/// An open file.
pub(crate) struct MountedFile {
    fd: OwnedFd,
    dir: PathBuf,
}

/// A directory of our own in the user's directory, which goes with everything in it when this is dropped.
pub(crate) struct Scratch(PathBuf);

impl MountedDirectory {
    pub(crate) fn open(path: &Path) -> Result<Self, BenchError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| BenchError::Directory {
            what: "work",
            path: path.to_owned(),
            source: error.into(),
        })?;
        Ok(Self { fd, path: path.to_owned() })
    }

    #[cold]
    fn refused(&self, what: &'static str, error: Errno) -> BenchError {
        refused(what, &self.path, error)
    }
}

#[cold]
fn refused(what: &'static str, dir: &Path, error: Errno) -> BenchError {
    BenchError::Directory { what, path: dir.to_owned(), source: error.into() }
}

impl Directory for MountedDirectory {
    type File = MountedFile;

    fn create(&self, name: &[u8]) -> Result<(), BenchError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        // Closed at once.
        openat(&self.fd, name, flags, Mode::from_raw_mode(0o644))
            .map(drop)
            .map_err(|error| self.refused("create a file", error))
    }

    fn inside(&self, name: &[u8]) -> Result<Self, BenchError> {
        match mkdirat(&self.fd, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(self.refused("make a directory", error)),
        }
        Self::open(&self.path.join(OsStr::from_bytes(name)))
    }

    fn unlink(&self, name: &[u8]) -> Result<(), BenchError> {
        unlinkat(&self.fd, name, AtFlags::empty()).map_err(|error| self.refused("unlink a file", error))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), BenchError> {
        renameat(&self.fd, from, &self.fd, to).map_err(|error| self.refused("rename a file", error))
    }

    fn stat(&self, name: &[u8]) -> Result<(), BenchError> {
        statx(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
            .map(|found| {
                std::hint::black_box(found);
            })
            .map_err(|error| self.refused("look a file up", error))
    }

    fn list(&self) -> Result<u64, BenchError> {
        let list = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(&self.fd, c".", flags, Mode::empty())?;
            let mut buffer = [MaybeUninit::uninit(); LISTING_BUFFER_BYTES];
            let mut entries = RawDir::new(fd, &mut buffer);
            let mut found = 0;
            while let Some(entry) = entries.next() {
                std::hint::black_box(entry?.file_name());
                found += 1;
            }
            Ok(found)
        };
        list().map_err(|error| self.refused("list the files", error))
    }

    fn open(&self, name: &[u8], caching: Caching) -> Result<MountedFile, BenchError> {
        let (what, caching) = match caching {
            Caching::Any => ("open a file", OFlags::empty()),
            Caching::None => ("open a file past the cache", OFlags::DIRECT),
        };
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | caching;
        openat(&self.fd, name, flags, Mode::from_raw_mode(0o644))
            .map(|fd| MountedFile { fd, dir: self.path.clone() })
            .map_err(|error| self.refused(what, error))
    }
}

impl MountedFile {
    #[cold]
    fn refused(&self, what: &'static str, error: Errno) -> BenchError {
        refused(what, &self.dir, error)
    }
}

impl Content for MountedFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BenchError> {
        let mut done = 0;
        while done < bytes.len() {
            let written = retry_on_intr(|| pwrite(&self.fd, &bytes[done..], offset + done as u64));
            done += written.map_err(|error| self.refused("write to a file", error))?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        retry_on_intr(|| fsync(&self.fd)).map_err(|error| self.refused("make a file durable", error))
    }
}

impl Resizable for MountedFile {
    fn set_size(&self, size: u64) -> Result<(), BenchError> {
        let set = retry_on_intr(|| ftruncate(&self.fd, size));
        set.map_err(|error| self.refused("set the size of a file", error))
    }
}

impl Scratch {
    pub(crate) fn new(parent: &Path) -> Result<Self, BenchError> {
        let path = parent.join(format!("undercroft-bench-{}", std::process::id()));
        let refused = |source: io::Error| BenchError::Directory {
            what: "make a directory to measure",
            path: parent.to_owned(),
            source,
        };
        fs::create_dir(&path).map_err(refused)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The measurement stands whether or not its litter can be removed; the next run will say what is in its way.
        let _ = fs::remove_dir_all(&self.0);
    }
}
