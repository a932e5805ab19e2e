//! What is left of a device that was cut short, with the size that it had.
//!
//! For reading what is there of a filesystem or a partition that reaches past the end of its image. A read past that end
//! fails by name, and nothing is written. No locks, no state.

use std::io;

use crate::device::{check_range, check_write};
use crate::forward_block_device;
use crate::{Access, BlockDevice, ClaimedDevice, Device, Error, NextData, Operation, Request, Result};

/// A device of which the end is missing.
#[derive(Debug)]
pub struct CutShortDevice {
    base: Device,
    size_bytes: u64,
}

impl CutShortDevice {
    /// `base`, as the front of a device of `size_bytes`. A device that is not smaller stays as large as it is.
    #[must_use]
    pub fn new(base: Device, size_bytes: u64) -> Self {
        Self { size_bytes: size_bytes.max(base.size_bytes()), base }
    }

    /// Refuses what is not there.
    fn check_there(&self, operation: Operation, offset: u64, len: u64) -> Result<()> {
        check_range(self, operation, offset, len)?;
        let there = self.base.size_bytes();
        if len == 0 || offset + len <= there {
            return Ok(());
        }
        let source = io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("it is cut short and ends at byte {there} of {}", self.size_bytes),
        );
        Err(Error::Io { operation, offset, len, device: self.name(), source })
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl BlockDevice for CutShortDevice {
    forward_block_device!(self.base: name, topology, may_hang, flush, prefetch);

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// It stays as large as it was made.
    fn refresh_size(&self) -> Result<u64> {
        Ok(self.size_bytes)
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    /// A part is no whole device.
    fn claimed(&self) -> Option<&dyn ClaimedDevice> {
        None
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check_there(Operation::Read, offset, buf.len() as u64)?;
        if buf.is_empty() { Ok(()) } else { self.base.read_at(offset, buf) }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(self, Operation::Write, offset, data.len() as u64)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::Discard, offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)
    }

    /// What is missing may have held anything.
    fn next_data(&self, offset: u64) -> Result<NextData> {
        let there = self.base.size_bytes();
        if offset >= self.size_bytes {
            return Ok(NextData::Nowhere);
        }
        if offset >= there {
            return Ok(NextData::At(offset..self.size_bytes));
        }
        Ok(match self.base.next_data(offset)? {
            NextData::Nowhere if there < self.size_bytes => NextData::At(there..self.size_bytes),
            found => found,
        })
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        for request in &*batch {
            match request {
                Request::Read { offset, buf } => {
                    self.check_there(Operation::Read, *offset, buf.len() as u64)?;
                }
                Request::Write { offset, data } => {
                    check_write(self, Operation::Write, *offset, data.len() as u64)?;
                }
            }
        }
        self.base.run_batch(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemoryDevice;

    fn cut() -> CutShortDevice {
        let base = MemoryDevice::new(4096);
        base.write_at(4095, b"x").unwrap();
        CutShortDevice::new(Arc::new(base), 10_000)
    }

    #[test]
    fn what_is_there_is_read_and_what_is_missing_is_named() {
        let device = cut();
        let mut byte = [0];
        device.read_at(4095, &mut byte).unwrap();
        assert_eq!((byte, device.size_bytes()), ([b'x'], 10_000));
        for (offset, len) in [(4095, 2), (4096, 1), (9_999, 1)] {
            let error = device.read_at(offset, &mut vec![0; len]).unwrap_err();
            assert!(error.to_string().contains("cut short and ends at byte 4096 of 10000"), "{error}");
            let mut buf = vec![0; len];
            assert!(device.run_batch(&mut [Request::Read { offset, buf: &mut buf }]).is_err());
        }
        assert!(matches!(device.read_at(10_000, &mut byte), Err(Error::OutOfRange { .. })));
        device.read_at(10_000, &mut []).unwrap();
    }

    #[test]
    fn nothing_is_written() {
        let device = cut();
        assert!(matches!(device.write_at(0, b"y"), Err(Error::ReadOnly { .. })));
        assert!(matches!(device.discard(0, 1), Err(Error::ReadOnly { .. })));
        assert!(matches!(device.write_zeroes(0, 1), Err(Error::ReadOnly { .. })));
        assert!(device.run_batch(&mut [Request::Write { offset: 0, data: b"y" }]).is_err());
    }

    #[test]
    fn what_is_missing_does_not_count_as_zeroes() {
        let device = cut();
        assert_eq!(device.next_data(5000).unwrap(), NextData::At(5000..10_000));
        assert_eq!(device.next_data(10_000).unwrap(), NextData::Nowhere);
        assert_ne!(device.next_data(0).unwrap(), NextData::Nowhere);
        let empty = CutShortDevice::new(Arc::new(MemoryDevice::new(512)), 1024);
        assert_ne!(empty.next_data(0).unwrap(), NextData::Nowhere);
    }
}
