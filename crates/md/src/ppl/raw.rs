//! The bytes of a partial parity log's records: a header of 4 KiB, then the partial parity of its entries in turn.
//!
//! All numbers are little-endian. Checksums are CRC-32C: from all ones, and inverted at the end; that of the header
//! takes its own field as zero.
//!
//! Source: `Documentation/driver-api/md/raid5-ppl.rst`; the comments of `include/uapi/linux/raid/md_p.h` and
//! `drivers/md/raid5-ppl.c`; members written by Linux.

use std::mem::{offset_of, size_of};

use uuid::Uuid;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const HEADER_BYTES: usize = 4096;
/// A header has room for so many entries.
pub(crate) const MAX_ENTRIES: usize = 148;

/// One write: data, and the parity of all that it does not write in the same rows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    /// Sector of the array.
    pub(crate) data_sector: U64,
    /// In bytes; 0: all data of the rows is written.
    pub(crate) pp_size: U32,
    /// In bytes.
    pub(crate) data_size: U32,
    pub(crate) parity_disk: U32,
    pub(crate) checksum: U32,
}
const _: () = assert!(size_of::<RawEntry>() == 24);

/// Field for field as on disk; the names are those of `md_p.h`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) reserved: [u8; 512],
    pub(crate) signature: U32,
    pub(crate) padding: U32,
    pub(crate) generation: U64,
    pub(crate) entries_count: U32,
    pub(crate) checksum: U32,
    pub(crate) entries: [RawEntry; MAX_ENTRIES],
    /// What is left of 4 KiB.
    pub(crate) rest: [u8; 8],
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(RawHeader, entries) == 536);

/// What tells this array's records from others.
pub(crate) fn signature(array_uuid: Uuid) -> u32 {
    crc32c::crc32c(array_uuid.as_bytes())
}

/// The header of a record.
pub(crate) fn encode(signature: u32, generation: u64, entries: &[RawEntry]) -> RawHeader {
    let mut header = RawHeader::new_zeroed();
    header.reserved.fill(0xff);
    header.signature = U32::new(signature);
    header.generation = U64::new(generation);
    header.entries_count = U32::new(entries.len() as u32);
    header.entries[..entries.len()].copy_from_slice(entries);
    header.checksum = U32::new(crc32c::crc32c(header.as_bytes()));
    header
}

/// One write, validated as far as it can be without knowing the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// First byte of the array that was written.
    pub(crate) array_offset: u64,
    pub(crate) data_bytes: u64,
    pub(crate) parity_bytes: u64,
    pub(crate) parity_role: u32,
    pub(crate) checksum: u32,
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) generation: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Header {
    /// Validates 4 KiB; `None` if they are no header of this array's logs.
    pub(crate) fn decode(bytes: &[u8], signature: u32) -> Option<Self> {
        let (mut raw, _) = RawHeader::read_from_prefix(bytes).ok()?;
        let stored = raw.checksum.get();
        raw.checksum = U32::new(0);
        if crc32c::crc32c(raw.as_bytes()) != stored || raw.signature.get() != signature {
            return None;
        }
        let entries = raw.entries.get(..raw.entries_count.get() as usize)?;
        let entry = |raw: &RawEntry| {
            Some(Entry {
                array_offset: raw.data_sector.get().checked_mul(512)?,
                data_bytes: raw.data_size.get().into(),
                parity_bytes: raw.pp_size.get().into(),
                parity_role: raw.parity_disk.get(),
                checksum: raw.checksum.get(),
            })
        };
        let entries = entries.iter().map(entry).collect::<Option<Vec<_>>>()?;
        Some(Self { generation: raw.generation.get(), entries })
    }

    /// Length of the record, header and all.
    pub(crate) fn record_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.entries.iter().map(|entry| entry.parity_bytes).sum::<u64>()
    }
}
