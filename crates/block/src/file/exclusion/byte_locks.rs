//! Locks on ranges of bytes: QEMU's, taken and respected as QEMU does, and those of other programs.
//!
//! QEMU describes what a user of an image does by permissions, one byte each: a shared lock on byte 100 + n says that
//! the permission is used, one on byte 200 + n that others must not use it. A user takes its own locks first and then
//! looks for others': of two that come at once at least one finds the other. All of them are locks of the open file,
//! so they end with it.
//!
//! Locks elsewhere in the file are those of programs that lock what they have open (virtlockd, databases). No locks of
//! ours are involved.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::Access;

/// First bytes of the two tables of permissions, and how many bytes QEMU looks at from each.
const USED: i64 = 100;
const UNSHARED: i64 = 200;
const TABLE_BYTES: i64 = 64;

/// Permissions, as QEMU numbers them.
const CONSISTENT_READ: i64 = 0;
const WRITE: i64 = 1;
const WRITE_UNCHANGED: i64 = 2;
const RESIZE: i64 = 3;

/// What an opener does, and what others must not do meanwhile.
struct Claims {
    used: &'static [i64],
    unshared: &'static [i64],
}

/// As QEMU does it for a disk of a guest, and for its own readers.
const fn claims(access: Access) -> Claims {
    match access {
        Access::ReadWrite => {
            Claims { used: &[CONSISTENT_READ, WRITE, RESIZE], unshared: &[WRITE, WRITE_UNCHANGED, RESIZE] }
        }
        Access::ReadOnly => Claims { used: &[CONSISTENT_READ], unshared: &[WRITE, RESIZE] },
    }
}

/// The bytes of a lock that is in the way.
pub(super) type Range = RangeInclusive<u64>;

/// Takes the locks that belong to `access`. Returns the locks of others that are in the way.
///
/// # Errors
/// The filesystem has no such locks.
pub(super) fn acquire(file: &File, access: Access) -> io::Result<Vec<Range>> {
    let claims = claims(access);
    let used = claims.used.iter().map(|permission| USED + permission);
    let unshared = claims.unshared.iter().map(|permission| UNSHARED + permission);
    for byte in used.chain(unshared) {
        match set(file, libc::F_RDLCK, byte, 1) {
            Ok(()) => {}
            // Another program holds that byte exclusively, which the check for conflicts finds as well.
            Err(Errno::EAGAIN | Errno::EACCES) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    conflicts(file, access)
}

/// The locks of others that are in the way of `access`.
pub(super) fn conflicts(file: &File, access: Access) -> io::Result<Vec<Range>> {
    let claims = claims(access);
    let mut found = Vec::new();
    let against_use = claims.used.iter().map(|permission| UNSHARED + permission);
    let against_sharing = claims.unshared.iter().map(|permission| USED + permission);
    for byte in against_use.chain(against_sharing) {
        found.extend(conflict(file, libc::F_WRLCK, byte, 1)?);
    }
    // A writer minds every lock outside of QEMU's tables, a reader only those of writers.
    let kind = match access {
        Access::ReadWrite => libc::F_WRLCK,
        Access::ReadOnly => libc::F_RDLCK,
    };
    for (start, len) in [
        (0, USED),
        (USED + TABLE_BYTES, UNSHARED - USED - TABLE_BYTES),
        // 0 is as far as files go.
        (UNSHARED + TABLE_BYTES, 0),
    ] {
        found.extend(conflict(file, kind, start, len)?);
    }
    // One lock may be found at several of its bytes.
    found.dedup();
    Ok(found)
}

/// Gives all of them back.
pub(super) fn release(file: &File) {
    // Nothing is left to be done about a failure: the file is about to be closed.
    let _ = set(file, libc::F_UNLCK, 0, 0);
}

fn set(file: &File, kind: i32, start: i64, len: i64) -> Result<(), Errno> {
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&request(kind, start, len))) {
            Err(Errno::EINTR) => {}
            done => return done.map(drop),
        }
    }
}

/// The lock that keeps this one from being taken.
fn conflict(file: &File, kind: i32, start: i64, len: i64) -> io::Result<Option<Range>> {
    let mut lock = request(kind, start, len);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let first = lock.l_start.cast_unsigned();
    let last = match lock.l_len {
        0 => u64::MAX,
        len => first.saturating_add(len.cast_unsigned() - 1),
    };
    Ok(Some(first..=last))
}

fn request(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}
