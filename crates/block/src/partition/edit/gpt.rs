//! A GPT as it is made, changed and written.
//!
//! The copy at the start says where its entries and the other header lie; both stay there until the disk's size changes. The
//! backup's entries end where its header begins.

use std::io::{self, Cursor};
use std::ops::Range;

use gptman::{GPTHeader, GPTPartitionEntry};
use uuid::Uuid;

use super::super::gpt::{ENTRY_BYTES, LEGACY_BOOTABLE, read_first};
use super::super::mbr::{ENTRIES_AT, PROTECTIVE, RECORD_BYTES};
use super::super::{DiskId, PartitionKind, Scheme, Table};
use super::{EditError, NewPartition, Result, refused};
use crate::{BlockDevice, Error, Operation};

/// As all tools make it.
const ENTRIES: u32 = 128;
/// Units of UTF-16 in a name.
const LABEL_UNITS: usize = 36;
const HEADER_BYTES: usize = 92;
/// Cylinder, head and sector of what lies further behind than these can say.
const BEYOND_CHS: [u8; 3] = [0xff; 3];

#[derive(Debug)]
pub(super) struct Gpt {
    pub(super) header: GPTHeader,
    pub(super) entries: Vec<GPTPartitionEntry>,
    sector_bytes: u64,
    /// The first sector.
    boot: [u8; RECORD_BYTES],
    /// Where the other header was before the disk's size changed.
    old_backup_lba: Option<u64>,
}

impl Gpt {
    pub(super) fn new(disk_bytes: u64, sector_bytes: u32, disk: Uuid) -> Result<(Table, Self)> {
        let header = GPTHeader {
            signature: *b"EFI PART",
            revision: [0, 0, 1, 0],
            header_size: 92,
            crc32_checksum: 0,
            reserved: [0; 4],
            primary_lba: 1,
            backup_lba: 0,
            first_usable_lba: 0,
            last_usable_lba: 0,
            disk_guid: disk.to_bytes_le(),
            partition_entry_lba: 2,
            number_of_partition_entries: ENTRIES,
            size_of_partition_entry: ENTRY_BYTES,
            partition_entry_array_crc32: 0,
        };
        let mut gpt = Self {
            header,
            entries: vec![GPTPartitionEntry::empty(); ENTRIES as usize],
            sector_bytes: sector_bytes.into(),
            boot: protective(),
            old_backup_lba: None,
        };
        gpt.header.first_usable_lba = 2 + gpt.array_sectors();
        let usable = gpt.usable_of(disk_bytes)?;
        gpt.set_disk_size(disk_bytes, &usable);
        gpt.old_backup_lba = None;
        let table =
            Table { scheme: Scheme::Gpt, disk: Some(DiskId::Gpt(disk)), usable, ..Table::none(sector_bytes) };
        Ok((table, gpt))
    }

    /// What lies where the copy at the start does not expect it is not written over.
    pub(super) fn read<D: BlockDevice + ?Sized>(device: &D, sector_bytes: u32) -> Result<Self> {
        let (header, entries) = read_first(device, sector_bytes)?;
        let mut boot = [0; RECORD_BYTES];
        device.read_at(0, &mut boot)?;
        let gpt = Self { header, entries, sector_bytes: sector_bytes.into(), boot, old_backup_lba: None };
        let total = device.size_bytes() / gpt.sector_bytes;
        let GPTHeader { partition_entry_lba, first_usable_lba, last_usable_lba, backup_lba, .. } = gpt.header;
        let in_front = partition_entry_lba >= 2
            && partition_entry_lba.saturating_add(gpt.array_sectors()) <= first_usable_lba;
        let behind = backup_lba < total
            && last_usable_lba.checked_add(gpt.array_sectors()).is_some_and(|last| last < backup_lba);
        if !in_front || !behind || first_usable_lba > last_usable_lba {
            let damage = "its header leaves no room for both copies".to_owned();
            return Err(EditError::Damaged { device: device.name(), damage });
        }
        Ok(gpt)
    }

    fn array_sectors(&self) -> u64 {
        (self.entries.len() as u64 * u64::from(ENTRY_BYTES)).div_ceil(self.sector_bytes)
    }

    /// What the backup takes at the end of a disk.
    pub(super) fn bytes_behind(&self) -> u64 {
        (self.array_sectors() + 1) * self.sector_bytes
    }

