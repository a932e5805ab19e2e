//! Wakes the threads of an array when there is something to do.

use std::time::Duration;

use undercroft_sync::WaitQueue;
use undercroft_sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rung by the thread that has changed something; each thread that waits remembers what it has heard.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicU64,
    is_closing: AtomicBool,
    queue: WaitQueue,
}

/// How often a thread has heard the bell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard(u64);

impl Bell {
    /// Something has changed.
    pub(crate) fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        self.queue.wake_all();
    }

    /// The array is being closed.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.ring();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Waits until the bell has rung since the thread heard it last, or the time is over.
    pub(crate) fn wait(&self, heard: &mut Heard, timeout: Option<Duration>) {
        let has_rung = || self.rung.load(Ordering::Acquire) != heard.0;
        match timeout {
            Some(timeout) => {
                self.queue.wait_timeout(timeout, has_rung);
            }
            None => self.queue.wait(has_rung),
        }
        heard.0 = self.rung.load(Ordering::Acquire);
    }

    /// Waits until `holds` does, or the time is over. The thread that makes it hold rings the bell.
    pub(crate) fn wait_until(&self, timeout: Duration, holds: impl FnMut() -> bool) -> bool {
        self.queue.wait_timeout(timeout, holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_rang_before_the_wait_is_heard_once() {
        let (bell, mut heard) = (Bell::default(), Heard::default());
        bell.ring();
        bell.wait(&mut heard, None);
        assert!(!bell.wait_until(Duration::ZERO, || bell.rung.load(Ordering::Acquire) != heard.0));
        bell.close();
        bell.wait(&mut heard, None);
        assert!(bell.is_closing());
    }
}
