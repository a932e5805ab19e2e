//! A device on which requests take time, to make visible which requests wait for which.
//!
//! Each request sleeps in the thread that made it, so requests of different threads overlap. A batch has up to
//! `queue_depth` requests in progress at once, as a disk would. No locks.

use std::thread;
use std::time::Duration;

use crate::forward_block_device;
use crate::{BlockDevice, Device, Request, Result};

/// How long requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// A read.
    pub read: Duration,
    /// A write, a discard or a write of zeroes.
    pub write: Duration,
    /// A flush.
    pub flush: Duration,
    /// Requests of a batch in progress at once, at least 1.
    pub queue_depth: usize,
}

impl Latency {
    /// The same for all requests, 32 of a batch at once.
    #[must_use]
    pub const fn of_all(latency: Duration) -> Self {
        Self { read: latency, write: latency, flush: latency, queue_depth: 32 }
    }
}

/// A device on which requests take time; see the module's description.
#[derive(Debug)]
pub struct Slow {
    base: Device,
    latency: Latency,
}

impl Slow {
    /// `base`, slowed down.
    #[must_use]
    pub fn new(base: Device, latency: Latency) -> Self {
        Self { base, latency }
    }
}

impl BlockDevice for Slow {
    forward_block_device!(self.base: size_bytes, access, topology, may_hang);

    fn name(&self) -> String {
        format!("slow device on {}", self.base.name())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        thread::sleep(self.latency.read);
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        thread::sleep(self.latency.write);
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        thread::sleep(self.latency.flush);
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        thread::sleep(self.latency.write);
        self.base.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        thread::sleep(self.latency.write);
        self.base.write_zeroes(offset, len)
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        for together in batch.chunks_mut(self.latency.queue_depth.max(1)) {
            let latencies = together.iter().map(|request| match request {
                Request::Read { .. } => self.latency.read,
                Request::Write { .. } => self.latency.write,
            });
            thread::sleep(latencies.max().unwrap_or_default());
            self.base.run_batch(together)?;
        }
        Ok(())
    }
}
