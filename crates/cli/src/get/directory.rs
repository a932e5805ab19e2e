//! A directory of the copy.
//!
//! Its metadata is set when the last name in it is final: making names changes its times, and may need rights that its
//! mode does not give. The thread that makes names and each file that is being filled hold it; the last to release it
//! ([`Directory::release`]) sets the metadata.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use undercroft_vfs::Node;

use super::metadata::{self, Keep, Lost, Subject};
use super::partial;
use crate::failure::Failure;

/// Only the owner may look in while a copy is being made.
const WHILE_COPYING: Mode = Mode::RWXU;
const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// For reading; names are made relative to it.
    pub(crate) fd: OwnedFd,
    /// What it is a copy of, and the path of that inside the image. The directory that a single file is put into is
    /// a copy of nothing.
    of: Option<(Arc<Node>, Vec<u8>)>,
}

impl Directory {
    /// A directory that is there already and stays as it is.
    pub(crate) fn existing(fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self { fd, of: None })
    }

    /// The copy of `node`.
    pub(crate) fn copy_of(node: &Arc<Node>, path: &[u8], fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self { fd, of: Some((Arc::clone(node), path.to_vec())) })
    }

    /// Releases it; the last release sets its metadata.
    pub(crate) fn release(self: Arc<Self>, keep: Keep) -> Result<Lost, Failure> {
        match Arc::into_inner(self) {
            Some(Self { fd, of: Some((node, path)) }) => {
                metadata::apply(&Subject::Open(fd.as_fd()), &node, &path, keep)?.into_result()
            }
            _ => Ok(Lost::default()),
        }
    }
}

/// Makes a directory.
pub(crate) fn make(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(dir, name, WHILE_COPYING)?;
    open(dir, name)
}

/// Opens a directory; a link is not followed.
pub(crate) fn open(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, OPEN | OFlags::RDONLY, Mode::empty())
}

/// Opens a directory that is there and is to be filled up, whatever mode it has.
pub(crate) fn fill_up(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let handle = rustix::fs::openat(dir, name, OPEN | OFlags::PATH, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode);
    if !mode.contains(WHILE_COPYING) {
        // If it is another user's, opening it or making names in it tells what is in the way.
        let _ = rustix::fs::chmod(metadata::magic_path(handle.as_fd()), mode | WHILE_COPYING);
    }
    let fd = open(&handle, b".")?;
    partial::remove_leftovers(&fd)?;
    Ok(fd)
}

/// Opens a directory that an earlier run made, whatever mode it has by now, to go on in it.
pub(crate) fn reopen(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let handle = rustix::fs::openat(dir, name, OPEN | OFlags::PATH, Mode::empty())?;
    rustix::fs::chmod(metadata::magic_path(handle.as_fd()), WHILE_COPYING)?;
    let fd = open(&handle, b".")?;
    partial::remove_leftovers(&fd)?;
    Ok(fd)
}
