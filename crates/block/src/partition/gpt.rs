//! The GUID partition table: a header and an array of entries at the start of the disk, and a copy of both at its
//! end.
//!
//! The decoding and the checksums are gptman's. It trusts counts and addresses and allocates by them, so a header is
//! validated here first, and gptman is given only bytes that have been bounded and read here.

use std::io::Cursor;
use std::ops::Range;

use gptman::{GPTHeader, GPTPartitionEntry};
use uuid::Uuid;

use super::{DiskId, Partition, PartitionId, PartitionKind, Scheme, Table, TableError};
use crate::{BlockDevice, Error};

/// The only size of entries in use; Linux takes no other.
pub(super) const ENTRY_BYTES: u32 = 128;
/// Common tables have 128 entries. 4096 are half a megabyte, which bounds what is read and kept.
const MAX_ENTRIES: u32 = 4096;
/// The decoder reads a little past what it decodes.
const SLACK: usize = 512;
/// Attribute bit 2: bootable by legacy BIOS.
pub(super) const LEGACY_BOOTABLE: u64 = 1 << 2;

/// Why a copy is not used.
enum Bad {
    /// There is no header where one should be.
    Missing,
    /// There is one, and this is wrong with it. It may still say where its copy lies.
    Damaged { reason: String, other: Option<u64> },
    /// The device failed.
    Device(Error),
}

impl Bad {
    fn damaged(reason: impl Into<String>) -> Self {
        Self::Damaged { reason: reason.into(), other: None }
    }

    /// The reason in words, unless it is the device's.
    fn explain(self) -> Result<String, TableError> {
        match self {
            Self::Missing => Ok("there is no header".to_owned()),
            Self::Damaged { reason, .. } => Ok(reason),
            Self::Device(error) => Err(error.into()),
        }
    }
}

impl From<Error> for Bad {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

/// The table of a disk with a protective MBR: from the first usable copy, for the first fitting sector size.
pub(super) fn read<D: BlockDevice + ?Sized>(device: &D, candidates: &[u32]) -> Result<Table, TableError> {
    let mut primary = "there is no header".to_owned();
    let mut backups = Vec::new();
    for &sector_bytes in candidates {
        match read_copy(device, sector_bytes, 1) {
            Ok(table) => return Ok(table),
            Err(Bad::Missing) => {}
            Err(Bad::Damaged { reason, other }) => {
                backups.extend(other.map(|lba| (sector_bytes, lba)));
                primary = reason;
            }
            Err(Bad::Device(error)) => return Err(error.into()),
        }
    }
    for &sector_bytes in candidates {
        backups.extend(
            (device.size_bytes() / u64::from(sector_bytes)).checked_sub(1).map(|lba| (sector_bytes, lba)),
        );
    }
    let mut backup = "there is no header".to_owned();
    for (sector_bytes, lba) in backups {
        match read_copy(device, sector_bytes, lba) {
            Ok(mut table) => {
                table
                    .damage
                    .push(format!("the first copy of the table is damaged ({primary}); the backup was used"));
                return Ok(table);
            }
            Err(Bad::Missing) => {}
            Err(bad) => backup = bad.explain()?,
        }
    }
    Err(TableError::Damaged { device: device.name(), primary, backup })
}

/// Header and entries of the copy at the start, to be changed.
pub(super) fn read_first<D: BlockDevice + ?Sized>(
    device: &D,
    sector_bytes: u32,
) -> Result<(GPTHeader, Vec<GPTPartitionEntry>), TableError> {
    let read = read_header(device, sector_bytes, 1)
        .and_then(|header| Ok((header.clone(), read_entries(device, sector_bytes, &header)?)));
    read.or_else(|bad| {
        let primary = bad.explain()?;
        Err(TableError::Damaged { device: device.name(), primary, backup: "it was not looked at".to_owned() })
    })
}

/// The table from the copy whose header lies at `lba`.
fn read_copy<D: BlockDevice + ?Sized>(device: &D, sector_bytes: u32, lba: u64) -> Result<Table, Bad> {
    let header = read_header(device, sector_bytes, lba)?;
    let entries = read_entries(device, sector_bytes, &header).map_err(|bad| match bad {
        Bad::Damaged { reason, .. } => Bad::Damaged { reason, other: Some(header.backup_lba) },
        other => other,
    })?;
    let mut table = Table {
        scheme: Scheme::Gpt,
        disk: Some(DiskId::Gpt(Uuid::from_bytes_le(header.disk_guid))),
        usable: usable(&header, u64::from(sector_bytes), device.size_bytes()),
        ..Table::none(sector_bytes)
    };
    for (number, entry) in (1..).zip(entries).filter(|(_, entry)| entry.is_used()) {
        match partition(number, &entry, u64::from(sector_bytes)) {
            Some(partition) => table.partitions.push(partition),
            None => table.damage.push(format!(
                "partition {number} makes no sense: it lies from sector {} to sector {}",
                entry.starting_lba, entry.ending_lba
            )),
        }
    }
    Ok(table)
}

/// The bytes for partitions that a header names, within the device.
fn usable(header: &GPTHeader, sector_bytes: u64, device_bytes: u64) -> Range<u64> {
    let bytes = |lba: u64| lba.saturating_mul(sector_bytes).min(device_bytes);
    bytes(header.first_usable_lba)..bytes(header.last_usable_lba.saturating_add(1))
}

/// A header whose own checksum is right and whose numbers are within bounds.
fn read_header<D: BlockDevice + ?Sized>(device: &D, sector_bytes: u32, lba: u64) -> Result<GPTHeader, Bad> {
    let mut bytes = [0; 512];
    let offset = lba.checked_mul(sector_bytes.into()).ok_or(Bad::Missing)?;
    if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > device.size_bytes()) {
        return Err(Bad::Missing);
    }
    device.read_at(offset, &mut bytes)?;
    if !bytes.starts_with(b"EFI PART") {
        return Err(Bad::Missing);
    }
    let header = GPTHeader::read_from(&mut Cursor::new(&bytes)).map_err(|error| match error {
        gptman::Error::InvalidChecksum(found, expected) => {
            Bad::damaged(format!("header at sector {lba}: checksum {found:#010x}, expected {expected:#010x}"))
        }
        other => Bad::damaged(format!("header at sector {lba}: {other}")),
    })?;
    if header.primary_lba != lba {
        return Err(Bad::damaged(format!(
            "header at sector {lba} says it is at sector {}",
            header.primary_lba
        )));
    }
    if header.size_of_partition_entry != ENTRY_BYTES {
        let found = header.size_of_partition_entry;
        return Err(Bad::damaged(format!(
            "header at sector {lba}: entries of {found} bytes, expected {ENTRY_BYTES}"
        )));
    }
    if header.number_of_partition_entries > MAX_ENTRIES {
        let found = header.number_of_partition_entries;
        return Err(Bad::damaged(format!(
            "header at sector {lba}: {found} entries, at most {MAX_ENTRIES} expected"
        )));
    }
    Ok(header)
}

