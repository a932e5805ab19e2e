//! Where the log lies, and its blocks by number.
//!
//! A [`LogArea`] is validated: it lies within its device. The log is a ring of basic blocks; a read that passes its end
//! goes on at its start.

use std::sync::Arc;

use undercroft_block::{Device, Request};
use undercroft_vfs::{Error, Result};
use uuid::Uuid;

use super::format::{BASIC_BLOCK, RECORD_BYTES};
use crate::error::corrupt;
use crate::format::Superblock;

const STRUCTURE: &str = "superblock";

/// Bytes in a log, at most.
const MAX_LOG_BYTES: u64 = 2 << 30;

/// Basic blocks that are read at once when blocks are searched one by one.
pub(super) const SEARCH_BLOCKS: u32 = 256;

/// The log's ring of basic blocks, and what its records must agree with.
pub(super) struct LogArea {
    device: Device,
    start_byte: u64,
    blocks: u32,
    /// Whether records may be longer than 32 KiB.
    pub(super) version_2: bool,
    /// Bytes in a record where its header does not say it right: mkfs' own.
    pub(super) usual_record_bytes: u32,
    /// The UUID that records carry.
    pub(super) uuid: Uuid,
    /// Whether records must have checksums.
    pub(super) checksums: bool,
}

impl LogArea {
    /// The log of a filesystem on `device`, or on `external` where the superblock says that it lies elsewhere.
    ///
    /// # Errors
    /// `Unsupported` when the log's device is missing, or needless; `Corrupt` when the log does not fit.
    pub(super) fn locate(
        device: &Device,
        external: Option<&Device>,
        superblock: &Superblock,
    ) -> Result<Self> {
        let geometry = superblock.geometry();
        let bytes = u64::from(superblock.log_blocks()) << geometry.block_log();
        if bytes == 0 || bytes > MAX_LOG_BYTES {
            return Err(corrupt(STRUCTURE, format!("a log of {bytes} bytes; one has up to 2 GiB")));
        }
        let (device, start_byte) = match (superblock.log_start(), external) {
            (None, Some(external)) => (external, 0),
            (None, None) => {
                let what =
                    "an XFS filesystem without the device that its log is on: name that with ?log=PATH";
                return Err(Error::Unsupported(what.into()));
            }
            (Some(_), Some(external)) => {
                let what = format!(
                    "a log on another device ({}) for an XFS filesystem that holds its own: leave ?log= out",
                    external.name()
                );
                return Err(Error::Unsupported(what.into()));
            }
            (Some(start), None) => {
                let byte = geometry
                    .check_run(start, u64::from(superblock.log_blocks()))
                    .and_then(|_| geometry.byte(start))
                    .ok_or_else(|| {
                        corrupt(STRUCTURE, format!("the log at block {start} lies in no allocation group"))
                    })?;
                (device, byte)
            }
        };
        if start_byte.checked_add(bytes).is_none_or(|end| end > device.size_bytes()) {
            return Err(corrupt(
                STRUCTURE,
                format!("the log of {bytes} bytes reaches past the end of {}", device.name()),
            ));
        }
        Ok(Self {
            device: device.clone(),
            start_byte,
            blocks: (bytes / BASIC_BLOCK as u64) as u32,
            version_2: superblock.features().has_log_v2(),
            usual_record_bytes: superblock.log_stripe_bytes().max(RECORD_BYTES),
            uuid: superblock.uuid(),
            checksums: superblock.features().has_crc(),
        })
    }

    /// Where a block lies on its device.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn byte_of(&self, block: u32) -> u64 {
        self.start_byte + u64::from(block) * BASIC_BLOCK as u64
    }

    /// Basic blocks in the ring.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The block that lies `distance` after `block`, which may be the ring's length at most.
    pub(super) fn after(&self, block: u32, distance: u32) -> u32 {
        ((u64::from(block) + u64::from(distance)) % u64::from(self.blocks)) as u32
    }

    /// Blocks from `from` on to `to`, 0 where they are the same.
    pub(super) fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + (self.blocks - from) }
    }

    /// Reads blocks from `block` on, which lies in the ring; `buf` has whole blocks, and not more than the ring.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn read(&self, block: u32, buf: &mut [u8]) -> Result<()> {
        let before_end = (self.blocks - block) as usize * BASIC_BLOCK;
        let (here, wrapped) = buf.split_at_mut(before_end.min(buf.len()));
        self.device.read_at(self.start_byte + u64::from(block) * BASIC_BLOCK as u64, here)?;
        if !wrapped.is_empty() {
            self.device.read_at(self.start_byte, wrapped)?;
        }
        Ok(())
    }

    /// Adds what writes `bytes`, whole blocks and not more than the ring, from `block` on, which lies in the ring.
    pub(super) fn write_requests<'a>(&self, block: u32, bytes: &'a [u8], requests: &mut Vec<Request<'a>>) {
        let before_end = (self.blocks - block) as usize * BASIC_BLOCK;
        let (here, wrapped) = bytes.split_at(before_end.min(bytes.len()));
        let offset = self.start_byte + u64::from(block) * BASIC_BLOCK as u64;
        requests.push(Request::Write { offset, data: here });
        if !wrapped.is_empty() {
            requests.push(Request::Write { offset: self.start_byte, data: wrapped });
        }
    }

    /// Where the log lies.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The same log, written and read through another device over the same bytes.
    pub(super) fn on(self, device: &Device) -> Self {
        Self { device: Arc::clone(device), ..self }
    }

    /// The same log, of a filesystem with this UUID.
    pub(super) fn with_uuid(self, uuid: Uuid) -> Self {
        Self { uuid, ..self }
    }

    /// Reads one block.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn read_block(&self, block: u32) -> Result<[u8; BASIC_BLOCK]> {
        let mut buf = [0; BASIC_BLOCK];
        self.read(block, &mut buf)?;
        Ok(buf)
    }

    /// The first block at or after `from`, of `count` blocks, for which `wanted` holds. Does not pass the ring's end.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn find_forward(
        &self,
        from: u32,
        count: u32,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<u32>> {
        let end = from.saturating_add(count).min(self.blocks);
        let mut buf = vec![0; SEARCH_BLOCKS as usize * BASIC_BLOCK];
        let mut at = from;
        while at < end {
            let now = SEARCH_BLOCKS.min(end - at);
            let buf = &mut buf[..now as usize * BASIC_BLOCK];
            self.read(at, buf)?;
            if let Some(index) = buf.chunks_exact(BASIC_BLOCK).position(&mut wanted) {
                return Ok(Some(at + index as u32));
            }
            at += now;
        }
        Ok(None)
    }

    /// The last block before `end`, and not before `start`, that begins a record, and its content.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn find_record_backward(
        &self,
        start: u32,
        end: u32,
    ) -> Result<Option<(u32, [u8; BASIC_BLOCK])>> {
        let mut buf = vec![0; SEARCH_BLOCKS as usize * BASIC_BLOCK];
        let mut end = end;
        while end > start {
            let now = SEARCH_BLOCKS.min(end - start);
            let buf = &mut buf[..now as usize * BASIC_BLOCK];
            self.read(end - now, buf)?;
            let found = buf.chunks_exact(BASIC_BLOCK).rposition(super::format::begins_record);
            if let Some(index) = found {
                let mut block = [0; BASIC_BLOCK];
                block.copy_from_slice(&buf[index * BASIC_BLOCK..][..BASIC_BLOCK]);
                return Ok(Some((end - now + index as u32, block)));
            }
            end -= now;
        }
        Ok(None)
    }
}
