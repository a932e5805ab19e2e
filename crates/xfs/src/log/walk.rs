//! The records of a part of the log, in order.
//!
//! The size of the headers is that of the first record: it changes only while a log is empty. The walk ends because
//! each record takes at least two blocks of the ring, and it may not take more than there are between its ends.

use std::borrow::Cow;

use undercroft_vfs::Error;

use super::area::LogArea;
use super::format::{BASIC_BLOCK, MAX_RECORD_BYTES, RECORD_BYTES};
use super::record::RecordHeader;

/// Why a walk ended early.
#[derive(Debug)]
pub(super) enum WalkError {
    /// The record at `block` is none, or is damaged.
    Bad { block: u32, what: Cow<'static, str> },
    /// Reading failed, or the caller refused a record.
    Failed(Error),
}

impl From<Error> for WalkError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A record in memory.
pub(super) struct Record<'a> {
    /// Its first block.
    pub(super) block: u32,
    pub(super) header: RecordHeader,
    /// All of its header blocks.
    pub(super) headers: &'a [u8],
    /// Its data in whole blocks, as it is on the disk.
    pub(super) data: &'a mut [u8],
}

/// The records from `tail` on up to `head`, which differ.
pub(super) struct Records<'a> {
    area: &'a LogArea,
    at: u32,
    /// Blocks up to the head.
    left: u32,
    header_blocks: u32,
    record_bytes: u32,
    headers: Vec<u8>,
    data: Vec<u8>,
}

impl<'a> Records<'a> {
    pub(super) fn new(area: &'a LogArea, tail: u32, head: u32) -> Result<Self, WalkError> {
        let bad = |what| WalkError::Bad { block: tail, what };
        if tail >= area.blocks() || head >= area.blocks() {
            return Err(bad("lies outside the log".into()));
        }
        let (mut record_bytes, mut header_blocks) = (RECORD_BYTES, 1);
        if area.version_2 {
            let first = RecordHeader::of(&area.read_block(tail)?);
            record_bytes = first.record_bytes();
            // mkfs pads its only record to the stripe, and says 32 KiB all the same.
            let len = first.data_bytes();
            if len > record_bytes && len <= area.usual_record_bytes && first.operations() == 1 {
                record_bytes = area.usual_record_bytes;
            }
            first.check(record_bytes).map_err(bad)?;
            if record_bytes > MAX_RECORD_BYTES {
                return Err(bad(
                    format!("has records of {record_bytes} bytes; they have up to 256 KiB").into()
                ));
            }
            header_blocks = first.header_blocks_for(area, record_bytes);
        }
        Ok(Self {
            area,
            at: tail,
            left: area.distance(tail, head),
            header_blocks,
            record_bytes,
            headers: vec![0; header_blocks as usize * BASIC_BLOCK],
            data: vec![0; record_bytes.next_multiple_of(BASIC_BLOCK as u32) as usize],
        })
    }

    /// The next record; `None` at the head.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, WalkError> {
        if self.left == 0 {
            return Ok(None);
        }
        let (area, block) = (self.area, self.at);
        let bad = |what| WalkError::Bad { block, what };
        if self.header_blocks > area.blocks() {
            return Err(bad("has more header blocks than the log has blocks".into()));
        }
        area.read(block, &mut self.headers)?;
        let header = RecordHeader::of(&self.headers);
        header.check(self.record_bytes).map_err(bad)?;
        let data_blocks = header.data_blocks();
        let blocks = self.header_blocks + data_blocks;
        if blocks > area.blocks() {
            return Err(bad(format!("is a record of {blocks} blocks in a log of {}", area.blocks()).into()));
        }
        let data = &mut self.data[..data_blocks as usize * BASIC_BLOCK];
        area.read(area.after(block, self.header_blocks), data)?;
        self.at = area.after(block, blocks);
        self.left = self.left.saturating_sub(blocks);
        Ok(Some(Record { block, header, headers: &self.headers, data }))
    }
}
