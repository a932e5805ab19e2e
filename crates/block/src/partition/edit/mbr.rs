//! An MBR as it is made, changed and written: one sector, of which only the entries that change are touched.

use std::ops::Range;

use super::super::mbr::{ENTRIES_AT, ENTRY_BYTES, PROTECTIVE, RECORD_BYTES, SIGNATURE_AT};
use super::super::{DiskId, PartitionKind, Scheme, Table};
use super::{NewPartition, Result, refused};
use crate::BlockDevice;

/// As Linux and all BIOSes of today count cylinders.
const HEADS: u64 = 255;
const SECTORS_PER_TRACK: u64 = 63;
const CYLINDERS: u64 = 1024;

#[derive(Debug)]
pub(super) struct Mbr {
    boot: [u8; RECORD_BYTES],
}

impl Mbr {
    pub(super) fn new(disk_bytes: u64, sector_bytes: u32, signature: u32) -> Result<(Table, Self)> {
        let usable = usable_of(disk_bytes, sector_bytes);
        if usable.is_empty() {
            return refused(format!("a disk of {disk_bytes} bytes is too small for an MBR"));
        }
        let mut boot = [0; RECORD_BYTES];
        boot[SIGNATURE_AT..SIGNATURE_AT + 4].copy_from_slice(&signature.to_le_bytes());
        boot[RECORD_BYTES - 2..].copy_from_slice(&[0x55, 0xaa]);
        let disk = (signature != 0).then_some(DiskId::Mbr(signature));
        Ok((Table { scheme: Scheme::Mbr, disk, usable, ..Table::none(sector_bytes) }, Self { boot }))
    }

    pub(super) fn read<D: BlockDevice + ?Sized>(device: &D) -> Result<Self> {
        let mut boot = [0; RECORD_BYTES];
        device.read_at(0, &mut boot)?;
        Ok(Self { boot })
    }

    pub(super) fn add(&mut self, new: &NewPartition, table: &Table) -> Result<u32> {
        let kind = match new.kind {
            PartitionKind::Mbr(kind) if kind != 0 && kind != PROTECTIVE => kind,
            PartitionKind::Mbr(_) => return refused("this type stands for no partition"),
            PartitionKind::Gpt(_) => return refused("an MBR has types of its own"),
        };
        if new.kind.is_extended() {
            return refused("logical partitions are not made; a GPT has room for 128");
        }
        let free = |number: &u32| table.partition(*number).is_none();
        let Some(number) =
            new.number.or_else(|| (1..=4).find(free)).filter(|number| (1..=4).contains(number))
        else {
            return refused("an MBR has four partitions; a GPT has room for 128");
        };
        if !free(&number) {
            return refused(format!("there is a partition {number}"));
        }
        let range = new.start_bytes..new.start_bytes + new.size_bytes;
        let entry = self.entry(number);
        entry.fill(0);
        entry[0] = if new.bootable { 0x80 } else { 0 };
        entry[4] = kind;
        self.place(number, &range, table.sector_bytes);
        Ok(number)
    }

    pub(super) fn set_size(&mut self, number: u32, range: &Range<u64>, sector_bytes: u32) {
        self.place(number, range, sector_bytes);
    }

    /// Of a primary partition, by number.
    fn entry(&mut self, number: u32) -> &mut [u8] {
        let at = ENTRIES_AT + (number as usize - 1) * ENTRY_BYTES;
        &mut self.boot[at..at + ENTRY_BYTES]
    }

    fn place(&mut self, number: u32, range: &Range<u64>, sector_bytes: u32) {
        // The usable part ends where 32 bits do.
        let sector = u64::from(sector_bytes);
        let (first, sectors) = (range.start / sector, (range.end - range.start) / sector);
        let entry = self.entry(number);
        entry[1..4].copy_from_slice(&chs(first));
        entry[5..8].copy_from_slice(&chs(first + sectors - 1));
        entry[8..12].copy_from_slice(&(first as u32).to_le_bytes());
        entry[12..].copy_from_slice(&(sectors as u32).to_le_bytes());
    }

    pub(super) fn write<D: BlockDevice + ?Sized>(&self, device: &D) -> crate::Result<()> {
        device.write_at(0, &self.boot)?;
        device.flush()
    }
}

/// The bytes for partitions: behind the first sector, as far as 32 bits count sectors.
pub(super) fn usable_of(disk_bytes: u64, sector_bytes: u32) -> Range<u64> {
    let sector = u64::from(sector_bytes);
    let end = (disk_bytes / sector).min(u32::MAX.into()) * sector;
    sector.min(end)..end
}

/// Cylinder, head and sector, as old BIOSes read them; the largest for what lies further behind.
fn chs(sector: u64) -> [u8; 3] {
    let cylinder = sector / (HEADS * SECTORS_PER_TRACK);
    if cylinder >= CYLINDERS {
        return [0xfe, 0xff, 0xff];
    }
    let head = sector / SECTORS_PER_TRACK % HEADS;
    let within = sector % SECTORS_PER_TRACK + 1;
    [head as u8, (within | cylinder >> 8 << 6) as u8, (cylinder & 0xff) as u8]
}
