//! Writing in batches: what is written follows the order of its making, and little of it is held in memory.

use undercroft_block::{BlockDevice, Request};
use undercroft_diskfs::mkfs::MkfsError;

/// So many bytes are handed to the device at once.
const BATCH_BYTES: usize = 4 << 20;

/// Writes that wait for their batch.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    device: &'a dyn BlockDevice,
    waiting: Vec<(u64, Vec<u8>)>,
    bytes: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice) -> Self {
        Self { device, waiting: Vec::new(), bytes: 0 }
    }

    /// Writes bytes at an offset of the device, at once or with the next batch. No two writes overlap.
    pub(super) fn write(&mut self, offset: u64, bytes: Vec<u8>) -> Result<(), MkfsError> {
        self.bytes += bytes.len();
        self.waiting.push((offset, bytes));
        if self.bytes >= BATCH_BYTES { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> Result<(), MkfsError> {
        let mut batch: Vec<_> =
            self.waiting.iter().map(|(offset, data)| Request::Write { offset: *offset, data }).collect();
        if !batch.is_empty() {
            self.device.run_batch(&mut batch)?;
        }
        self.waiting.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Writes what is left, and makes everything durable.
    pub(super) fn finish(mut self) -> Result<(), MkfsError> {
        self.write_batch()?;
        Ok(self.device.flush()?)
    }
}
