//! One record of the log: its header, validated, and its checksum.

use std::borrow::Cow;

use uuid::Uuid;
use zerocopy::FromBytes;

use super::area::LogArea;
use super::format::{
    BASIC_BLOCK, CHECKED_EXTENDED_BYTES, CHECKED_HEADER_BYTES, CHECKED_HEADER_BYTES_32, CYCLE_DATA_BYTES,
    FORMAT_LITTLE_ENDIAN, Lsn, RECORD_CRC, RECORD_MAGIC, RawRecordHeader,
};
use crate::error::Verdict;

/// Versions a record may have, as bits.
const KNOWN_VERSIONS: u32 = 3;
const VERSION_2: u32 = 2;

/// A record's first header block, as found.
#[derive(Clone, Copy)]
pub(super) struct RecordHeader(RawRecordHeader);

impl RecordHeader {
    /// Of a block that may begin a record.
    pub(super) fn of(block: &[u8]) -> Self {
        let (raw, _) = RawRecordHeader::read_from_prefix(block).expect("a basic block holds a header");
        Self(raw)
    }

    /// Whether this begins a record, of a known version, with data of `record_bytes` at most.
    pub(super) fn check(&self, record_bytes: u32) -> Verdict<()> {
        let Self(raw) = self;
        let (version, len) = (raw.h_version.get(), raw.h_len.get());
        let wrong: Cow<'static, str> = if raw.h_magicno.get() != RECORD_MAGIC {
            "is no record".into()
        } else if version == 0 || version & !KNOWN_VERSIONS != 0 {
            format!("is a record of the unknown version {version}").into()
        } else if len == 0 || len > record_bytes {
            format!("is a record of {len} bytes, where one has up to {record_bytes}").into()
        } else {
            return Ok(());
        };
        Err(wrong)
    }

    /// Bytes of data.
    pub(super) fn data_bytes(&self) -> u32 {
        self.0.h_len.get()
    }

    /// Basic blocks of data.
    pub(super) fn data_blocks(&self) -> u32 {
        self.data_bytes().div_ceil(BASIC_BLOCK as u32)
    }

    /// Bytes of data that the writer's records have at most.
    pub(super) fn record_bytes(&self) -> u32 {
        self.0.h_size.get()
    }

    /// Basic blocks of headers for records of that many bytes.
    pub(super) fn header_blocks_for(&self, area: &LogArea, record_bytes: u32) -> u32 {
        if area.version_2 && self.0.h_version.get() & VERSION_2 != 0 {
            record_bytes.div_ceil(CYCLE_DATA_BYTES).max(1)
        } else {
            1
        }
    }

    /// Basic blocks of headers, as this header has it.
    pub(super) fn header_blocks(&self, area: &LogArea) -> u32 {
        self.header_blocks_for(area, self.record_bytes())
    }

    pub(super) fn operations(&self) -> u32 {
        self.0.h_num_logops.get()
    }

    pub(super) fn cycle(&self) -> u32 {
        self.0.h_cycle.get()
    }

    /// Where the record lies.
    pub(super) fn lsn(&self) -> Lsn {
        Lsn(self.0.h_lsn.get())
    }

    /// The first record whose changes were not all in place when this one was written.
    pub(super) fn tail_lsn(&self) -> Lsn {
        Lsn(self.0.h_tail_lsn.get())
    }

    /// Whether the record belongs to the filesystem, or to none: IRIX left the UUID out.
    pub(super) fn check_owner(&self, area: &LogArea) -> Verdict<()> {
        let uuid = Uuid::from_bytes(self.0.h_fs_uuid);
        if uuid.is_nil() || uuid == area.uuid {
            return Ok(());
        }
        Err(format!("belongs to the filesystem {uuid}, and this one is {}", area.uuid).into())
    }

    /// Whether what the record carries can be replayed: it is the filesystem's own, in little-endian order.
    pub(super) fn check_format(&self, area: &LogArea) -> Verdict<()> {
        if self.0.h_fmt.get() != FORMAT_LITTLE_ENDIAN {
            return Err(format!(
                "was written by a host of another byte order (format {}); mount the filesystem there first",
                self.0.h_fmt.get()
            )
            .into());
        }
        let uuid = Uuid::from_bytes(self.0.h_fs_uuid);
        if uuid != area.uuid {
            return Err(format!("belongs to the filesystem {uuid}, and this one is {}", area.uuid).into());
        }
        Ok(())
    }

    /// The checksum that a record with these header blocks and this data should have.
    pub(super) fn right_checksum(&self, headers: &[u8], data: &[u8]) -> u32 {
        self.checksum_of(headers, data, CHECKED_HEADER_BYTES)
    }

    /// The checksum over so many bytes of the first header block, the extended ones, and the data.
    fn checksum_of(&self, headers: &[u8], data: &[u8], checked: usize) -> u32 {
        let mut crc = crc32c::crc32c(&headers[..RECORD_CRC]);
        crc = crc32c::crc32c_append(crc, &[0; 4]);
        crc = crc32c::crc32c_append(crc, &headers[RECORD_CRC + 4..checked]);
        if self.0.h_version.get() & VERSION_2 != 0 {
            let extended = data.len().div_ceil(CYCLE_DATA_BYTES as usize).saturating_sub(1);
            for header in headers.chunks_exact(BASIC_BLOCK).skip(1).take(extended) {
                crc = crc32c::crc32c_append(crc, &header[..CHECKED_EXTENDED_BYTES]);
            }
        }
        crc32c::crc32c_append(crc, data)
    }

    /// What the record's checksum says of its header blocks and its data, both as they are on the disk.
    pub(super) fn checksum(&self, headers: &[u8], data: &[u8]) -> Checksum {
        let stored = self.0.h_crc.get();
        if stored == 0 {
            return Checksum::Absent;
        }
        let of = |checked: usize| self.checksum_of(headers, data, checked);
        if stored == of(CHECKED_HEADER_BYTES) || stored == of(CHECKED_HEADER_BYTES_32) {
            Checksum::Right
        } else {
            Checksum::Wrong
        }
    }
}

/// What a record's checksum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksum {
    Right,
    Wrong,
    /// The record has none, as those that mkfs and old kernels write.
    Absent,
}