    /// The bytes for partitions on a disk of this size.
    pub(super) fn usable_of(&self, disk_bytes: u64) -> Result<Range<u64>> {
        let start = self.header.first_usable_lba * self.sector_bytes;
        let whole = disk_bytes / self.sector_bytes * self.sector_bytes;
        match whole.checked_sub(self.bytes_behind()) {
            Some(end) if end > start => Ok(start..end),
            _ => refused(format!("a disk of {disk_bytes} bytes is too small for a GPT")),
        }
    }

    pub(super) fn set_disk_size(&mut self, disk_bytes: u64, usable: &Range<u64>) {
        let backup_lba = disk_bytes / self.sector_bytes - 1;
        if self.header.backup_lba != backup_lba {
            self.old_backup_lba.get_or_insert(self.header.backup_lba);
        }
        self.header.backup_lba = backup_lba;
        self.header.last_usable_lba = usable.end / self.sector_bytes - 1;
        cover(&mut self.boot, backup_lba);
    }

    pub(super) fn add(&mut self, new: &NewPartition, table: &Table) -> Result<u32> {
        let PartitionKind::Gpt(kind) = new.kind else { return refused("a GPT has types of its own") };
        if kind.is_nil() {
            return refused("a type of zeroes stands for no partition");
        }
        let label = new.label.as_deref().unwrap_or_default();
        if label.encode_utf16().count() > LABEL_UNITS || label.contains('\0') {
            return refused(format!(
                "\"{label}\" is too long for a name: a GPT has {LABEL_UNITS} characters"
            ));
        }
        let entry = GPTPartitionEntry {
            partition_type_guid: kind.to_bytes_le(),
            unique_partition_guid: new.id.to_bytes_le(),
            starting_lba: new.start_bytes / self.sector_bytes,
            ending_lba: (new.start_bytes + new.size_bytes) / self.sector_bytes - 1,
            attribute_bits: attributes(new),
            partition_name: label.into(),
        };
        if self.used().any(|used| used.unique_partition_guid == entry.unique_partition_guid) {
            return refused(format!("there is a partition with the UUID {}", new.id));
        }
        let free = |number: &u32| table.partition(*number).is_none();
        let number = new.number.or_else(|| (1..=self.entries.len() as u32).find(free));
        let Some(number) = number.filter(|number| (1..=self.entries.len() as u32).contains(number)) else {
            return refused(format!(
                "the table has {} entries, and no free one of this number",
                self.entries.len()
            ));
        };
        if !free(&number) {
            return refused(format!("there is a partition {number}"));
        }
        self.entries[number as usize - 1] = entry;
        Ok(number)
    }

    fn used(&self) -> impl Iterator<Item = &GPTPartitionEntry> {
        self.entries.iter().filter(|entry| entry.is_used())
    }

    pub(super) fn set_size(&mut self, number: u32, size_bytes: u64) {
        if let Some(entry) = self.entries.get_mut(number as usize - 1) {
            entry.ending_lba = entry.starting_lba + size_bytes / self.sector_bytes - 1;
        }
    }

    /// The backup before the copy at the start, and the first sector last.
    pub(super) fn write<D: BlockDevice + ?Sized>(&self, device: &D, table: &Table) -> crate::Result<()> {
        let first = &self.header;
        let mut backup = first.clone();
        (backup.primary_lba, backup.backup_lba) = (first.backup_lba, first.primary_lba);
        backup.partition_entry_lba = first.backup_lba - self.array_sectors();
        self.write_copy(device, backup)?;
        device.flush()?;
        self.write_copy(device, first.clone())?;
        device.write_at(0, &self.boot)?;
        device.flush()?;
        self.erase_old_backup(device, table)
    }

    fn write_copy<D: BlockDevice + ?Sized>(&self, device: &D, mut header: GPTHeader) -> crate::Result<()> {
        header.update_partition_entry_array_crc32(&self.entries);
        header.update_crc32_checksum();
        let sector = self.sector_bytes as usize;
        let mut first = vec![0; sector];
        first[..HEADER_BYTES].copy_from_slice(&header_bytes(&header));
        device.write_at(header.partition_entry_lba * self.sector_bytes, &self.array(device)?)?;
        device.write_at(header.primary_lba * self.sector_bytes, &first)
    }

