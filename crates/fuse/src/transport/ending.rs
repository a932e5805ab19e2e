//! The end of a connection, as the event loop of the device learns of it and tells the threads that have rings.
//!
//! The kernel gives back the commands of all rings when a connection ends, and that is what their threads wait for. They
//! are told here as well: a thread that the kernel forgets would keep the server, and with it the image, for ever.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// Can be waited for by any number of threads.
pub(super) struct Ending(OwnedFd);

impl Ending {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// What becomes readable, and stays so, when the connection has ended.
    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// What tells of the end when it is dropped.
    pub(super) fn tell_on_drop(&self) -> TellOnDrop<'_> {
        TellOnDrop(self)
    }
}

pub(super) struct TellOnDrop<'a>(&'a Ending);

impl Drop for TellOnDrop<'_> {
    fn drop(&mut self) {
        // A counter that is full already has told.
        let _ = rustix::io::write(&self.0.0, &1_u64.to_ne_bytes());
    }
}
