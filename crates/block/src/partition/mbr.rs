//! The master boot record and the chain of extended boot records behind it.
//!
//! The first sector has four entries. One of them may be an extended partition, a container: its first sector is again
//! such a record, with a logical partition (counted from that record) and a link to the next record (counted from the
//! container's start). All integers are little-endian and count sectors; the cylinder, head and sector fields are
//! ignored, as all systems do.

use std::collections::HashSet;

use super::{DiskId, MAX_PARTITIONS, Partition, PartitionId, PartitionKind, Scheme, Table, TableError};
use crate::{BlockDevice, Result};

/// Length of a record in bytes, whatever the sector size.
pub(super) const RECORD_BYTES: usize = 512;
pub(super) const SIGNATURE_AT: usize = 440;
pub(super) const ENTRIES_AT: usize = 446;
pub(super) const ENTRY_BYTES: usize = 16;
/// Type of the entry that covers a disk with a GPT.
pub(super) const PROTECTIVE: u8 = 0xee;

/// One entry of a record.
#[derive(Clone, Copy, Debug)]
struct Entry {
    boot_flag: u8,
    kind: u8,
    start: u32,
    sectors: u32,
}

impl Entry {
    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let &[boot_flag, _, _, _, kind, _, _, _, a, b, c, d, e, f, g, h] = bytes;
        Self {
            boot_flag,
            kind,
            start: u32::from_le_bytes([a, b, c, d]),
            sectors: u32::from_le_bytes([e, f, g, h]),
        }
    }

    fn is_used(self) -> bool {
        self.sectors != 0 && self.kind != 0
    }

    fn is_extended(self) -> bool {
        self.is_used() && PartitionKind::Mbr(self.kind).is_extended()
    }
}

/// A sector with four entries and the mark at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct BootRecord {
    entries: [Entry; 4],
    signature: u32,
}

impl BootRecord {
    /// Reads the record at a byte offset; `None` if there is none, or the device ends before it.
    pub(super) fn read<D: BlockDevice + ?Sized>(device: &D, offset: u64) -> Result<Option<Self>> {
        if offset.checked_add(RECORD_BYTES as u64).is_none_or(|end| end > device.size_bytes()) {
            return Ok(None);
        }
        let mut bytes = [0; RECORD_BYTES];
        device.read_at(offset, &mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    /// Understands a record; `None` if it has no mark, or flags that no record has: many boot sectors of
    /// filesystems carry the same mark, with code where the entries would be.
    fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (table, mark) = bytes[ENTRIES_AT..].split_at(4 * ENTRY_BYTES);
        let (chunks, _) = table.as_chunks::<ENTRY_BYTES>();
        let entries: [Entry; 4] = std::array::from_fn(|index| Entry::parse(&chunks[index]));
        let signature = &bytes[SIGNATURE_AT..SIGNATURE_AT + 4];
        let signature = signature.try_into().map_or(0, u32::from_le_bytes);
        let plausible = entries.iter().all(|entry| matches!(entry.boot_flag, 0 | 0x80));
        (mark == [0x55, 0xaa] && plausible).then_some(Self { entries, signature })
    }

    /// Whether it only says that the disk has a GPT: an entry of that type begins where the GPT does.
    pub(super) fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PROTECTIVE && entry.start == 1)
    }
}

/// The table of a disk whose first record is `boot`. A record without any entry counts as no table: boot loaders in
/// front of a filesystem leave such behind.
pub(super) fn read<D: BlockDevice + ?Sized>(
    device: &D,
    sector_bytes: u32,
    boot: &BootRecord,
) -> std::result::Result<Table, TableError> {
    if !boot.entries.iter().any(|entry| entry.is_used()) {
        return Ok(Table::none(sector_bytes));
    }
    let disk = (boot.signature != 0).then_some(DiskId::Mbr(boot.signature));
    // Its numbers of sectors have 32 bits.
    let addressable = (u64::from(u32::MAX) + 1) * u64::from(sector_bytes);
    let end = device.size_bytes().min(addressable);
    let usable = u64::from(sector_bytes).min(end)..end;
    let mut table = Table { scheme: Scheme::Mbr, disk, usable, ..Table::none(sector_bytes) };
    for (number, &entry) in (1..).zip(&boot.entries) {
        if entry.is_used() {
            push(&mut table, number, entry, entry.start.into());
        }
    }
    for entry in boot.entries.into_iter().filter(|entry| entry.is_extended()) {
        follow_chain(device, &mut table, entry)?;
    }
    Ok(table)
}

/// Adds the logical partitions of a container.
fn follow_chain<D: BlockDevice + ?Sized>(device: &D, table: &mut Table, container: Entry) -> Result<()> {
    let mut seen = HashSet::new();
    let mut at = u64::from(container.start);
    loop {
        if table.partitions.len() >= MAX_PARTITIONS {
            table
                .damage
                .push(format!("there are more than {MAX_PARTITIONS} partitions; the rest is left out"));
            return Ok(());
        }
        // Bounds the walk through records that hold no partition; it also ends a chain that bites its tail.
        if !seen.insert(at) || seen.len() > MAX_PARTITIONS {
            table.damage.push(format!(
                "the chain of extended boot records does not end: it comes back to sector {at}"
            ));
            return Ok(());
        }
        let Some(record) = BootRecord::read(device, at * u64::from(table.sector_bytes))? else {
            table.damage.push(format!("sector {at} should hold an extended boot record and does not"));
            return Ok(());
        };
        let container_range =
            u64::from(container.start)..u64::from(container.start) + u64::from(container.sectors);
        for (index, &entry) in record.entries.iter().enumerate() {
            if !entry.is_used() || entry.is_extended() {
                continue;
            }
            let start = at + u64::from(entry.start);
            let inside =
                container_range.contains(&start) && start + u64::from(entry.sectors) <= container_range.end;
            // Only the first two entries are in use; some tools leave rubbish in the others.
            if index < 2 || inside {
                let next = table.partitions.last().map_or(5, |last| last.number.max(4) + 1);
                push(table, next, entry, start);
            }
        }
        match record.entries.into_iter().find(|entry| entry.is_extended()) {
            Some(link) => at = u64::from(container.start) + u64::from(link.start),
            None => return Ok(()),
        }
    }
}

fn push(table: &mut Table, number: u32, entry: Entry, start: u64) {
    let sector_bytes = u64::from(table.sector_bytes);
    let id = match table.disk {
        Some(DiskId::Mbr(disk)) => Some(PartitionId::Mbr { disk, number }),
        _ => None,
    };
    table.partitions.push(Partition {
        number,
        // At most 2^33 sectors of 2^16 bytes.
        start_bytes: start * sector_bytes,
        size_bytes: u64::from(entry.sectors) * sector_bytes,
        kind: PartitionKind::Mbr(entry.kind),
        label: None,
        id,
        bootable: entry.boot_flag == 0x80,
        attributes: 0,
    });
}
