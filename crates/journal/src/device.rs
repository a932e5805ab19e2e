//! The device below a writable filesystem: nothing is written through it once the changes have ended.
//!
//! Everything that a mounted filesystem writes passes here: file content and metadata, log and homes, flushes and
//! discards. A writer that looked at a map before the end, or at a map whose change the aborted transaction will never
//! commit, is refused when it comes to the device. A request that has passed the check before the end, at most one or
//! one batch of each thread, completes, perhaps after the call that ended the changes has returned: that call does not
//! wait, so it returns even if a device hangs. Only the record of an abort is written past this device, to the one
//! below.
//!
//! No locks: each request loads one word that is written once.

use std::io;
use std::sync::Arc;

use undercroft_block::forward_block_device;
use undercroft_block::{BlockDevice, Error as DeviceError, Operation, Request};

use crate::{Stop, Stopped};

/// A device that refuses writes and flushes once the changes have ended.
#[derive(Debug)]
pub struct StoppableDevice<D: BlockDevice + ?Sized = dyn BlockDevice> {
    base: Arc<D>,
    stop: Arc<Stop>,
}

impl<D: BlockDevice + ?Sized> StoppableDevice<D> {
    /// Passes everything on to `base` until `stop` is set.
    #[must_use]
    pub fn new(base: Arc<D>, stop: Arc<Stop>) -> Self {
        Self { base, stop }
    }

    #[inline]
    fn check(&self, operation: Operation, offset: u64, len: u64) -> undercroft_block::Result<()> {
        match self.stop.get() {
            None => Ok(()),
            Some(stopped) => Err(self.refusal(stopped, operation, offset, len)),
        }
    }

    #[cold]
    fn refusal(&self, stopped: &Stopped, operation: Operation, offset: u64, len: u64) -> DeviceError {
        let source = io::Error::other(stopped.refusal().to_string());
        DeviceError::Io { operation, offset, len, device: self.base.name(), source }
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl<D: BlockDevice + ?Sized> BlockDevice for StoppableDevice<D> {
    forward_block_device!(self.base: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
    forward_block_device!(self.base: read_at, prefetch, next_data);

    fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        self.check(Operation::Write, offset, data.len() as u64)?;
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        self.check(Operation::Flush, 0, 0)?;
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> undercroft_block::Result<()> {
        self.check(Operation::Discard, offset, len)?;
        self.base.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> undercroft_block::Result<()> {
        self.check(Operation::WriteZeroes, offset, len)?;
        self.base.write_zeroes(offset, len)
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> undercroft_block::Result<()> {
        if let Some(stopped) = self.stop.get()
            && let Some(write) = batch.iter().find(|request| matches!(request, Request::Write { .. }))
        {
            return Err(self.refusal(stopped, Operation::Write, write.offset(), write.len()));
        }
        self.base.run_batch(batch)
    }
}
