//! The lock between programs: BSD `flock` on the whole file.
//!
//! It belongs to the open file and ends with it at the latest, however the program ends. Of the three kinds that Linux
//! has it is the one that `udev` and other tools for block devices agree on, and unlike a POSIX lock it is not lost
//! when the program closes the same file elsewhere.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::geometry::Kind;
use crate::{Access, OpenError};

/// How long a block device may be locked by others: whenever a writer has closed it, `udev` looks at it again and
/// holds a lock meanwhile.
const UDEV_PATIENCE: Duration = Duration::from_secs(2);

/// Takes the lock that `access` asks for, or says who may not have it: at once for a file, after a moment for a block
/// device.
pub(super) fn acquire(file: &File, kind: Kind, path: &Path, access: Access) -> Result<(), OpenError> {
    let give_up = Instant::now()
        + match kind {
            Kind::Regular => Duration::ZERO,
            Kind::BlockDevice => UDEV_PATIENCE,
        };
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        let path = || path.to_owned();
        return match flock(file, operation) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) if Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path(), wanted: access }),
            Err(errno) => Err(OpenError::LockUnsupported { path: path(), source: io::Error::from(errno) }),
        };
    }
}

/// Gives the lock back, if there is one.
///
/// Closing the file is not enough: a child process that another thread is just starting holds it open for a moment.
pub(super) fn release(file: &File) {
    // Nothing is left to be done about a failure: the file is about to be closed.
    let _ = flock(file, FlockOperation::Unlock);
}
