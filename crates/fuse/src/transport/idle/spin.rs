//! Waiting for the next request: an event loop spins for a moment, then sleeps.
//!
//! Waking a thread costs more than answering most requests, and much more where its processor halted with it. A program
//! that has got an answer often asks again at once. So after an answer an event loop goes on asking the kernel for some
//! microseconds, yielding its processor in between, and only then sleeps. No more loops spin than there are processors,
//! and no more than a few.
//!
//! Where other programs need the processors, a loop that yields waits at the end of their queue, for milliseconds, while
//! requests wait; a loop that sleeps runs as soon as it is woken. So when a yield returns late, all loops sleep right after
//! each answer for a while. They also do so while idle processors poll (see `polling`): a sleeping loop is woken quickly
//! then, and a spinning one takes a processor from the client.

use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use super::limit::WaitPermits;
use super::polling::Pace;
use crate::transport::device::{Device, Received};

/// About as long as it takes to fall asleep and be woken. Against sleeping at once: 1.1 times the pairs of `create-unlink`
/// by one process and by two (docs/PERFORMANCE.md).
const AWAKE: Duration = Duration::from_micros(50);

/// Loops that spin at a time at most, however many processors there are.
const AWAKE_MAX: usize = 4;

/// A yield that returns later than this has let another program run. A client that takes its answer and asks again needs
/// less.
const LATE: Duration = Duration::from_micros(200);

/// For so long no loop spins then.
const REST: Duration = Duration::from_millis(200);

/// How many more event loops may spin, and when.
#[derive(Debug)]
pub(in crate::transport) struct Watch {
    places: AtomicUsize,
    begun: Instant,
    /// Until when no loop spins: nanoseconds since `begun`.
    rest_until: AtomicU64,
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
        let places = AtomicUsize::new(places);
        Self { places, begun: Instant::now(), rest_until: AtomicU64::new(0) }
    }

    /// A processor that was offered at one moment has come back at another.
    fn came_back(&self, offered: Instant, back: Instant) {
        if back.saturating_duration_since(offered) > LATE {
            let until = back.saturating_duration_since(self.begun) + REST;
            self.rest_until.store(until.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn is_resting(&self, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.begun);
        (now.as_nanos() as u64) < self.rest_until.load(Ordering::Relaxed)
    }

    fn place(&self, now: Instant) -> Option<Place<'_>> {
        if self.is_resting(now) {
            return None;
        }
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
        let mut now = Instant::now();
        if !is_polling
            && let Some(watch) = self.watch
            && let Some(_place) = watch.place(now)
        {
            self.set_waiting(false)?;
            let until = now + AWAKE;
            loop {
                match self.device.receive(buffer)? {
                    Received::Request(len) => return Ok(Some(len)),
                    Received::Gone => return Ok(None),
                    Received::Nothing if now < until => {}
                    Received::Nothing => break,
                }
                let offered = Instant::now();
                thread::yield_now();
                now = Instant::now();
                watch.came_back(offered, now);
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
        let now = Instant::now();
        let place = watch.place(now);
        assert!(place.is_some() && watch.place(now).is_none());
        kernel.send(b"request").unwrap();
        assert_eq!(watcher.receive(&mut [0; 16]).unwrap(), Some(7));
        assert!(watcher.waiting);
        drop(place);
        assert!(watch.place(now).is_some());
    }

    #[test]
    fn spinning_ends_where_others_need_the_processor() {
        let watch = Watch::with_places(1);
        let now = watch.begun + REST;
        watch.came_back(now, now + LATE);
        assert!(watch.place(now).is_some());
        watch.came_back(now, now + 2 * LATE);
        assert!(watch.place(now + 2 * LATE).is_none());
        assert!(watch.place(now + REST).is_none());
        assert!(watch.place(now + REST + 2 * LATE).is_some());
    }
}
