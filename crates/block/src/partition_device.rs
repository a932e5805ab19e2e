//! A part of a device as a device of its own: a partition.
//!
//! Adds an offset and refuses what lies outside. Has no state and no locks; content, topology and durability are the
//! device's around it. A batch stays a batch.

use crate::device::{check_range, check_write};
use crate::forward_block_device;
use crate::partition::Partition;
use crate::{BlockDevice, ClaimedDevice, Device, NextData, Operation, Request, Result};

/// A window onto a range of another device.
#[derive(Debug)]
pub struct PartitionDevice {
    base: Device,
    start_bytes: u64,
    size_bytes: u64,
    name: String,
}

impl PartitionDevice {
    /// The `size_bytes` of `base` that begin at `start_bytes`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the window reaches past the end of `base`.
    pub fn new(base: Device, start_bytes: u64, size_bytes: u64) -> Result<Self> {
        check_range(&*base, Operation::Read, start_bytes, size_bytes)?;
        let name = format!("{} from byte {start_bytes}", base.name());
        Ok(Self { base, start_bytes, size_bytes, name })
    }

    /// A partition of `base`, as its table says.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the partition reaches past the end of `base`, as in an
    /// image that was cut short.
    pub fn open(base: Device, partition: &Partition) -> Result<Self> {
        let name = format!("{} partition {}", base.name(), partition.number);
        Ok(Self { name, ..Self::new(base, partition.start_bytes, partition.size_bytes)? })
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl BlockDevice for PartitionDevice {
    forward_block_device!(self.base: access, topology, may_hang, flush);

    fn name(&self) -> String {
        self.name.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// It stays as large as it was made.
    fn refresh_size(&self) -> Result<u64> {
        Ok(self.size_bytes)
    }

    /// A part is no whole device.
    fn claimed(&self) -> Option<&dyn ClaimedDevice> {
        None
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self, Operation::Read, offset, buf.len() as u64)?;
        self.base.read_at(self.start_bytes + offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(self, Operation::Write, offset, data.len() as u64)?;
        self.base.write_at(self.start_bytes + offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::Discard, offset, len)?;
        self.base.discard(self.start_bytes + offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)?;
        self.base.write_zeroes(self.start_bytes + offset, len)
    }

    fn prefetch(&self, offset: u64, len: u64) {
        let within = len.min(self.size_bytes.saturating_sub(offset));
        if within > 0 {
            self.base.prefetch(self.start_bytes + offset, within);
        }
    }

    fn next_data(&self, offset: u64) -> Result<NextData> {
        let end = self.start_bytes + self.size_bytes;
        let start = self.start_bytes.saturating_add(offset).min(end);
        Ok(match self.base.next_data(start)? {
            NextData::At(range) if range.start < end => {
                let range = range.start.max(start)..range.end.min(end);
                NextData::At(range.start - self.start_bytes..range.end - self.start_bytes)
            }
            NextData::At(_) | NextData::Nowhere => NextData::Nowhere,
            NextData::Unknown => NextData::Unknown,
        })
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let mut shifted = Vec::with_capacity(batch.len());
        for request in batch {
            request.check(self)?;
            let offset = self.start_bytes + request.offset();
            shifted.push(match request {
                Request::Read { buf, .. } => Request::Read { offset, buf },
                Request::Write { data, .. } => Request::Write { offset, data },
            });
        }
        self.base.run_batch(&mut shifted)
    }
}
