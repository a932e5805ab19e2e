//! The end of a connection, as the event loop of the device learns of it and tells the threads that have rings.
//!
//! Those threads end when the kernel has given their commands back, which it does when a connection ends. They are told
//! as well, so that no command that is not given back keeps the server, and with it the image, for ever.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd that is readable from the connection's end on. Any number of threads may wait for that.
pub(super) struct Ending(OwnedFd);

impl Ending {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The kernel has said that the connection is gone.
    pub(super) fn tell(&self) {
        // It fails only where the counter is full, and is readable then.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}
