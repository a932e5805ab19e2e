//! The signal that wakes the threads of an array when there is something to do.

use std::time::Duration;

use undercroft_sync::WaitQueue;
use undercroft_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A count of changes. The thread that makes a change adds one; each thread that waits remembers the count it has seen.
#[derive(Debug, Default)]
pub(crate) struct WakeSignal {
    count: AtomicU64,
    is_closing: AtomicBool,
    queue: WaitQueue,
}

/// The count that a thread has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u64);

impl WakeSignal {
    /// Something has changed.
    pub(crate) fn notify(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.queue.wake_all();
    }

    /// The array is being closed.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.notify();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Waits until something has changed since `seen`, or the time is over.
    pub(crate) fn wait(&self, seen: &mut Seen, timeout: Option<Duration>) {
        let has_changed = || self.count.load(Ordering::Acquire) != seen.0;
        match timeout {
            Some(timeout) => {
                self.queue.wait_timeout(timeout, has_changed);
            }
            None => self.queue.wait(has_changed),
        }
        seen.0 = self.count.load(Ordering::Acquire);
    }

    /// Waits until `holds` does, or the time is over. The thread that makes it hold notifies.
    pub(crate) fn wait_until(&self, timeout: Duration, holds: impl FnMut() -> bool) -> bool {
        self.queue.wait_timeout(timeout, holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakeup_before_the_wait_is_not_lost() {
        let (wake, mut seen) = (WakeSignal::default(), Seen::default());
        wake.notify();
        wake.wait(&mut seen, None);
        assert!(!wake.wait_until(Duration::ZERO, || wake.count.load(Ordering::Acquire) != seen.0));
        wake.close();
        wake.wait(&mut seen, None);
        assert!(wake.is_closing());
    }
}
