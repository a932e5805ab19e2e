//! A device whose writes can be held back for a while, so that what lies below stays as it is and can be copied.
//!
//! Closing the gate lets writes that have begun end, and makes what was written durable; from then on writes, discards and
//! flushes wait, and reads do not. What lies below then is what a power cut at that moment would leave.
//!
//! Invariant: a writer counts itself before it looks whether the gate is closed, and what closes the gate does so before it
//! looks at the count, so that one of the two sees the other. Locks: the reason for which it is closed, class `DEVICE`,
//! never held while anything is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use undercroft_sync::{Mutex, WaitQueue, order};

use crate::forward_block_device;
use crate::{BlockDevice, Device, Request, Result};

/// How often a writer that waits looks whether it should go on without being let.
const LOOK: Duration = Duration::from_millis(200);

/// Tells whether what closed the gate has gone for good.
pub type Abandoned = Arc<dyn Fn() -> bool + Send + Sync>;

/// See the module's description.
pub struct GatedDevice {
    base: Device,
    under_way: AtomicUsize,
    is_closed: AtomicBool,
    abandoned: Mutex<Option<Abandoned>>,
    /// Writers that wait for the gate, and what closes it for writers.
    changed: WaitQueue,
}

impl std::fmt::Debug for GatedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatedDevice").field("base", &self.base).finish_non_exhaustive()
    }
}

/// A write under way.
struct Pass<'a>(&'a GatedDevice);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.0.is_closed() {
            self.0.changed.wake_all();
        }
    }
}

impl GatedDevice {
    /// With the gate open.
    #[must_use]
    pub fn new(base: Device) -> Self {
        Self {
            base,
            under_way: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            abandoned: Mutex::new(&order::DEVICE, None),
            changed: WaitQueue::new(),
        }
    }

    /// Whether the gate is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Closes the gate, waits for the writes under way, and makes everything durable that was written. `false`: it was
    /// closed already. Writes that wait go on when the gate is opened, or when it is `abandoned`.
    ///
    /// # Errors
    /// The flush failed; the gate is open.
    pub fn close(&self, abandoned: Abandoned) -> Result<bool> {
        {
            let mut reason = self.abandoned.lock();
            if reason.is_some() {
                return Ok(false);
            }
            *reason = Some(abandoned);
            self.is_closed.store(true, Ordering::SeqCst);
        }
        self.changed.wait(|| self.under_way.load(Ordering::SeqCst) == 0);
        match self.base.flush() {
            Ok(()) => Ok(true),
            Err(error) => {
                self.open();
                Err(error)
            }
        }
    }

    /// Opens the gate. `false`: it was open.
    pub fn open(&self) -> bool {
        let was_closed = {
            let mut reason = self.abandoned.lock();
            self.is_closed.store(false, Ordering::SeqCst);
            reason.take().is_some()
        };
        self.changed.wake_all();
        was_closed
    }

    /// Waits until the gate is open.
    fn pass(&self) -> Pass<'_> {
        loop {
            self.under_way.fetch_add(1, Ordering::SeqCst);
            // It counts until it is dropped, which tells what waits for it.
            let pass = Pass(self);
            if !self.is_closed() {
                return pass;
            }
            drop(pass);
            if self.changed.wait_timeout(LOOK, || !self.is_closed()) {
                continue;
            }
            let abandoned = self.abandoned.lock().clone();
            if abandoned.is_some_and(|abandoned| abandoned()) {
                self.open();
            }
        }
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl BlockDevice for GatedDevice {
    forward_block_device!(self.base: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
    forward_block_device!(self.base: read_at, prefetch, next_data);

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _pass = self.pass();
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        let _pass = self.pass();
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let _pass = self.pass();
        self.base.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        let _pass = self.pass();
        self.base.write_zeroes(offset, len)
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let writes = batch.iter().any(|request| matches!(request, Request::Write { .. }));
        let _pass = writes.then(|| self.pass());
        self.base.run_batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use crate::MemoryDevice;

    fn never() -> Abandoned {
        Arc::new(|| false)
    }

    #[test]
    fn writes_wait_while_the_gate_is_closed_and_reads_do_not() {
        let device = GatedDevice::new(Arc::new(MemoryDevice::new(1 << 20)));
        device.write_at(0, b"before").unwrap();
        assert!(device.close(never()).unwrap());
        assert!(!device.close(never()).unwrap() && device.is_closed());
        let written = AtomicU32::new(0);
        thread::scope(|scope| {
            for number in 1..=4 {
                let (device, written) = (&device, &written);
                scope.spawn(move || {
                    match number {
                        1 => device.write_at(0, b"after!"),
                        2 => device.flush(),
                        3 => device.discard(4096, 4096),
                        _ => device.run_batch(&mut [Request::Write { offset: 8192, data: b"x" }]),
                    }
                    .unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                });
            }
            thread::sleep(Duration::from_millis(50));
            let mut read = [0; 6];
            device.read_at(0, &mut read).unwrap();
            device.run_batch(&mut [Request::Read { offset: 0, buf: &mut [0] }]).unwrap();
            assert_eq!((&read, written.load(Ordering::SeqCst)), (b"before", 0));
            assert!(device.open() && !device.open());
        });
        assert_eq!(written.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn a_gate_that_was_abandoned_opens() {
        let device = GatedDevice::new(Arc::new(MemoryDevice::new(4096)));
        device.close(Arc::new(|| true)).unwrap();
        device.write_at(0, b"x").unwrap();
        assert!(!device.is_closed());
    }

    #[test]
    fn closing_waits_for_writes_under_way() {
        let device = GatedDevice::new(Arc::new(MemoryDevice::new(4096)));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let pass = device.pass();
            scope.spawn(|| {
                device.close(never()).unwrap();
                assert!(done.load(Ordering::SeqCst));
            });
            thread::sleep(Duration::from_millis(50));
            done.store(true, Ordering::SeqCst);
            drop(pass);
        });
        device.open();
    }
}
