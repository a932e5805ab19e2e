//! A member of an array that is only read, and whose parity is made right in memory.
//!
//! What the replay of a partial parity log writes stays in memory: so much as the log names, which is no more than the
//! log holds. The device itself is not written to. Takes no locks of its own.

use undercroft_block::{Access, BlockDevice, Device, Overlay, Result, Topology};

#[derive(Debug)]
pub(super) struct InMemory {
    base: Device,
    overlay: Overlay,
}

impl InMemory {
    pub(super) fn new(base: Device) -> Self {
        Self { overlay: Overlay::new(base.clone()), base }
    }
}

impl BlockDevice for InMemory {
    fn name(&self) -> String {
        self.base.name()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        self.overlay.access()
    }

    fn may_hang(&self) -> bool {
        self.base.may_hang()
    }

    fn topology(&self) -> Topology {
        self.base.topology()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.overlay.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.overlay.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
