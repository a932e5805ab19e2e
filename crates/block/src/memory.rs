//! A device in memory: scratch space, and small images that are built or taken apart in tests.
//!
//! Sparse: memory is taken when a range is first written to and given back by discards and writes of zeroes, so
//! a device may be far larger than the machine's memory. Threads share it without one common lock; see
//! `sparse.rs`, which holds the bytes and their locks. Nothing survives the process: a flush has nothing to do.

use std::fmt;

use crate::device::{check_range, check_write};
use crate::sparse::SparseBytes;
use crate::{Access, BlockDevice, Operation, Result};

/// Large enough that big copies cost few look-ups, small enough that a scattered image stays small.
const CHUNK_BYTES: usize = 64 * 1024;

/// A device whose bytes live in memory.
pub struct MemoryDevice {
    bytes: SparseBytes,
    size_bytes: u64,
    access: Access,
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("size_bytes", &self.size_bytes)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl MemoryDevice {
    /// A writable device of `size_bytes`, all zero, which takes no memory until it is written to.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self { bytes: SparseBytes::new(CHUNK_BYTES), size_bytes, access: Access::ReadWrite }
    }

    /// A device that holds `bytes`.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "says that the device keeps the bytes for itself")]
    pub fn from_bytes(bytes: Vec<u8>, access: Access) -> Self {
        let device = Self::new(bytes.len() as u64);
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            if chunk.iter().any(|&byte| byte != 0) {
                device.bytes.write((index * CHUNK_BYTES) as u64, chunk);
            }
        }
        Self { access, ..device }
    }

    /// Memory taken by what has been written, in bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.bytes.allocated_bytes()
    }
}

impl BlockDevice for MemoryDevice {
    fn name(&self) -> String {
        "memory device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn access(&self) -> Access {
        self.access
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self, Operation::Read, offset, buf.len() as u64)?;
        self.bytes.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(self, Operation::Write, offset, data.len() as u64)?;
        self.bytes.write(offset, data);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::Discard, offset, len)?;
        self.bytes.zero(offset, len);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)?;
        self.bytes.zero(offset, len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_larger_than_memory_takes_only_what_is_written() {
        let device = MemoryDevice::new(1 << 60);
        device.write_at((1 << 60) - 3, b"end").unwrap();
        let mut buf = [0; 3];
        device.read_at((1 << 60) - 3, &mut buf).unwrap();
        assert_eq!(&buf, b"end");
        assert_eq!(device.allocated_bytes(), CHUNK_BYTES as u64);
    }

    #[test]
    fn zero_chunks_of_given_bytes_take_no_memory() {
        let mut bytes = vec![0; 10 * CHUNK_BYTES];
        bytes[5 * CHUNK_BYTES] = 1;
        assert_eq!(MemoryDevice::from_bytes(bytes, Access::ReadOnly).allocated_bytes(), CHUNK_BYTES as u64);
    }
}
