//! The lock between programs: BSD `flock` on the whole file.
//!
//! It belongs to the open file and ends with it, however the program ends. Of the three kinds that Linux has it is
//! the one that `udev` and other tools for block devices agree on, and unlike a POSIX lock it is not lost when the
//! program closes the same file elsewhere.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Access, OpenError};

/// Takes the lock that `access` asks for, or says at once who may not have it.
pub(super) fn acquire(file: &File, path: &Path, access: Access) -> Result<(), OpenError> {
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        let path = || path.to_owned();
        return match flock(file, operation) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path(), wanted: access }),
            Err(errno) => Err(OpenError::LockUnsupported { path: path(), source: io::Error::from(errno) }),
        };
    }
}
