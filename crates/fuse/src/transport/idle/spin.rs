//! Waiting for the next request: an event loop spins for a moment, then sleeps.
//!
//! Waking a thread costs more than answering most requests, and much more where its processor halted with it. A program
//! that has got an answer often asks again at once. So after an answer an event loop goes on asking the kernel for some
//! microseconds, yielding its processor in between, and only then sleeps. No more loops spin than there are processors,
//! and no more than a few.
//!
//! While other programs need the processors a loop that yields comes back late. No request waits for it while another loop is
//! free: one that sleeps is woken for each. So spinning does not depend on the load, only on `poll_idle`: while idle
//! processors poll (see `polling`), all loops sleep right after each answer, because a sleeping loop is woken quickly then,
//! and a spinning one takes a processor from the client.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use super::limit::WaitPermits;
use super::polling::Pace;
use crate::transport::device::{Device, Received};

/// A few times what it takes to fall asleep and be woken: as long as a process takes that waits in the kernel for a lock
/// of another one before it asks. Against sleeping at once, and against 50 µs and stopping for 200 ms after each yield that
/// returned late: docs/PERFORMANCE.md, "Idle processors".
const AWAKE: Duration = Duration::from_micros(150);

/// Loops that spin at a time at most, however many processors there are.
const AWAKE_MAX: usize = 4;

/// How many more event loops may spin.
#[derive(Debug)]
pub(in crate::transport) struct Watch {
    places: AtomicUsize,
}

/// An event loop's end of the connection.
pub(in crate::transport) struct Watcher<'a> {
    device: &'a Device,
    /// None where other loops use the same descriptor: they would not sleep either.
    watch: Option<&'a Watch>,
    turns: &'a WaitPermits,
    pace: Pace<'a>,
    /// Whether asking the device waits.
    waiting: bool,
}

/// A loop's place among those that spin, until dropped.
struct Place<'a>(&'a Watch);

impl Watch {
    pub(in crate::transport) fn new() -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_places(processors.min(AWAKE_MAX))
    }

    fn with_places(places: usize) -> Self {
        Self { places: AtomicUsize::new(places) }
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
    pub(in crate::transport) fn new(
        device: &'a Device,
        watch: Option<&'a Watch>,
        turns: &'a WaitPermits,
        pace: Pace<'a>,
    ) -> Self {
        Self { device, watch, turns, pace, waiting: true }
    }

    /// Where replies go.
    pub(in crate::transport) fn device(&self) -> &'a Device {
        self.device
    }

    /// Waits for a request and tells its length; `None` when the mount is gone.
    pub(in crate::transport) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let is_polling = self.pace.is_polling();
        let turn = is_polling.then(|| self.turns.take());
        let received = self.wait(is_polling, buffer);
        drop(turn);
        match received {
            Ok(Some(_)) => self.pace.note_request(),
            Ok(None) | Err(_) => self.turns.close(),
        }
        received
    }

    /// Awake at first, unless idle processors poll, then asleep.
    fn wait(&mut self, is_polling: bool, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if !is_polling
            && let Some(watch) = self.watch
            && let Some(_place) = watch.place()
        {
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
        let (watch, turns) = (Watch::new(), WaitPermits::new());
        let mut watcher = Watcher::new(&device, Some(&watch), &turns, Pace::new(None));
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
        let (watch, turns) = (Watch::with_places(1), WaitPermits::new());
        let (device, kernel) = device();
        let mut watcher = Watcher::new(&device, Some(&watch), &turns, Pace::new(None));
        let place = watch.place();
        assert!(place.is_some() && watch.place().is_none());
        kernel.send(b"request").unwrap();
        assert_eq!(watcher.receive(&mut [0; 16]).unwrap(), Some(7));
        assert!(watcher.waiting);
        drop(place);
        assert!(watch.place().is_some());
    }
}
