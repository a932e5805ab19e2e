//! What is to be written, and writing it.

use std::ops::Range;

use undercroft_block::{BlockDevice, Request};

use undercroft_diskfs::mkfs::MkfsError;

/// So many bytes are handed to the device at once.
const BATCH_BYTES: usize = 4 << 20;

/// Blocks to be written, and blocks that must read as zeroes.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    writes: Vec<(u64, Vec<u8>)>,
    zeroes: Vec<Range<u64>>,
}

impl Planned {
    /// One or more whole blocks from `first` on.
    pub(crate) fn write(&mut self, first: u64, bytes: Vec<u8>) {
        self.writes.push((first, bytes));
    }

    pub(crate) fn zero(&mut self, blocks: Range<u64>) {
        self.zeroes.push(blocks);
    }

    /// Zeroes first, unless the device is zero already, then the writes, in the order of their places.
    pub(crate) fn carry_out(
        mut self,
        device: &dyn BlockDevice,
        block_bytes: u64,
        device_is_zeroed: bool,
    ) -> Result<(), MkfsError> {
        if !device_is_zeroed {
            self.zeroes.sort_unstable_by_key(|blocks| blocks.start);
            let mut at = 0;
            while let Some(first) = self.zeroes.get(at) {
                let Range { start, mut end } = first.clone();
                at += 1;
                while let Some(next) = self.zeroes.get(at).filter(|next| next.start == end) {
                    end = next.end;
                    at += 1;
                }
                device.write_zeroes(start * block_bytes, (end - start) * block_bytes)?;
            }
        }
        self.writes.sort_unstable_by_key(|&(first, _)| first);
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        for (first, bytes) in &self.writes {
            batch_bytes += bytes.len();
            batch.push(Request::Write { offset: first * block_bytes, data: bytes });
            if batch_bytes >= BATCH_BYTES {
                device.run_batch(&mut batch)?;
                batch.clear();
                batch_bytes = 0;
            }
        }
        if !batch.is_empty() {
            device.run_batch(&mut batch)?;
        }
        Ok(())
    }
}
