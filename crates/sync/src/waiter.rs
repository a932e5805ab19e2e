//! One sleeping thread: what wait queues and name locks keep in their queues.

use std::sync::Arc;

use crate::primitives::atomic::{AtomicBool, Ordering};
use crate::primitives::{Deadline, spin_until};
use crate::thread::{self, Thread};

/// A thread that waits to be woken, once. The thread that takes it out of a queue must wake it.
pub(crate) struct Waiter {
    woken: AtomicBool,
    thread: Thread,
}

impl Waiter {
    /// For the calling thread. Shared, because the waking thread may come last.
    pub(crate) fn for_this_thread() -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(false), thread: thread::current() })
    }

    /// Makes [`sleep`](Self::sleep) return, now or when it is called.
    pub(crate) fn wake(&self) {
        // Release: what we did before is seen by the woken thread.
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits asleep until woken, before that spinning if `spin`. `false` if the deadline passed before.
    pub(crate) fn sleep(&self, deadline: Deadline, spin: bool) -> bool {
        if spin && spin_until(|| self.is_woken()) {
            return true;
        }
        // Parking may end for no reason, or by a token meant for the thread's earlier waits.
        while !self.is_woken() {
            if !deadline.park() {
                return self.is_woken();
            }
        }
        true
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }
}
