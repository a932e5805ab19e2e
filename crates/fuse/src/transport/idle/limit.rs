//! Which event loops wait for requests.
//!
//! The kernel gives a request to the loop that has waited longest. Where all loops wait, each request wakes another one,
//! with cold caches; where few wait, the loop that has just answered is soon asked again. So while waking a loop costs
//! little (see `polling`), [`WAITING_MAX`] loops wait at most, and the others rest until no loop waits any more.
//!
//! No loop rests while no loop has a turn: the loop that gives the last turn back wakes one that rests, which takes it.
//! Where waking a loop costs much, all loops wait and take no turns.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use undercroft_sync::WaitQueue;

/// One more than the loop that is asked again: a request that no program waits for, such as the release of a closed file,
/// comes together with the next one.
const WAITING_MAX: usize = 2;

/// The turns of all loops of a mount.
#[derive(Debug)]
pub(in crate::transport) struct WaitPermits {
    waiting: AtomicUsize,
    /// The connection has ended: all loops may wait, and return at once.
    closed: AtomicBool,
    resting: WaitQueue,
}

/// A loop's turn to wait for a request, until dropped.
#[derive(Debug)]
pub(in crate::transport) struct WaitPermit<'a>(&'a WaitPermits);

impl WaitPermits {
    pub(in crate::transport) const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), closed: AtomicBool::new(false), resting: WaitQueue::new() }
    }

    /// Rests until it is the calling loop's turn.
    pub(in crate::transport) fn take(&self) -> WaitPermit<'_> {
        self.resting.wait_exclusive(|| {
            let all = self.closed.load(Ordering::Relaxed);
            let take = |waiting| (all || waiting < WAITING_MAX).then_some(waiting + 1);
            self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
        });
        WaitPermit(self)
    }

    /// No more requests come.
    pub(in crate::transport) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.resting.wake_all();
    }
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.resting.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::io::{read, write};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// A loop that gets this ends.
    const END: &[u8; 1] = b"!";

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_thread_may_wait_once_two_others_have_stopped() {
        let turns = WaitPermits::new();
        let (sender, came) = mpsc::channel();
        thread::scope(|scope| {
            let (first, second) = (turns.take(), turns.take());
            scope.spawn(|| {
                let turn = turns.take();
                sender.send(()).unwrap();
                drop(turn);
            });
            while turns.resting.waiting() == 0 {
                thread::yield_now();
            }
            // One is left.
            drop(first);
            assert!(came.try_recv().is_err());
            drop(second);
            assert_eq!(came.recv_timeout(LONG), Ok(()));
        });
        assert_eq!(turns.waiting.into_inner(), 0);
    }

    #[test]
    fn all_threads_are_woken_at_the_end() {
        let turns = WaitPermits::new();
        thread::scope(|scope| {
            let _two = (turns.take(), turns.take());
            let rest = || drop(turns.take());
            let (one, other) = (scope.spawn(rest), scope.spawn(rest));
            while turns.resting.waiting() < 2 {
                thread::yield_now();
            }
            turns.close();
            one.join().unwrap();
            other.join().unwrap();
            drop(turns.take());
        });
    }

    /// Each request is answered before the next one comes.
    #[test]
    fn at_least_one_thread_waits_in_every_schedule() {
        let turns = WaitPermits::new();
        let (client, server) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let serve = || {
            loop {
                let turn = turns.take();
                let mut request = [0];
                read(&server, &mut request).unwrap();
                drop(turn);
                if request == *END {
                    return turns.close();
                }
                write(&server, &request).unwrap();
            }
        };
        thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(serve)));
            for _ in 0..20_000 {
                write(&client, b"?").unwrap();
                read(&client, &mut [0]).unwrap();
            }
            (0..8).for_each(|_| assert_eq!(write(&client, END), Ok(1)));
        });
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
    }
}
