//! Unmounting while tests beside this one start processes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use undercroft_fuse::UnmountError;

const PATIENCE: Duration = Duration::from_secs(10);

/// Unmounts as soon as no process uses the mount, and waits ten seconds for that at most.
///
/// A process that another thread of this one starts has everything open that is open here, until it executes its
/// program: a file closed here can keep its mount busy for a moment.
///
/// # Errors
/// Those of `unmount`: [`UnmountError::Busy`] of the last attempt, any other of the first one that tells it.
pub fn unmount_when_idle(unmount: impl Fn() -> Result<(), UnmountError>) -> Result<(), UnmountError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match unmount() {
            Err(UnmountError::Busy(_)) if Instant::now() < end => sleep(Duration::from_millis(5)),
            outcome => return outcome,
        }
    }
}
