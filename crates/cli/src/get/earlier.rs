//! What an interrupted run left that need not be copied again.
//!
//! A regular file has its name only when its bytes and its metadata are there (see `partial`), so size and time of
//! modification tell whether it is the copy of a file of the image. Nothing that differs is written over. The metadata
//! is put on again: other names than a regular file's are there before it, and the earlier run may have had other
//! options or another user.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use undercroft_vfs::{Attr, FileType, Node};

use super::metadata::{self, Keep, Lost, Subject};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

const WHILE_COPYING: Mode = Mode::RUSR.union(Mode::WUSR);

/// A copy that is there. Directories are none.
#[derive(Debug)]
pub(crate) struct Earlier {
    handle: OwnedFd,
    /// Device and inode number: names of one file have one.
    pub(crate) identity: (u64, u64),
}

/// The copy of `node` that has the name, if any has.
///
/// # Errors
/// Something else has the name.
pub(crate) fn made(
    dir: &OwnedFd,
    name: &[u8],
    node: &Arc<Node>,
    path: &[u8],
) -> Result<Option<Earlier>, Failure> {
    let host =
        |error: Errno| Failure::host(format!("cannot look at the copy of {}", safe(path)), &error.into());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(host(error)),
    };
    let stat = rustix::fs::fstat(&handle).map_err(host)?;
    let attr = node.attr();
    let same_kind = rustix::fs::FileType::from_raw_mode(stat.st_mode).as_raw_mode() == attr.kind.mode_bits();
    let same = same_kind
        && match attr.kind {
            FileType::Regular => is_copy_of_file(&stat, &attr),
            FileType::Symlink => {
                let target = node.read_link().map_err(|error| Failure::inside(path, &error))?;
                let found = rustix::fs::readlinkat(&handle, c"", Vec::new()).map_err(host)?;
                found.as_bytes() == &target[..]
            }
            FileType::CharDevice | FileType::BlockDevice => {
                stat.st_rdev == rustix::fs::makedev(attr.rdev.major, attr.rdev.minor)
            }
            FileType::Fifo | FileType::Socket => true,
            FileType::Directory => false,
        };
    // What an earlier run made belongs to that run's user or already to the original's, and has no name that it did
    // not give it. Any user that may write to the directory could have put something else there that looks the same.
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw() || stat.st_uid == attr.uid;
    let is_named_elsewhere = stat.st_nlink > attr.links.into();
    if same && is_own && !is_named_elsewhere {
        return Ok(Some(Earlier { handle, identity: (stat.st_dev, stat.st_ino) }));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let what =
        if same_kind && attr.kind == FileType::Regular && size < attr.size_bytes && same_time(&stat, &attr) {
            let whole = attr.size_bytes;
            format!(
                "the copy of {} ends after {size} of {whole} bytes, where an earlier run could not read on",
                safe(path)
            )
        } else {
            format!("something else has the name of the copy of {}", safe(path))
        };
    Err(Failure::new(Kind::Host, what).advise("move it away and run this again"))
}

fn is_copy_of_file(stat: &Stat, attr: &Attr) -> bool {
    u64::try_from(stat.st_size) == Ok(attr.size_bytes) && same_time(stat, attr)
}

fn same_time(stat: &Stat, attr: &Attr) -> bool {
    let modified = metadata::timespec(attr.modified);
    stat.st_mtime == modified.tv_sec && u64::try_from(modified.tv_nsec) == Ok(stat.st_mtime_nsec)
}

impl Earlier {
    /// Puts the metadata of `node` on it.
    pub(crate) fn complete(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        node: &Arc<Node>,
        path: &[u8],
        keep: Keep,
    ) -> Result<Lost, Failure> {
        if node.kind() != FileType::Regular {
            return metadata::apply(&Subject::Named { dir: dir.as_fd(), name }, node, path, keep)?
                .into_result();
        }
        // Its mode may keep its owner out.
        let handle = metadata::magic_path(self.handle.as_fd());
        let file = rustix::fs::chmod(&handle, WHILE_COPYING)
            .and_then(|()| rustix::fs::open(&handle, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
            .map_err(|error| {
                Failure::host(format!("cannot complete the copy of {}", safe(path)), &error.into())
            })?;
        metadata::apply(&Subject::Open(file.as_fd()), node, path, keep)?.into_result()
    }
}
