//! Waiting for the next request: awake for a moment, then asleep.
//!
//! To wake a thread costs more than to answer most requests, and much more where its processor went to sleep with it. But
//! a program that has got an answer often asks again at once. So after an answer an event loop goes on asking the kernel
//! for some microseconds, offering its processor to others in between, and only then sleeps. Not more loops stay awake
//! than there are processors, and not more than a few.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use super::device::{Device, Received};

/// About as long as it takes to fall asleep and be woken.
const AWAKE: Duration = Duration::from_micros(50);

/// More loops than this do not stay awake at a time, however many processors there are.
const AWAKE_MAX: usize = 4;

/// How many event loops may stay awake yet.
#[derive(Debug)]
pub(super) struct Watch {
    places: AtomicUsize,
}

/// An event loop's end of the connection.
pub(super) struct Watcher<'a> {
    device: &'a Device,
    /// None where others have the same descriptor: they would not sleep either.
    watch: Option<&'a Watch>,
    /// Whether asking the device waits.
    waiting: bool,
}

/// A loop's place among those that stay awake, until dropped.
struct Place<'a>(&'a Watch);

impl Watch {
    pub(super) fn new() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self { places: AtomicUsize::new(processors.min(AWAKE_MAX)) }
    }

    fn place(&self) -> Option<Place<'_>> {
        let take = |places: usize| places.checked_sub(1);
        self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.places.fetch_add(1, Ordering::Relaxed);
    }
}

impl<'a> Watcher<'a> {
    pub(super) fn new(device: &'a Device, watch: Option<&'a Watch>) -> Self {
        Self { device, watch, waiting: true }
    }

    /// Waits for a request and tells its length; `None` when the mount is gone.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(_place) = self.watch.and_then(Watch::place) {
            self.set_waiting(false)?;
            let until = Instant::now() + AWAKE;
            loop {
                match self.device.receive(buffer)? {
                    Received::Request(len) => return Ok(Some(len)),
                    Received::Gone => return Ok(None),
                    Received::Nothing if Instant::now() < until => thread::yield_now(),
                    Received::Nothing => break,
                }
            }
        }
        self.set_waiting(true)?;
        loop {
            match self.device.receive(buffer)? {
                Received::Request(len) => return Ok(Some(len)),
                Received::Gone => return Ok(None),
                Received::Nothing => {}
            }
        }
    }

    fn set_waiting(&mut self, waiting: bool) -> io::Result<()> {
        if self.waiting != waiting {
            self.device.set_waiting(waiting)?;
            self.waiting = waiting;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// A device, and what the kernel has of it: each message is a request.
    fn device() -> (Device, Device) {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, kernels) = pair.unwrap();
        (ours.into(), kernels.into())
    }

    #[test]
    fn requests_are_taken_awake_and_asleep() {
        let (device, kernel) = device();
        let watch = Watch::new();
        let mut watcher = Watcher::new(&device, Some(&watch));
        let mut buffer = [0; 16];
        kernel.send(b"at once").unwrap();
        assert_eq!(watcher.receive(&mut buffer).unwrap(), Some(7));
        assert!(!watcher.waiting);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(100 * AWAKE);
                kernel.send(b"later").unwrap();
            });
            assert_eq!(watcher.receive(&mut buffer).unwrap(), Some(5));
        });
        assert!(watcher.waiting);
        assert_eq!(watch.places.into_inner(), Watch::new().places.into_inner());
    }

    #[test]
    fn only_so_many_stay_awake() {
        let watch = Watch { places: AtomicUsize::new(1) };
        let (device, kernel) = device();
        let mut watcher = Watcher::new(&device, Some(&watch));
        let place = watch.place();
        assert!(place.is_some() && watch.place().is_none());
        kernel.send(b"request").unwrap();
        assert_eq!(watcher.receive(&mut [0; 16]).unwrap(), Some(7));
        assert!(watcher.waiting);
        drop(place);
        assert!(watch.place().is_some());
    }
}
