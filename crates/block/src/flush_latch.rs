//! A failed flush is final: what was written before it may be lost, and no later flush can tell.
//!
//! Linux reports an error of write-back to one fsync of an open file and forgets it; the next fsync succeeds although
//! the bytes never reached the disk. Every user of a device shares its open file, so the flush that gets the error
//! need not belong to the writer that lost something. [`FlushLatch`] keeps the first failure: it fails that flush,
//! every flush that overlaps it in time, and every later one.
//!
//! Why overlapping ones: of two flushes at once the kernel may tell either. A flush therefore answers only when each
//! flush that began before it ended has an answer of the system, and fails if one of them failed. A flush that began
//! later cannot have been told of anything that this one promises: the kernel looks for errors when write-back is over.
//!
//! Locks: the list of flushes in progress, class `DEVICE`, never held while the system flushes.

use std::collections::BTreeSet;
use std::io;

use undercroft_sync::{Mutex, WaitQueue, order};

use crate::forward_block_device;
use crate::{BlockDevice, Device, Error, Operation, Result};

/// Remembers that a flush has failed; see the module's description.
pub struct FlushLatch {
    state: Mutex<State>,
    /// Waiters for flushes that overlap theirs.
    answered: WaitQueue,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the next flush.
    next: u64,
    /// Flushes that the system has not answered.
    running: BTreeSet<u64>,
    /// The first failure.
    cause: Option<String>,
}

impl FlushLatch {
    /// A latch that no flush has failed at.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Mutex::new(&order::DEVICE, State::default()), answered: WaitQueue::new() }
    }

    /// Why no flush succeeds any more, if one has failed.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        self.state.lock().cause.clone()
    }

    /// What a flush must have done before failed: no flush succeeds from now on, unless one has failed before.
    pub(crate) fn fail(&self, cause: String) {
        self.state.lock().cause.get_or_insert(cause);
        self.answered.wake_all();
    }

    /// The refusal of a flush, if one has failed.
    pub(crate) fn check(&self, name: &str, size_bytes: u64) -> Result<()> {
        self.cause().map_or(Ok(()), |cause| Err(refusal(name, size_bytes, &cause)))
    }

    /// Flushes the device `name` of `size_bytes` by `flush`, unless a flush has failed before.
    ///
    /// # Errors
    /// What `flush` answers; [`Error::Io`] with the first cause when another flush has failed, before or meanwhile.
    pub fn flush(&self, name: &str, size_bytes: u64, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let number = self.begin().map_err(|cause| refusal(name, size_bytes, &cause))?;
        // Also when `flush` panics: nothing is known then, and others must not wait for ever.
        let mut running = Running { latch: self, number, cause: Some("the flush panicked".to_owned()) };
        let result = flush();
        running.cause = result.as_ref().err().map(ToString::to_string);
        drop(running);
        result?;
        self.wait_for_overlapping();
        self.check(name, size_bytes)
    }

    fn begin(&self) -> std::result::Result<u64, String> {
        let mut state = self.state.lock();
        if let Some(cause) = &state.cause {
            return Err(cause.clone());
        }
        let number = state.next;
        state.next += 1;
        state.running.insert(number);
        Ok(number)
    }

    /// Waits until the system has answered all flushes that have begun.
    fn wait_for_overlapping(&self) {
        let begun = self.state.lock().next;
        self.answered.wait(|| {
            let state = self.state.lock();
            state.cause.is_some() || state.running.first().is_none_or(|&oldest| oldest >= begun)
        });
    }
}

impl Default for FlushLatch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for FlushLatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlushLatch").finish_non_exhaustive()
    }
}

/// A flush that the system has not answered; says so when it is dropped.
struct Running<'a> {
    latch: &'a FlushLatch,
    number: u64,
    cause: Option<String>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.latch.state.lock();
        state.running.remove(&self.number);
        if state.cause.is_none() {
            state.cause = self.cause.take();
        }
        drop(state);
        self.latch.answered.wake_all();
    }
}

/// A device of which a failed flush is remembered, whether or not the device itself remembers it: for users that must
/// never take a failed flush for a good one.
#[derive(Debug)]
pub struct LatchedDevice {
    base: Device,
    flushes: FlushLatch,
}

impl LatchedDevice {
    /// Remembers failed flushes of `base` from now on.
    #[must_use]
    pub fn new(base: Device) -> Self {
        Self { base, flushes: FlushLatch::new() }
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl BlockDevice for LatchedDevice {
    forward_block_device!(self.base: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
    forward_block_device!(self.base: read_at, write_at, discard, write_zeroes, prefetch, next_data, run_batch);

    fn flush(&self) -> Result<()> {
        self.flushes.flush(&self.name(), self.size_bytes(), || self.base.flush())
    }
}

fn refusal(name: &str, size_bytes: u64, cause: &str) -> Error {
    let source = io::Error::other(format!(
        "an earlier flush failed, so what was written before it may be lost ({cause})"
    ));
    Error::Io { operation: Operation::Flush, offset: 0, len: size_bytes, device: name.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn failed() -> Result<()> {
        let source = io::Error::from_raw_os_error(5);
        Err(Error::Io { operation: Operation::Flush, offset: 0, len: 8, device: "disk".to_owned(), source })
    }

    #[test]
    fn after_a_failed_flush_every_later_one_fails_with_the_first_cause() {
        let latch = FlushLatch::new();
        latch.flush("disk", 8, || Ok(())).unwrap();
        assert_eq!(latch.cause(), None);
        let first = latch.flush("disk", 8, failed).unwrap_err().to_string();
        for _ in 0..3 {
            let later = latch.flush("disk", 8, || unreachable!("the system is not asked again")).unwrap_err();
            assert!(later.to_string().contains(&first), "{later}");
        }
        assert_eq!(latch.cause(), Some(first));
    }

    /// The system tells the error to the flush that is still under way, and lets the other one succeed.
    #[test]
    fn a_flush_that_overlaps_a_failing_one_fails_too() {
        let latch = FlushLatch::new();
        let (begun, other_done) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            let told = scope.spawn(|| {
                latch.flush("disk", 8, || {
                    begun.wait();
                    while !other_done.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    failed()
                })
            });
            begun.wait();
            let other = latch.flush("disk", 8, || {
                other_done.store(true, Ordering::SeqCst);
                Ok(())
            });
            assert!(other.is_err(), "its writes may be among those that are lost");
            assert!(told.join().unwrap().is_err());
        });
    }

    #[test]
    fn overlapping_flushes_that_succeed_do_not_wait_for_ever() {
        let latch = FlushLatch::new();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| latch.flush("disk", 8, || Ok(())).unwrap()));
            }
        });
        assert!(latch.state.lock().running.is_empty());
    }

    #[test]
    fn a_flush_that_panics_counts_as_failed() {
        let latch = FlushLatch::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            latch.flush("disk", 8, || panic!("on purpose"))
        }));
        assert!(panicked.is_err());
        assert!(latch.flush("disk", 8, || Ok(())).is_err());
    }
}
