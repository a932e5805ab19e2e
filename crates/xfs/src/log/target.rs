//! The device that changes are replayed into: a layer over the filesystem's.
//!
//! A buffer that was changed gets its position and checksum when the changes of one position of the log are complete,
//! not before: several transactions may have the same position, and a buffer that already carries it would not take the
//! changes of the second.
//!
//! A block of several sectors may be torn while it is written to the device, and then its first sector, with the new
//! position in it, keeps a recovery by Linux from replaying it. So such a block gets position 0, which stands for none,
//! where the log holds each buffer as a whole: every recovery replays it then. Where the log holds parts, as Linux logs
//! them, older parts must not be put into a newer block, which its position prevents.
//!
//! Only sectors that differ are written. What is written stays in memory up to a bound; from there on a second layer
//! over the first keeps it in a temporary file, up to [`MAX_CHANGED_BYTES`].

use std::collections::BTreeMap;
use std::sync::Arc;

use undercroft_block::{Device, Overlay, OverlayStore};
use undercroft_vfs::{Error, Result};

use super::format::Lsn;
use super::sealing;
use crate::error::corrupt;
use crate::format::buffer_kind::BufferKind;
use crate::format::{Daddr, Superblock};

/// Bytes in a buffer, at most: a directory block, or a cluster of inodes.
const MAX_BUFFER_BYTES: u32 = 64 << 10;

/// Bytes in a sector of 512 bytes: the unit of what is written.
const SECTOR: usize = 512;

/// Bytes that a log changes, at most. The layers index them in up to 256 MiB of memory.
const MAX_CHANGED_BYTES: u64 = 16 << 30;

/// Buffers with changes of one position, at most: more than the largest transaction has.
const MAX_UNSEALED: usize = 1 << 20;

/// See the module's description.
pub(super) struct Target {
    device: Device,
    /// The layer that is written to now.
    layer: Arc<Overlay>,
    /// The first layer, when the second is there.
    below: Option<Arc<Overlay>>,
    /// Bytes that the first layer may hold; `None` when the second is there.
    memory_bytes: Option<u64>,
    /// As the changes so far have left it.
    pub(super) superblock: Arc<Superblock>,
    /// Buffers with changes of the current position, their lengths in bytes, and what they are.
    unsealed: BTreeMap<Daddr, (u32, BufferKind)>,
    position: Lsn,
    /// The log holds each buffer as a whole.
    all_whole: bool,
}

impl Target {
    /// A layer over `device` that keeps up to `memory_bytes` in memory.
    pub(super) fn new(device: &Device, superblock: &Superblock, memory_bytes: u64) -> Self {
        let layer = Arc::new(Overlay::new(Arc::clone(device)));
        Self {
            device: Arc::clone(&layer) as Device,
            layer,
            below: None,
            memory_bytes: Some(memory_bytes),
            superblock: Arc::new(superblock.clone()),
            unsealed: BTreeMap::new(),
            position: Lsn::NULL,
            all_whole: false,
        }
    }

    /// The device with all that was written so far. What is written later may not show there.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The device with all that was written, and its layers, the lower first.
    pub(super) fn into_device(self) -> (Device, Vec<Arc<Overlay>>) {
        (self.device, self.below.into_iter().chain([self.layer]).collect())
    }

    /// Bytes in the layer that is written to now, in whole chunks of 4096.
    pub(super) fn changed_bytes(&self) -> u64 {
        self.layer.changed_bytes()
    }

    /// The log holds each buffer that it changes as a whole: see the module's description.
    pub(super) fn expect_whole_buffers(&mut self) {
        self.all_whole = true;
    }

    /// From here on changes have this position: completes what was changed with another one.
    ///
    /// # Errors
    /// `Io`; `Unsupported` as for [`Self::write`].
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
    /// As for [`Self::go_to`].
    pub(super) fn seal(&mut self) -> Result<()> {
        let block_bytes = self.superblock.geometry().block_bytes() as usize;
        let mut before = Vec::new();
        for (daddr, (len, kind)) in std::mem::take(&mut self.unsealed) {
            before.resize(len as usize, 0);
            self.device.read_at(daddr.byte(), &mut before)?;
            let mut after = before.clone();
            let position = if self.all_whole && !kind.is_one_sector() { Lsn(0) } else { self.position };
            sealing::seal(kind, &mut after, position, block_bytes);
            self.write_changes(daddr, &before, &after)?;
        }
        Ok(())
    }