    /// The entries as they are written. Encoding them is gptman's, which writes a header in front of them.
    fn array<D: BlockDevice + ?Sized>(&self, device: &D) -> crate::Result<Vec<u8>> {
        let sector = self.sector_bytes as usize;
        let mut bytes = vec![0; sector + self.array_sectors() as usize * sector];
        let mut header = GPTHeader { primary_lba: 0, partition_entry_lba: 1, ..self.header.clone() };
        header.write_into(&mut Cursor::new(&mut bytes[..]), self.sector_bytes, &self.entries).map_err(
            |error| Error::Io {
                operation: Operation::Write,
                offset: self.sector_bytes,
                len: 0,
                device: device.name(),
                source: io::Error::other(error.to_string()),
            },
        )?;
        Ok(bytes.split_off(sector))
    }

    /// A backup that stays behind in the middle of the disk would be taken for one.
    fn erase_old_backup<D: BlockDevice + ?Sized>(&self, device: &D, table: &Table) -> crate::Result<()> {
        let Some(old) = self.old_backup_lba else { return Ok(()) };
        let offset = old.saturating_mul(self.sector_bytes);
        let range = offset..offset.saturating_add(self.sector_bytes);
        let is_free = range.start >= table.usable.start
            && range.end <= table.usable.end
            && table
                .partitions
                .iter()
                .all(|other| other.range().end <= range.start || range.end <= other.range().start);
        if !is_free {
            return Ok(());
        }
        let mut mark = [0; 8];
        device.read_at(offset, &mut mark)?;
        if mark != self.header.signature {
            return Ok(());
        }
        device.write_zeroes(offset, self.sector_bytes)?;
        device.flush()
    }
}

/// Attribute bits with the one for booting.
pub(super) fn attributes(new: &NewPartition) -> u64 {
    if new.bootable { new.attributes | LEGACY_BOOTABLE } else { new.attributes }
}

fn header_bytes(header: &GPTHeader) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let mut rest = &mut bytes[..];
    let mut put = |field: &[u8]| {
        let (here, behind) = std::mem::take(&mut rest).split_at_mut(field.len());
        here.copy_from_slice(field);
        rest = behind;
    };
    put(&header.signature);
    put(&header.revision);
    put(&header.header_size.to_le_bytes());
    put(&header.crc32_checksum.to_le_bytes());
    put(&header.reserved);
    put(&header.primary_lba.to_le_bytes());
    put(&header.backup_lba.to_le_bytes());
    put(&header.first_usable_lba.to_le_bytes());
    put(&header.last_usable_lba.to_le_bytes());
    put(&header.disk_guid);
    put(&header.partition_entry_lba.to_le_bytes());
    put(&header.number_of_partition_entries.to_le_bytes());
    put(&header.size_of_partition_entry.to_le_bytes());
    put(&header.partition_entry_array_crc32.to_le_bytes());
    bytes
}

/// A first sector that says that the disk has a GPT, which `cover` tells of its size.
fn protective() -> [u8; RECORD_BYTES] {
    let mut boot = [0; RECORD_BYTES];
    let entry = &mut boot[ENTRIES_AT..ENTRIES_AT + 16];
    entry[1..4].copy_from_slice(&[0, 2, 0]);
    entry[4] = PROTECTIVE;
    entry[5..8].copy_from_slice(&BEYOND_CHS);
    entry[8] = 1;
    boot[RECORD_BYTES - 2..].copy_from_slice(&[0x55, 0xaa]);
    boot
}

/// Lets the one entry of a protective record reach to the last sector. A record with other entries stays as it is.
fn cover(boot: &mut [u8; RECORD_BYTES], last_lba: u64) {
    let (entries, _) = boot[ENTRIES_AT..RECORD_BYTES - 2].as_chunks_mut::<16>();
    let is_used = |entry: &[u8; 16]| entry[4] != 0;
    if entries.iter().filter(|entry| is_used(entry)).count() != 1 {
        return;
    }
    let only = entries.iter_mut().find(|entry| entry[4] == PROTECTIVE && entry[8..12] == [1, 0, 0, 0]);
    if let Some(entry) = only {
        entry[12..].copy_from_slice(&u32::try_from(last_lba).unwrap_or(u32::MAX).to_le_bytes());
    }
}
