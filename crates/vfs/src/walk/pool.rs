//! The parallel walk: a descent for each thread, and a heap of pieces for idle threads.
//!
//! A thread works on its own stack and looks at one atomic number between steps: how many threads wait. If any
//! do, it splits a piece off its work and wakes one. So a walk that keeps every thread busy shares nothing, and
//! the pieces on the heap are never more than the threads that wait.
//!
//! Locks: the heap (`walk`), held for a push or a pop.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::thread;

use undercroft_sync::{Mutex, WaitQueue, order};

use super::descent::{Descent, Order, Piece, Seen};
use super::{WalkEvent, WalkFlow, WalkOptions};
use crate::{Node, Vfs};

type Visitor<'v> = dyn Fn(WalkEvent<'_>) -> WalkFlow + Sync + 'v;

/// What the threads of a walk share.
struct Pool {
    heap: Mutex<Heap>,
    arrivals: WaitQueue,
    /// Threads without work, less the pieces on their way to them. Two givers at once may take it below zero.
    hungry: AtomicIsize,
    stopped: AtomicBool,
}

struct Heap {
    pieces: Vec<Piece>,
    /// Threads that have work, or have not looked for it yet.
    busy: usize,
}

/// Walks with as many threads as the options say, this one among them.
pub(super) fn walk(vfs: &Vfs, start: &Arc<Node>, options: WalkOptions, visitor: &Visitor<'_>) {
    let threads = match options.threads {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads,
    };
    let pool = Pool {
        heap: Mutex::new(&order::WALK, Heap { pieces: Vec::new(), busy: threads }),
        arrivals: WaitQueue::new(),
        hungry: AtomicIsize::new(0),
        stopped: AtomicBool::new(false),
    };
    let seen = Seen::new();
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| {
                let descent = Descent::new(vfs, &seen, options, Order::Any);
                pool.run(descent, None, visitor);
            });
        }
        pool.run(Descent::new(vfs, &seen, options, Order::Any), Some(start), visitor);
    });
}

impl Pool {
    /// What one thread does: its own work, then other threads', until there is none left.
    fn run(&self, mut descent: Descent<'_>, start: Option<&Arc<Node>>, visitor: &Visitor<'_>) {
        // A visitor that panics must not leave the others waiting.
        let watch = StopOnPanic(self);
        if self.work(&mut descent, start, visitor).is_break() {
            self.stop();
        }
        drop(watch);
    }

    fn work(
        &self,
        descent: &mut Descent<'_>,
        start: Option<&Arc<Node>>,
        visitor: &Visitor<'_>,
    ) -> ControlFlow<()> {
        let visit = &mut |event: WalkEvent<'_>| visitor(event);
        if let Some(start) = start {
            descent.begin(start, visit)?;
        }
        loop {
            while descent.step(visit)? {
                if self.stopped.load(Ordering::Relaxed) {
                    return ControlFlow::Continue(());
                }
                if self.hungry.load(Ordering::Relaxed) > 0
                    && let Some(piece) = descent.split()
                {
                    self.give(piece);
                }
            }
            match self.receive() {
                Some(piece) => descent.take(piece),
                None => return ControlFlow::Continue(()),
            }
        }
    }

    fn give(&self, piece: Piece) {
        self.hungry.fetch_sub(1, Ordering::Relaxed);
        self.heap.lock().pieces.push(piece);
        self.arrivals.wake_one();
    }

    /// Waits for a piece; `None` when the walk is over.
    fn receive(&self) -> Option<Piece> {
        self.heap.lock().busy -= 1;
        self.hungry.fetch_add(1, Ordering::Relaxed);
        let mut piece = None;
        self.arrivals.wait_exclusive(|| {
            let mut heap = self.heap.lock();
            piece = heap.pieces.pop();
            heap.busy += usize::from(piece.is_some());
            piece.is_some() || heap.busy == 0 || self.stopped.load(Ordering::Relaxed)
        });
        if piece.is_none() {
            // The thread that detects the end wakes the others.
            self.arrivals.wake_all();
        }
        piece
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.arrivals.wake_all();
    }
}

/// Ends the walk for all threads when it is dropped by a panic.
struct StopOnPanic<'a>(&'a Pool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}
