//! A device whose writes can be held back for a while, so that what lies below stays as it is and can be copied.
//!
//! Freezing waits for the writes under way, and makes everything durable that was written; from then on writes, discards
//! and flushes wait, and reads do not. The device below is then as a power cut at that moment would leave it.
//!
//! Invariant: a writer counts itself before it looks whether the device is frozen, and the thread that freezes sets that
//! before it looks at the count, so that one of the two sees the other. Locks: the owner of the freeze, class `DEVICE`, never
//! held while anything is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use undercroft_sync::{Mutex, WaitQueue, order};

use crate::forward_block_device;
use crate::{BlockDevice, Device, Request, Result};

/// How often a writer that waits looks whether it should go on without being let.
const LOOK: Duration = Duration::from_millis(200);

/// Tells whether the owner of the freeze has ended without a thaw.
pub type FreezerGone = Arc<dyn Fn() -> bool + Send + Sync>;

/// See the module's description.
pub struct FreezableDevice {
    base: Device,
    under_way: AtomicUsize,
    is_frozen: AtomicBool,
    owner_gone: Mutex<Option<FreezerGone>>,
    /// Writers that wait for a thaw, and the thread that freezes, for writers.
    changed: WaitQueue,
}

impl std::fmt::Debug for FreezableDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FreezableDevice").field("base", &self.base).finish_non_exhaustive()
    }
}

/// A write under way.
struct ActiveWrite<'a>(&'a FreezableDevice);

impl Drop for ActiveWrite<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.0.is_frozen() {
            self.0.changed.wake_all();
        }
    }
}

impl FreezableDevice {
    /// Not frozen.
    #[must_use]
    pub fn new(base: Device) -> Self {
        Self {
            base,
            under_way: AtomicUsize::new(0),
            is_frozen: AtomicBool::new(false),
            owner_gone: Mutex::new(&order::DEVICE, None),
            changed: WaitQueue::new(),
        }
    }

    /// Whether it is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::SeqCst)
    }

    /// Waits for the writes under way, and makes everything durable that was written. `false`: it was frozen already.
    /// Writes that wait go on after [`thaw`](Self::thaw), or when `owner_gone` says so.
    ///
    /// # Errors
    /// The flush failed; it is not frozen.
    pub fn freeze(&self, owner_gone: FreezerGone) -> Result<bool> {
        {
            let mut owner = self.owner_gone.lock();
            if owner.is_some() {
                return Ok(false);
            }
            *owner = Some(owner_gone);
            self.is_frozen.store(true, Ordering::SeqCst);
        }
        self.changed.wait(|| self.under_way.load(Ordering::SeqCst) == 0);
        match self.base.flush() {
            Ok(()) => Ok(true),
            Err(error) => {
                self.thaw();
                Err(error)
            }
        }
    }

    /// Lets writes go on. `false`: it was not frozen.
    pub fn thaw(&self) -> bool {
        let was_frozen = {
            let mut owner = self.owner_gone.lock();
            self.is_frozen.store(false, Ordering::SeqCst);
            owner.take().is_some()
        };
        self.changed.wake_all();
        was_frozen
    }

    /// Waits while it is frozen.
    fn enter(&self) -> ActiveWrite<'_> {
        loop {
            self.under_way.fetch_add(1, Ordering::SeqCst);
            // Dropping it wakes the thread that freezes.
            let active = ActiveWrite(self);
            if !self.is_frozen() {
                return active;
            }
            drop(active);
            if self.changed.wait_timeout(LOOK, || !self.is_frozen()) {
                continue;
            }
            let owner_gone = self.owner_gone.lock().clone();
            if owner_gone.is_some_and(|is_gone| is_gone()) {
                self.thaw();
            }
        }
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl BlockDevice for FreezableDevice {
    forward_block_device!(self.base: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
    forward_block_device!(self.base: read_at, prefetch, next_data);

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _active = self.enter();
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        let _active = self.enter();
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let _active = self.enter();
        self.base.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        let _active = self.enter();
        self.base.write_zeroes(offset, len)
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let writes = batch.iter().any(|request| matches!(request, Request::Write { .. }));
        let _active = writes.then(|| self.enter());
        self.base.run_batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use crate::MemoryDevice;

    fn never() -> FreezerGone {
        Arc::new(|| false)
    }

    #[test]
    fn writes_wait_while_it_is_frozen_and_reads_do_not() {
        let device = FreezableDevice::new(Arc::new(MemoryDevice::new(1 << 20)));
        device.write_at(0, b"before").unwrap();
        assert!(device.freeze(never()).unwrap());
        assert!(!device.freeze(never()).unwrap() && device.is_frozen());
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
            assert!(device.thaw() && !device.thaw());
        });
        assert_eq!(written.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn it_thaws_when_its_owner_is_gone() {
        let device = FreezableDevice::new(Arc::new(MemoryDevice::new(4096)));
        device.freeze(Arc::new(|| true)).unwrap();
        device.write_at(0, b"x").unwrap();
        assert!(!device.is_frozen());
    }

    #[test]
    fn freezing_waits_for_writes_under_way() {
        let device = FreezableDevice::new(Arc::new(MemoryDevice::new(4096)));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let active = device.enter();
            scope.spawn(|| {
                device.freeze(never()).unwrap();
                assert!(done.load(Ordering::SeqCst));
            });
            thread::sleep(Duration::from_millis(50));
            done.store(true, Ordering::SeqCst);
            drop(active);
        });
        device.thaw();
    }
}
