//! The device that changes are replayed into: a layer in memory over the filesystem's.
//!
//! A buffer that was changed gets its position and checksum when the changes of one position of the log are complete,
//! not before: several transactions may have the same position, and a buffer that already carries it would not take the
//! changes of the second.

use std::collections::BTreeMap;

use undercroft_block::Device;
use undercroft_vfs::Result;

use super::format::Lsn;
use super::sealing::{self, BufferKind};
use crate::error::corrupt;
use crate::format::{Daddr, Superblock};

/// Bytes in a buffer, at most: a directory block, or a cluster of inodes.
const MAX_BUFFER_BYTES: u32 = 64 << 10;

/// See the module's description.
pub(super) struct Target<'a> {
    pub(super) device: Device,
    pub(super) superblock: &'a Superblock,
    /// Buffers with changes of the current position, their lengths in bytes, and what they are.
    unsealed: BTreeMap<Daddr, (u32, BufferKind)>,
    position: Lsn,
}

impl<'a> Target<'a> {
    pub(super) fn new(device: Device, superblock: &'a Superblock) -> Self {
        Self { device, superblock, unsealed: BTreeMap::new(), position: Lsn::NULL }
    }

    /// From here on changes have this position: completes what was changed with another one.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn go_to(&mut self, position: Lsn) -> Result<()> {
        if position == self.position {
            return Ok(());
        }
        self.seal()?;
        self.position = position;
        Ok(())
    }

    /// Completes what was changed.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn seal(&mut self) -> Result<()> {
        let block_bytes = self.superblock.geometry().block_bytes() as usize;
        let mut bytes = Vec::new();
        for (daddr, (len, kind)) in std::mem::take(&mut self.unsealed) {
            bytes.resize(len as usize, 0);
            self.device.read_at(daddr.byte(), &mut bytes)?;
            sealing::seal(kind, &mut bytes, self.position, block_bytes);
            self.device.write_at(daddr.byte(), &bytes)?;
        }
        Ok(())
    }

    /// Has a changed buffer sealed as soon as the changes of this position are complete.
    pub(super) fn seal_later(&mut self, daddr: Daddr, len: u32, kind: BufferKind) {
        if self.superblock.features().has_crc() {
            self.unsealed.insert(daddr, (len, kind));
        }
    }

    /// Reads a buffer of `len` sectors of 512 bytes.
    ///
    /// # Errors
    /// `Corrupt` when no buffer is that long, or it lies outside the device; `Io`.
    pub(super) fn read(&self, daddr: Daddr, sectors: u32) -> Result<Vec<u8>> {
        let len = sectors.saturating_mul(512);
        if len == 0 || len > MAX_BUFFER_BYTES {
            return Err(corrupt("log", format!("has a buffer of {sectors} sectors at sector {daddr}")));
        }
        if daddr.byte().saturating_add(u64::from(len)) > self.device.size_bytes() {
            return Err(corrupt(
                "log",
                format!("has a buffer at sector {daddr}, past the end of the device"),
            ));
        }
        let mut bytes = vec![0; len as usize];
        self.device.read_at(daddr.byte(), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a buffer that was read.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn write(&self, daddr: Daddr, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(daddr.byte(), bytes)?)
    }
}
