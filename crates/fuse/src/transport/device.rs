//! The descriptor of a FUSE connection: one request for each read, one reply for each write.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Weak;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

const DEVICE: &str = "/dev/fuse";

/// A connection to the kernel, or another descriptor for the same.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// What came of asking for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// None now; one may come.
    Nothing,
    /// None ever: the mount is gone.
    Gone,
}

impl Device {
    /// Opens the device for a new connection.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(DEVICE)?.into()))
    }

    /// Another descriptor for the same connection. A request that is read from it is answered on it, and its
    /// bookkeeping does not meet that of other descriptors.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let other = Self::open()?;
        let number = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: FUSE_DEV_IOC_CLONE reads one u32 from the pointer it is given, which `Setter` points at
        // `number`.
        #[expect(unsafe_code, reason = "the kernel reads one u32, as this ioctl is documented to")]
        unsafe {
            ioctl(&other.0, Setter::<{ opcode::read::<u32>(229, 0) }, u32>::new(number))?;
        }
        Ok(other)
    }

    /// Takes a request, and waits for one unless told not to.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match rustix::io::read(&self.0, &mut *buffer) {
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Gone),
            Ok(len) => Ok(Received::Request(len)),
            // The first says that a request was interrupted before it was read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(Received::Nothing),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether [`receive`](Self::receive) waits, as it does at first. Applies to every holder of the descriptor.
    pub(super) fn set_waiting(&self, waiting: bool) -> io::Result<()> {
        let flags = if waiting { OFlags::empty() } else { OFlags::NONBLOCK };
        Ok(fcntl_setfl(&self.0, flags)?)
    }

    /// Whether the kernel has ended the connection: the mount is gone, or was aborted. The kernel does so before it gives
    /// the number of the mount's device to another mount.
    fn has_ended(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        loop {
            match poll(&mut polled, Some(&at_once)) {
                Err(Errno::INTR) => {}
                _ => return polled[0].revents().contains(PollFlags::ERR),
            }
        }
    }

    /// Sends a reply.
    pub(super) fn send(&self, reply: &[u8]) -> io::Result<()> {
        match rustix::io::write(&self.0, reply) {
            // The caller does not wait for it any more, or the mount is gone.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Tells whether a connection to the kernel has ended, and does not keep it.
///
/// While it has not, the number of the mount's device is that of this mount and of no other.
#[derive(Clone, Debug)]
pub struct WeakConnection(Weak<Device>);

impl WeakConnection {
    pub(super) const fn new(device: Weak<Device>) -> Self {
        Self(device)
    }

    /// Whether the mount is gone, or serves nothing any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.upgrade().is_none_or(|device| device.has_ended())
    }
}

impl From<OwnedFd> for Device {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Device> for OwnedFd {
    fn from(device: Device) -> Self {
        device.0
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
