//! The lock between programs: BSD `flock` on the whole file.
//!
//! It belongs to the open file and ends with it at the latest, however the program ends. Of the three kinds that Linux
//! has it is the one that `udev` and other tools for block devices agree on, and unlike a POSIX lock it is not lost
//! when the program closes the same file elsewhere.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Access;

/// Takes the lock that `access` asks for; `false` if others still have one that excludes it after so long.
pub(super) fn acquire(file: &File, access: Access, patience: Duration) -> Result<bool, Errno> {
    let give_up = Instant::now() + patience;
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < give_up => thread::sleep(super::PAUSE),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
}

/// Gives the lock back, if there is one.
pub(super) fn release(file: &File) {
    // Nothing is left to be done about a failure: the file is about to be closed, or was not locked.
    let _ = flock(file, FlockOperation::Unlock);
}