    /// Has a changed buffer sealed as soon as the changes of this position are complete.
    ///
    /// # Errors
    /// `Corrupt` when one position has changes of more buffers than there can be.
    pub(super) fn seal_later(&mut self, daddr: Daddr, len: u32, kind: BufferKind) -> Result<()> {
        if self.superblock.features().has_crc() {
            self.unsealed.insert(daddr, (len, kind));
        }
        if self.unsealed.len() > MAX_UNSEALED {
            return Err(corrupt(
                "log",
                format!("changes more than {MAX_UNSEALED} buffers at {}", self.position),
            ));
        }
        Ok(())
    }

    /// Takes over a superblock that was replayed: a filesystem that was growing has more groups from here on.
    ///
    /// # Errors
    /// As for [`Superblock::read`]; `Corrupt` also when there are fewer groups than before.
    pub(super) fn reload_superblock(&mut self, buffer: &[u8], kind: BufferKind) -> Result<()> {
        if self.superblock.features().has_crc() && kind != BufferKind::SUPERBLOCK {
            return Ok(());
        }
        let mut sector = buffer.to_vec();
        sealing::seal(kind, &mut sector, self.position, self.superblock.geometry().block_bytes() as usize);
        let superblock = Superblock::from_sector(&sector)?;
        superblock.check_size(&*self.device)?;
        let [before, after] = [&*self.superblock, &superblock].map(|one| one.geometry().ag_count());
        if after < before {
            return Err(corrupt("log", format!("takes allocation groups away: from {before} to {after}")));
        }
        self.superblock = Arc::new(superblock);
        Ok(())
    }

    /// Length in bytes of a buffer of `sectors` sectors of 512 bytes.
    ///
    /// # Errors
    /// `Corrupt` when no buffer is that long, or it lies outside the device.
    pub(super) fn buffer_bytes(&self, daddr: Daddr, sectors: u32) -> Result<usize> {
        let len = sectors.saturating_mul(SECTOR as u32);
        if len == 0 || len > MAX_BUFFER_BYTES {
            return Err(corrupt("log", format!("has a buffer of {sectors} sectors at sector {daddr}")));
        }
        if daddr.byte().saturating_add(u64::from(len)) > self.device.size_bytes() {
            return Err(corrupt(
                "log",
                format!("has a buffer at sector {daddr}, past the end of the device"),
            ));
        }
        Ok(len as usize)
    }

    /// Reads a buffer of `sectors` sectors of 512 bytes.
    ///
    /// # Errors
    /// As for [`Self::buffer_bytes`]; `Io`.
    pub(super) fn read(&self, daddr: Daddr, sectors: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.buffer_bytes(daddr, sectors)?];
        self.device.read_at(daddr.byte(), &mut bytes)?;
        Ok(bytes)
    }

    /// Reads bytes of a buffer that lies within the device.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn read_bytes(&self, byte: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.device.read_at(byte, bytes)?)
    }

    /// Writes a buffer that was `before`, as far as it differs from that.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub(super) fn write_changes(&mut self, daddr: Daddr, before: &[u8], after: &[u8]) -> Result<()> {
        for (index, (before, after)) in before.chunks(SECTOR).zip(after.chunks(SECTOR)).enumerate() {
            if before != after {
                self.write(daddr.byte() + (index * SECTOR) as u64, after)?;
            }
        }
        Ok(())
    }

    /// Writes bytes of a buffer that lies within the device.
    ///
    /// # Errors
    /// `Io`; `Unsupported` when the log changes too much to be replayed here, or a temporary file is needed and there
    /// is none.
    pub(super) fn write(&mut self, byte: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(byte, bytes)?;
        let changed = self.changed_bytes();
        if changed > self.memory_bytes.unwrap_or(MAX_CHANGED_BYTES) {
            if self.memory_bytes.take().is_none() {
                let what = format!(
                    "a log that changes more than {} GiB: mount the filesystem once",
                    MAX_CHANGED_BYTES >> 30
                );
                return Err(Error::Unsupported(what.into()));
            }
            let store = OverlayStore::TempFile(std::env::temp_dir());
            let layer = Overlay::with_store(Arc::clone(&self.device), &store).map_err(|error| {
                let what =
                    format!("a log that changes {changed} bytes, which need a temporary file: {error}");
                Error::Unsupported(what.into())
            })?;
            self.below = Some(std::mem::replace(&mut self.layer, Arc::new(layer)));
            self.device = Arc::clone(&self.layer) as Device;
        }
        Ok(())
    }
}
