//! A device with a volatile cache: what was not flushed is at stake when power is lost.
//!
//! Two contents: what reads see is an overlay, what survives is the base. A flush brings the base up to date with all
//! that was written before it began. After [`LoseUnflushed::crash`] the base holds what survived, and the device
//! itself answers nothing any more.
//!
//! A flush can be told to fail, once, as Linux's cache of pages does: what was not flushed survives in any subset, reads
//! go on showing all of it, and the next flush succeeds without it.
//!
//! Locks: flushing, class `DEVICE_STACK`, held while the base is written and flushed, so that a flush does not return
//! before another one has made durable what both promise. Inside it the list of unflushed changes, class
//! `DEVICE`, never held while a device is called.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use undercroft_sync::{Mutex, order};

use super::crash::{SECTOR_BYTES, apply_survivors};
use super::{Crash, Event};
use crate::forward_block_device;
use crate::{BlockDevice, Device, Error, Operation, Overlay, Result};

/// A device that loses a part of what was not flushed; see the module's description.
#[derive(Debug)]
pub struct LoseUnflushed {
    base: Device,
    live: Overlay,
    /// Changes that have been made durable so far.
    flushed: Mutex<usize>,
    unflushed: Mutex<Vec<Event>>,
    seed: u64,
    sector_bytes: u32,
    /// The flush that fails, counted from 1, or 0; and how many there have been.
    failing: u64,
    flushes: AtomicU64,
    /// Set once. Requests that are under way then may still succeed.
    is_dead: AtomicBool,
}

impl LoseUnflushed {
    /// A cache in front of `base`, which must be writable. The seed decides what a crash leaves.
    #[must_use]
    pub fn new(base: Device, seed: u64) -> Self {
        Self {
            live: Overlay::new(base.clone()),
            base,
            flushed: Mutex::new(&order::DEVICE_STACK, 0),
            unflushed: Mutex::new(&order::DEVICE, Vec::new()),
            seed,
            sector_bytes: SECTOR_BYTES,
            failing: 0,
            flushes: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
        }
    }

    /// The same, and the `nth` flush fails, counted from 1; with 0 none does.
    #[must_use]
    pub fn failing_flush(self, nth: u64) -> Self {
        Self { failing: nth, ..self }
    }

    /// The same, and a write is torn at multiples of so many bytes.
    #[must_use]
    pub fn in_sectors(self, bytes: u32) -> Self {
        Self { sector_bytes: bytes, ..self }
    }

    /// How many flushes have been asked for.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    /// Whether the flush that fails has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failing > 0 && self.flushes() >= self.failing
    }

    /// Cuts the power: gives the base a subset of what was not flushed. Everything that is asked of the device
    /// afterwards fails. What happened is also printed, for the output of a failing test.
    ///
    /// # Errors
    /// A failure of the base.
    pub fn crash(&self) -> Result<Crash> {
        let flushed = self.flushed.lock();
        self.is_dead.store(true, Ordering::SeqCst);
        let unflushed = std::mem::take(&mut *self.unflushed.lock());
        let crash = apply_survivors(&*self.base, *flushed, &unflushed, self.seed, self.sector_bytes)?;
        self.base.flush()?;
        eprintln!("{}: {crash}", self.name());
        Ok(crash)
    }

    /// Fails once the power is gone.
    fn check_alive(&self, operation: Operation, offset: u64, len: u64) -> Result<()> {
        if self.is_dead.load(Ordering::SeqCst) {
            let source = io::Error::other("the power is gone");
            return Err(Error::Io { operation, offset, len, device: self.name(), source });
        }
        Ok(())
    }

    fn remember(&self, event: Event) {
        self.unflushed.lock().push(event);
    }
}

impl BlockDevice for LoseUnflushed {
    forward_block_device!(self.live: size_bytes);
    forward_block_device!(self.base: access, topology, may_hang);

    fn name(&self) -> String {
        format!("volatile cache on {}", self.base.name())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_alive(Operation::Read, offset, buf.len() as u64)?;
        self.live.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        crate::check_write(self, Operation::Write, offset, data.len() as u64)?;
        self.check_alive(Operation::Write, offset, data.len() as u64)?;
        self.live.write_at(offset, data)?;
        self.remember(Event::Write { offset, data: data.into() });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut flushed = self.flushed.lock();
        self.check_alive(Operation::Flush, 0, self.size_bytes())?;
        let changes = std::mem::take(&mut *self.unflushed.lock());
        if self.flushes.fetch_add(1, Ordering::SeqCst) + 1 == self.failing {
            // Other survivors than in the crash that may follow.
            apply_survivors(&*self.base, *flushed, &changes, !self.seed, self.sector_bytes)?;
            let source = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
            let (device, len) = (self.name(), self.size_bytes());
            return Err(Error::Io { operation: Operation::Flush, offset: 0, len, device, source });
        }
        changes.iter().try_for_each(|event| event.apply(&*self.base))?;
        self.base.flush()?;
        *flushed += changes.len();
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        crate::check_write(self, Operation::Discard, offset, len)?;
        self.check_alive(Operation::Discard, offset, len)?;
        self.live.discard(offset, len)?;
        self.remember(Event::Discard { offset, len });
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        crate::check_write(self, Operation::WriteZeroes, offset, len)?;
        self.check_alive(Operation::WriteZeroes, offset, len)?;
        self.live.write_zeroes(offset, len)?;
        self.remember(Event::WriteZeroes { offset, len });
        Ok(())
    }
}
