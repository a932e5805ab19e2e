//! A device in memory.

use undercroft_sync::{RwLock, order};

use crate::device::{check_range, check_write};
use crate::{Access, BlockDevice, Operation, Result};

/// A device whose bytes live in memory.
#[derive(Debug)]
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
    size_bytes: u64,
    access: Access,
}

impl MemoryDevice {
    /// A device that holds `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>, access: Access) -> Self {
        let size_bytes = bytes.len() as u64;
        Self { bytes: RwLock::new(&order::DEVICE, bytes), size_bytes, access }
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
        let start = offset as usize;
        buf.copy_from_slice(&self.bytes.read()[start..start + buf.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(self, Operation::Write, offset, data.len() as u64)?;
        let start = offset as usize;
        self.bytes.write()[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
