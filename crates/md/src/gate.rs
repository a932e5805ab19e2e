//! The gate that every write of an array enters, and the turn that every change of its state takes.
//!
//! [`Gate`]: writers pass in any number and meet no other: each counts itself on a cache line that it shares with few.
//! A thread that must have no write under way (a member joins, the array is marked clean) closes the gate, waits until
//! all writers inside have left, does its work, and opens it again. One closes it at a time.
//!
//! [`Turn`]: one at a time, kept over I/O. It is no lock of the lock order, since members may themselves be arrays with
//! turns of their own. Order: the gate first, then a turn; a thread that has a turn waits for no gate. So a writer inside may
//! report a failed member, which takes a turn, while a thread waits for the gate to empty.
//!
//! Called by the array for each write, by [`Shared`](crate::level::Shared) and by the array's own threads.

use undercroft_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use undercroft_sync::{WaitQueue, thread_number};

/// Enough that the threads of a large machine rarely share one.
const SHARDS: usize = 64;
/// A shard counts the writers inside in its lower half, and all that ever entered in its upper half, which may wrap.
const ENTERED: u64 = 1 << 32;
const INSIDE: u64 = ENTERED - 1;

/// Lets writers pass, or none.
#[derive(Debug)]
pub(crate) struct Gate {
    shards: Box<[Shard]>,
    /// Whether newcomers wait. Written by the holder of `closing`.
    closed: AtomicBool,
    closing: Turn,
    opened: WaitQueue,
    left: WaitQueue,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(AtomicU64);

/// A writer inside the gate, until dropped.
#[derive(Debug)]
#[must_use = "the writer leaves when this is dropped"]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    shard: &'a Shard,
}

/// No writer is inside the gate, until this is dropped.
#[derive(Debug)]
#[must_use = "the gate opens when this is dropped"]
pub(crate) struct Quiet<'a> {
    gate: &'a Gate,
    _closing: TurnGuard<'a>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            closed: AtomicBool::new(false),
            closing: Turn::new(),
            opened: WaitQueue::new(),
            left: WaitQueue::new(),
        }
    }

    /// Enters, after a wait if the gate is closed. A thread enters once at a time.
    pub(crate) fn enter(&self) -> Pass<'_> {
        let shard = &self.shards[thread_number() % SHARDS];
        loop {
            // Sequentially consistent, as the closer's two steps: either it sees us inside or we see it closed.
            shard.0.fetch_add(ENTERED + 1, Ordering::SeqCst);
            let pass = Pass { gate: self, shard };
            if !self.closed.load(Ordering::SeqCst) {
                return pass;
            }
            drop(pass);
            self.opened.wait(|| !self.closed.load(Ordering::SeqCst));
        }
    }

    /// Closes the gate and returns when no writer is inside.
    pub(crate) fn quiesce(&self) -> Quiet<'_> {
        let closing = self.closing.take();
        self.closed.store(true, Ordering::SeqCst);
        // From here on the gate opens again whatever happens.
        let quiet = Quiet { gate: self, _closing: closing };
        self.left.wait(|| self.shards.iter().all(|shard| shard.0.load(Ordering::SeqCst) & INSIDE == 0));
        quiet
    }

    /// A number that has changed if a writer has entered since it was asked for the last time, and is the same if not.
    pub(crate) fn entered(&self) -> u64 {
        // An entry adds to the upper half of one shard; the sum of the upper halves tells how many there were.
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0.load(Ordering::Relaxed) >> 32))
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.shard.0.fetch_sub(1, Ordering::SeqCst);
        if self.gate.closed.load(Ordering::SeqCst) {
            self.gate.left.wake_all();
        }
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.gate.closed.store(false, Ordering::SeqCst);
        self.gate.opened.wake_all();
    }
}

/// One at a time, served in the order they come.
#[derive(Debug)]
pub(crate) struct Turn {
    taken: AtomicBool,
    queue: WaitQueue,
}

/// It is the caller's turn, until this is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub(crate) struct TurnGuard<'a>(&'a Turn);

impl Turn {
    pub(crate) const fn new() -> Self {
        Self { taken: AtomicBool::new(false), queue: WaitQueue::new() }
    }

    /// Waits for the turn.
    pub(crate) fn take(&self) -> TurnGuard<'_> {
        self.queue.wait_exclusive(|| !self.taken.swap(true, Ordering::Acquire));
        TurnGuard(self)
    }
}

impl Drop for TurnGuard<'_> {
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
        let (gate, inside) = (Gate::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5000 {
                        let _pass = gate.enter();
                        inside.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _quiet = gate.quiesce();
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
        let gate = Gate::new();
        let before = gate.entered();
        assert_eq!(gate.entered(), before);
        drop(gate.enter());
        assert_ne!(gate.entered(), before);
    }

    #[test]
    fn a_turn_is_one_at_a_time() {
        let (turn, inside) = (Turn::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _turn = turn.take();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