/// The entries of a header that has been checked; their common checksum is right.
fn read_entries<D: BlockDevice + ?Sized>(
    device: &D,
    sector_bytes: u32,
    header: &GPTHeader,
) -> Result<Vec<GPTPartitionEntry>, Bad> {
    let lba = header.partition_entry_lba;
    let len = header.number_of_partition_entries as usize * ENTRY_BYTES as usize;
    let offset = lba.checked_mul(sector_bytes.into());
    let offset = offset
        .filter(|offset| offset.checked_add(len as u64).is_some_and(|end| end <= device.size_bytes()))
        .ok_or_else(|| Bad::damaged(format!("entries at sector {lba}: outside the device")))?;
    let mut bytes = vec![0; len + SLACK];
    device.read_at(offset, &mut bytes[..len])?;
    // The array alone is what the decoder is to see, at address zero.
    let header = GPTHeader { partition_entry_lba: 0, ..header.clone() };
    header.read_partitions(&mut Cursor::new(&bytes), sector_bytes.into()).map_err(|error| match error {
        gptman::Error::InvalidPartitionEntryArrayChecksum(found, expected) => Bad::damaged(format!(
            "entries at sector {lba}: checksum {found:#010x}, expected {expected:#010x}"
        )),
        other => Bad::damaged(format!("entries at sector {lba}: {other}")),
    })
}

/// An entry in numbers of bytes; `None` if it ends before it begins or beyond all numbers.
pub(super) fn partition(number: u32, entry: &GPTPartitionEntry, sector_bytes: u64) -> Option<Partition> {
    let start_bytes = entry.starting_lba.checked_mul(sector_bytes)?;
    let end_bytes = entry.ending_lba.checked_add(1)?.checked_mul(sector_bytes)?;
    let label = entry.partition_name.as_str();
    Some(Partition {
        number,
        start_bytes,
        size_bytes: end_bytes.checked_sub(start_bytes).filter(|&size| size > 0)?,
        kind: PartitionKind::Gpt(Uuid::from_bytes_le(entry.partition_type_guid)),
        label: (!label.is_empty()).then(|| label.to_owned()),
        id: Some(PartitionId::Gpt(Uuid::from_bytes_le(entry.unique_partition_guid))),
        bootable: entry.attribute_bits & LEGACY_BOOTABLE != 0,
        attributes: entry.attribute_bits,
    })
}
