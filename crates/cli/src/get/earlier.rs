//! What an interrupted run left that need not be copied again.
//!
//! A regular file has its name only when its bytes and its metadata are there (see `partial`), so size and time of
//! modification tell whether it is the copy of a file of the image. Nothing that differs is written over.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use undercroft_vfs::{Attr, FileType, Node};

use super::metadata;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Whether `name` is there and is the copy of `node`, which is no directory.
///
/// # Errors
/// Something else has the name.
pub(crate) fn made(dir: &OwnedFd, name: &[u8], node: &Arc<Node>, path: &[u8]) -> Result<bool, Failure> {
    let host =
        |error: Errno| Failure::host(format!("cannot look at the copy of {}", safe(path)), &error.into());
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(host(error)),
    };
    let attr = node.attr();
    let same_kind = rustix::fs::FileType::from_raw_mode(stat.st_mode).as_raw_mode() == attr.kind.mode_bits();
    let same = same_kind
        && match attr.kind {
            FileType::Regular => is_copy_of_file(&stat, &attr),
            FileType::Symlink => {
                let target = node.read_link().map_err(|error| Failure::inside(path, &error))?;
                let found = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(host)?;
                found.as_bytes() == &target[..]
            }
            FileType::CharDevice | FileType::BlockDevice => {
                stat.st_rdev == rustix::fs::makedev(attr.rdev.major, attr.rdev.minor)
            }
            FileType::Fifo | FileType::Socket => true,
            FileType::Directory => false,
        };
    if same {
        return Ok(true);
    }
    Err(Failure::new(
        Kind::Host,
        format!("what has the name of the copy of {} is something else", safe(path)),
    )
    .advise("move it away and run this again"))
}

fn is_copy_of_file(stat: &Stat, attr: &Attr) -> bool {
    let modified = metadata::timespec(attr.modified);
    u64::try_from(stat.st_size) == Ok(attr.size_bytes)
        && stat.st_mtime == modified.tv_sec
        && u64::try_from(modified.tv_nsec) == Ok(stat.st_mtime_nsec)
}
