//! The boot sector, in FAT32 its copy, and the sector that counts free clusters.

use undercroft_block::BlockDevice;

use super::shape::{FIRST_CLUSTER, Kind, ROOT_ENTRIES, Shape, TABLES};
use super::{FatOptions, LABEL_BYTES, SECTOR_BYTES};
use crate::Error;

/// A disk that is not taken out.
pub(super) const MEDIA: u8 = 0xf8;
const MAKER: &[u8; 8] = b"MSWIN4.1";
const NO_LABEL: &[u8; LABEL_BYTES] = b"NO NAME    ";
const FREE_SECTOR: u64 = 1;
const BACKUP_SECTOR: u64 = 6;
/// Gives the machine back to its firmware: `int 0x18`, and then waits for ever.
const BOOT_CODE: [u8; 5] = [0xcd, 0x18, 0xf4, 0xeb, 0xfd];

/// Writes them; the boot sector is the last.
pub(super) fn write<D: BlockDevice + ?Sized>(
    device: &D,
    shape: &Shape,
    options: &FatOptions,
    label: Option<[u8; LABEL_BYTES]>,
    next_free: u32,
) -> Result<(), Error> {
    let boot = boot_sector(shape, options, label);
    if shape.kind == Kind::Fat32 {
        let free = free_sector(shape, next_free);
        for copy in [BACKUP_SECTOR, 0] {
            device.write_at((copy + FREE_SECTOR) * SECTOR_BYTES, &free)?;
        }
        device.write_at(BACKUP_SECTOR * SECTOR_BYTES, &boot)?;
    }
    Ok(device.write_at(0, &boot)?)
}

fn boot_sector(shape: &Shape, options: &FatOptions, label: Option<[u8; LABEL_BYTES]>) -> Vec<u8> {
    let is_32 = shape.kind == Kind::Fat32;
    let mut sector = vec![0; SECTOR_BYTES as usize];
    let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
    // Numbers fit their fields: the shape keeps to the limits of its kind.
    let code_at = if is_32 { 90 } else { 62 };
    put(0, &[0xeb, code_at - 2, 0x90]);
    put(3, MAKER);
    put(11, &(SECTOR_BYTES as u16).to_le_bytes());
    put(13, &[shape.per_cluster as u8]);
    put(14, &(shape.reserved as u16).to_le_bytes());
    put(16, &[TABLES as u8]);
    let root_entries = if is_32 { 0 } else { ROOT_ENTRIES as u16 };
    put(17, &root_entries.to_le_bytes());
    let short_count = u16::try_from(shape.sectors).ok().filter(|_| !is_32);
    put(19, &short_count.unwrap_or(0).to_le_bytes());
    put(21, &[MEDIA]);
    put(22, &if is_32 { 0 } else { shape.per_table as u16 }.to_le_bytes());
    put(24, &63_u16.to_le_bytes());
    put(26, &255_u16.to_le_bytes());
    let start = u32::try_from(options.start_bytes / SECTOR_BYTES).unwrap_or(0);
    put(28, &start.to_le_bytes());
    put(32, &if short_count.is_some() { 0 } else { shape.sectors as u32 }.to_le_bytes());
    if is_32 {
        put(36, &(shape.per_table as u32).to_le_bytes());
        put(44, &FIRST_CLUSTER.to_le_bytes());
        put(48, &(FREE_SECTOR as u16).to_le_bytes());
        put(50, &(BACKUP_SECTOR as u16).to_le_bytes());
    }
    let named = if is_32 { 64 } else { 36 };
    put(named, &[0x80, 0, 0x29]);
    put(named + 3, &options.volume_id.to_le_bytes());
    put(named + 7, &label.unwrap_or(*NO_LABEL));
    put(
        named + 18,
        match shape.kind {
            Kind::Fat12 => b"FAT12   ",
            Kind::Fat16 => b"FAT16   ",
            Kind::Fat32 => b"FAT32   ",
        },
    );
    put(code_at.into(), &BOOT_CODE);
    put(510, &[0x55, 0xaa]);
    sector
}

fn free_sector(shape: &Shape, next_free: u32) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_BYTES as usize];
    let used = u64::from(next_free - FIRST_CLUSTER);
    let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"RRaA");
    put(484, b"rrAa");
    put(488, &((shape.clusters - used) as u32).to_le_bytes());
    put(492, &next_free.to_le_bytes());
    put(508, &[0, 0, 0x55, 0xaa]);
    sector
}
