//! A device on which a chosen request fails.
//!
//! Requests of the chosen kind are counted from 1; a batch counts as its requests, one after the other. To fail every
//! request once, a test repeats its run with rising numbers until [`FailNth::has_failed`] stays false.
//! No locks: one counter.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{check_range, check_write};
use crate::forward_block_device;
use crate::{BlockDevice, Device, Error, Operation, Result};

/// How often the request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// This one only: a fault that passes.
    Once,
    /// This one and all later ones of its kind: a device that has died.
    FromThenOn,
}

/// What a failed write leaves in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// What was there before.
    Old,
    /// The first half of the new bytes, rounded down to sectors of 512 bytes.
    Torn,
    /// The new bytes: only the answer was lost.
    New,
}

/// A device on which a chosen request fails; see the module's description.
#[derive(Debug)]
pub struct FailNth {
    base: Device,
    operation: Operation,
    nth: u64,
    repeat: Repeat,
    left: Left,
    seen: AtomicU64,
}

impl FailNth {
    /// Lets the `nth` request of a kind fail, counted from 1; with 0 none fails. A failed write leaves the old
    /// content.
    #[must_use]
    pub fn new(base: Device, operation: Operation, nth: u64, repeat: Repeat) -> Self {
        Self { base, operation, nth, repeat, left: Left::Old, seen: AtomicU64::new(0) }
    }

    /// The same, but a failed write leaves something else.
    #[must_use]
    pub fn leaving(self, left: Left) -> Self {
        Self { left, ..self }
    }

    /// How many requests of the kind there have been.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Whether a request has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.nth > 0 && self.seen() >= self.nth
    }

    /// Counts a request and says whether it is to fail.
    fn is_due(&self, operation: Operation) -> bool {
        if operation != self.operation || self.nth == 0 {
            return false;
        }
        let number = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        match self.repeat {
            Repeat::Once => number == self.nth,
            Repeat::FromThenOn => number >= self.nth,
        }
    }

    fn failure(&self, operation: Operation, offset: u64, len: u64) -> Result<()> {
        let source = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        Err(Error::Io { operation, offset, len, device: self.name(), source })
    }

    /// How many bytes of a failing change are done all the same.
    fn done_bytes(&self, len: u64) -> u64 {
        match self.left {
            Left::Old => 0,
            Left::Torn => len / 2 / 512 * 512,
            Left::New => len,
        }
    }
}

impl BlockDevice for FailNth {
    forward_block_device!(self.base: size_bytes, access, topology, may_hang);

    fn name(&self) -> String {
        format!("failing device on {}", self.base.name())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        check_range(self, Operation::Read, offset, len)?;
        if self.is_due(Operation::Read) {
            return self.failure(Operation::Read, offset, len);
        }
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let len = data.len() as u64;
        check_write(self, Operation::Write, offset, len)?;
        if self.is_due(Operation::Write) {
            self.base.write_at(offset, &data[..self.done_bytes(len) as usize])?;
            return self.failure(Operation::Write, offset, len);
        }
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        if self.is_due(Operation::Flush) {
            return self.failure(Operation::Flush, 0, self.size_bytes());
        }
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::Discard, offset, len)?;
        if self.is_due(Operation::Discard) {
            self.base.discard(offset, self.done_bytes(len))?;
            return self.failure(Operation::Discard, offset, len);
        }
        self.base.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)?;
        if self.is_due(Operation::WriteZeroes) {
            self.base.write_zeroes(offset, self.done_bytes(len))?;
            return self.failure(Operation::WriteZeroes, offset, len);
        }
        self.base.write_zeroes(offset, len)
    }
}
