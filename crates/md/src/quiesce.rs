//! The count of active writes, which can be brought to zero and held there, and a mutex that is held over I/O.
//!
//! [`ActiveWrites`]: any number of writers enter and share no cache line with most others. A thread that must have no write
//! under way (a member joins, the array is marked clean) quiesces: new writers wait, and it goes on when those that entered
//! have left. One thread quiesces at a time.
//!
//! [`IoMutex`]: held over I/O, so it is no lock of the lock order: members may themselves be arrays with such mutexes of
//! their own. Order: the active writes first, then an `IoMutex`; a thread that holds an `IoMutex` neither enters nor
//! quiesces. So a writer that has entered may report a failed member, which takes an `IoMutex`, while a thread quiesces.
//!
//! Called by the array for each write, by [`Shared`](crate::level::Shared) and by the array's own threads.

use undercroft_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use undercroft_sync::{WaitQueue, thread_number};

/// Enough that the threads of a large machine rarely share one.
const SHARDS: usize = 64;
/// A shard counts the writers inside in its lower half, and all that ever entered in its upper half, which may wrap.
const ENTERED: u64 = 1 << 32;
const INSIDE: u64 = ENTERED - 1;

/// The writes of an array that are under way.
#[derive(Debug)]
pub(crate) struct ActiveWrites {
    shards: Box<[Shard]>,
    /// Whether newcomers wait. Written by the holder of `closing`.
    closed: AtomicBool,
    closing: IoMutex,
    opened: WaitQueue,
    left: WaitQueue,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

/// A write that is under way, until this is dropped.
#[derive(Debug)]
#[must_use = "the writer leaves when this is dropped"]
pub(crate) struct ActiveWrite<'a> {
    writes: &'a ActiveWrites,
    shard: &'a Shard,
}

/// No write is under way, until this is dropped.
#[derive(Debug)]
#[must_use = "writers wait until this is dropped"]
pub(crate) struct Quiesced<'a> {
    writes: &'a ActiveWrites,
    _closing: IoMutexGuard<'a>,
}

impl ActiveWrites {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            closed: AtomicBool::new(false),
            closing: IoMutex::new(),
            opened: WaitQueue::new(),
            left: WaitQueue::new(),
        }
    }

    /// Enters, after a wait while another thread quiesces. A thread enters once at a time.
    pub(crate) fn enter(&self) -> ActiveWrite<'_> {
        let shard = &self.shards[thread_number() % SHARDS];
        loop {
            // Sequentially consistent, as the closer's two steps: either it sees us inside or we see it closed.
            shard.0.fetch_add(ENTERED + 1, Ordering::SeqCst);
            let active = ActiveWrite { writes: self, shard };
            if !self.closed.load(Ordering::SeqCst) {
                return active;
            }
            drop(active);
            self.opened.wait(|| !self.closed.load(Ordering::SeqCst));
        }
    }

    /// Lets no new writer enter, and returns when none is left.
    pub(crate) fn quiesce(&self) -> Quiesced<'_> {
        let closing = self.closing.lock();
        self.closed.store(true, Ordering::SeqCst);
        // From here on writers are let in again, whatever happens.
        let quiesced = Quiesced { writes: self, _closing: closing };
        self.left.wait(|| self.shards.iter().all(|shard| shard.0.load(Ordering::SeqCst) & INSIDE == 0));
        quiesced
    }

    /// A number that has changed if a writer has entered since it was asked for the last time, and is the same if not.
    pub(crate) fn entered(&self) -> u64 {
        // An entry adds to the upper half of one shard; the sum of the upper halves tells how many there were.
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0.load(Ordering::Relaxed) >> 32))
    }
}

impl Drop for ActiveWrite<'_> {
    fn drop(&mut self) {
        self.shard.0.fetch_sub(1, Ordering::SeqCst);
        if self.writes.closed.load(Ordering::SeqCst) {
            self.writes.left.wake_all();
        }
    }
}

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        self.writes.closed.store(false, Ordering::SeqCst);
        self.writes.opened.wake_all();
    }
}

/// A mutex that may be held over I/O; threads get it in the order in which they came.
#[derive(Debug)]
pub(crate) struct IoMutex {
    taken: AtomicBool,
    queue: WaitQueue,
}

/// The mutex is held until this is dropped.
#[derive(Debug)]
#[must_use = "the mutex is released when this is dropped"]
pub(crate) struct IoMutexGuard<'a>(&'a IoMutex);

impl IoMutex {
    pub(crate) const fn new() -> Self {
        Self { taken: AtomicBool::new(false), queue: WaitQueue::new() }
    }

    /// Waits until the mutex is free, and takes it.
    pub(crate) fn lock(&self) -> IoMutexGuard<'_> {
        self.queue.wait_exclusive(|| !self.taken.swap(true, Ordering::Acquire));
        IoMutexGuard(self)
    }
}

impl Drop for IoMutexGuard<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
        self.0.queue.wake_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    #[test]
    fn no_writer_is_inside_while_the_gate_is_closed() {
        let (writes, inside) = (ActiveWrites::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let _active = writes.enter();
                        inside.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _quiesced = writes.quiesce();
                        for _ in 0..3 {
                            assert_eq!(inside.load(Ordering::SeqCst), 0);
                            thread::yield_now();
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn entries_are_told_from_none() {
        let writes = ActiveWrites::new();
        let before = writes.entered();
        assert_eq!(writes.entered(), before);
        drop(writes.enter());
        assert_ne!(writes.entered(), before);
    }

    #[test]
    fn a_turn_is_one_at_a_time() {
        let (mutex, inside) = (IoMutex::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _guard = mutex.lock();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
