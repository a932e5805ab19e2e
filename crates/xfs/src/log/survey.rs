//! For tests: where the records of a log lie that a recovery replays, and their checksums made right after damage.

use std::ops::Range;

use undercroft_block::{BlockDevice, Device};
use undercroft_vfs::{Error, Result};

use super::area::LogArea;
use super::ends::{LogEnds, damaged};
use super::format::{BASIC_BLOCK, RECORD_CRC, RawOperationHeader};
use super::record::RecordHeader;
use super::walk::{Records, WalkError};
use crate::format::Superblock;

/// A record of a log: header blocks, and the blocks of its data.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// Where its bytes lie on the device, in order: one piece, or two where the log's end lies between.
    pub pieces: Vec<Range<u64>>,
    header_bytes: usize,
    /// Where each operation begins, in bytes from the record's start.
    pub operations: Vec<usize>,
}

impl LogRecord {
    /// Reads it.
    ///
    /// # Errors
    /// `Io`.
    pub fn read(&self, device: &dyn BlockDevice) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            let at = bytes.len();
            bytes.resize(at + (piece.end - piece.start) as usize, 0);
            device.read_at(piece.start, &mut bytes[at..])?;
        }
        Ok(bytes)
    }

    /// Stores the checksum that `bytes` (the whole record) should have.
    pub fn mend(&self, bytes: &mut [u8]) {
        let (headers, data) = bytes.split_at(self.header_bytes);
        let header = RecordHeader::of(headers);
        let len = (header.data_bytes() as usize).min(data.len());
        let crc = header.right_checksum(headers, &data[..len]);
        bytes[RECORD_CRC..RECORD_CRC + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The records between the ends of the log of the filesystem on `device`, which holds its own log.
///
/// # Errors
/// As for a recovery.
pub fn log_records(device: &Device) -> Result<Vec<LogRecord>> {
    let superblock = Superblock::read(&**device)?;
    let area = LogArea::locate(device, None, &superblock)?;
    let ends = LogEnds::find(&area)?;
    let refuse = |error| match error {
        WalkError::Bad { block, what } => damaged(block, &what),
        WalkError::Failed(error) => error,
    };
    let mut found = Vec::new();
    if ends.is_clean() {
        return Ok(found);
    }
    let mut records = Records::new(&area, ends.tail, ends.head).map_err(refuse)?;
    while let Some(record) = records.next().map_err(refuse)? {
        let header_bytes = record.headers.len();
        let bytes = (header_bytes + record.data.len()) as u64;
        let start = area.byte_of(record.block);
        let end_of_log = area.byte_of(0) + u64::from(area.blocks()) * BASIC_BLOCK as u64;
        let here = bytes.min(end_of_log - start);
        let mut pieces = Vec::new();
        pieces.push(start..start + here);
        if here < bytes {
            pieces.push(area.byte_of(0)..area.byte_of(0) + bytes - here);
        }
        if !super::format::unpack(record.headers, record.data) {
            return Err(Error::Unsupported("a record with too few header blocks".into()));
        }
        let mut operations = Vec::new();
        let mut at = 0;
        for _ in 0..record.header.operations() {
            let Some(header) = record.data.get(at..).and_then(|rest| {
                <RawOperationHeader as zerocopy::FromBytes>::read_from_prefix(rest)
                    .ok()
                    .map(|(header, _)| header)
            }) else {
                break;
            };
            operations.push(header_bytes + at);
            at += size_of::<RawOperationHeader>() + header.oh_len.get() as usize;
        }
        found.push(LogRecord { pieces, header_bytes, operations });
    }
    Ok(found)
}
