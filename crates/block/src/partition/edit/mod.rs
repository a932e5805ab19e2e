//! Making and changing partition tables.
//!
//! A table is changed in memory and written as a whole: [`TableEditor::write`]. Every change is checked against the table
//! first, so what is written has partitions in order, inside of the disk and apart from each other. A table that is damaged,
//! or whose partitions overlap, is not changed.
//!
//! What is written survives a crash: of a GPT the backup is written first and the copy at the start once that is durable,
//! so one of them is good at any moment; an MBR is one sector. Of a table that was there everything stays that is not
//! changed: boot code, attributes and bytes of names that are not UTF-16.
//!
//! Left out: logical partitions can be kept, and neither made nor changed.

mod gpt;
mod mbr;

use std::ops::Range;

use uuid::Uuid;

use super::{Partition, PartitionId, PartitionKind, Scheme, Table, TableError, partitions};
use crate::{BlockDevice, Error};

/// Why a table cannot be changed, or not like this.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Error),
    /// The table cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There is no table.
    #[error("{device} has no partition table")]
    NoTable {
        /// The device's name.
        device: String,
    },
    /// The table contradicts itself or its disk, and is not changed.
    #[error("the partition table of {device} is damaged: {damage}")]
    Damaged {
        /// The device's name.
        device: String,
        /// What is wrong.
        damage: String,
    },
    /// What is asked for does not fit the table.
    #[error("{0}")]
    Refused(String),
}

type Result<T> = std::result::Result<T, EditError>;

fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(EditError::Refused(why.into()))
}

/// A partition that is to be added.
#[derive(Clone, Debug)]
pub struct NewPartition {
    /// Its number; the first that is free unless said.
    pub number: Option<u32>,
    /// First byte on the device: a multiple of the sector's size.
    pub start_bytes: u64,
    /// Size in bytes: a multiple of the sector's size, more than zero.
    pub size_bytes: u64,
    /// What it is to hold, in terms of the table's scheme.
    pub kind: PartitionKind,
    /// Its name, of at most 36 units of UTF-16; an MBR keeps none.
    pub label: Option<String>,
    /// What identifies it; an MBR keeps none.
    pub id: Uuid,
    /// Attribute bits of a GPT.
    pub attributes: u64,
    /// Whether it is marked for booting.
    pub bootable: bool,
}

/// A partition table in memory.
#[derive(Debug)]
pub struct TableEditor {
    table: Table,
    disk_bytes: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Gpt(gpt::Gpt),
    Mbr(mbr::Mbr),
}

impl TableEditor {
    /// A GPT without partitions for a disk of this size.
    ///
    /// # Errors
    /// [`EditError::Refused`]: the disk is too small, or there are no such sectors.
    pub fn new_gpt(disk_bytes: u64, sector_bytes: u32, disk: Uuid) -> Result<Self> {
        let (table, gpt) = gpt::Gpt::new(disk_bytes, sectors(sector_bytes)?, disk)?;
        Ok(Self { table, disk_bytes, form: Form::Gpt(gpt) })
    }

    /// An MBR without partitions for a disk of this size.
    ///
    /// # Errors
    /// [`EditError::Refused`]: the disk is too small, or there are no such sectors.
    pub fn new_mbr(disk_bytes: u64, sector_bytes: u32, signature: u32) -> Result<Self> {
        let (table, mbr) = mbr::Mbr::new(disk_bytes, sectors(sector_bytes)?, signature)?;
        Ok(Self { table, disk_bytes, form: Form::Mbr(mbr) })
    }

    /// The table of a device, to be changed.
    ///
    /// # Errors
    /// [`EditError`]: there is none, it is damaged, its partitions overlap or lie outside; the device failed.
    pub fn open<D: BlockDevice + ?Sized>(device: &D) -> Result<Self> {
        let table = partitions(device)?;
        let damaged = |damage: String| EditError::Damaged { device: device.name(), damage };
        if let Some(damage) = table.damage.first() {
            return Err(damaged(damage.clone()));
        }
        if let Some(damage) = table.contradiction() {
            return Err(damaged(damage));
        }
        let form = match table.scheme {
            Scheme::None => return Err(EditError::NoTable { device: device.name() }),
            Scheme::Gpt => Form::Gpt(gpt::Gpt::read(device, table.sector_bytes)?),
            Scheme::Mbr => Form::Mbr(mbr::Mbr::read(device)?),
        };
        Ok(Self { table, disk_bytes: device.size_bytes(), form })
    }

    /// The table as it will be.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The size of the disk that the table is for.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Runs of bytes in which partitions can be made, in order, cut to multiples of `align_bytes`, a multiple of the
    /// sector's size.
    #[must_use]
    pub fn gaps(&self, align_bytes: u64) -> Vec<Range<u64>> {
        let align = align_bytes.max(self.table.sector_bytes.into());
        let mut taken: Vec<Range<u64>> = self.table.partitions.iter().map(Partition::range).collect();
        taken.push(self.table.usable.end..self.table.usable.end);
        taken.sort_by_key(|range| range.start);
        let mut gaps = Vec::new();
        let mut at = self.table.usable.start;
        for range in taken {
            let start = at.checked_next_multiple_of(align).unwrap_or(u64::MAX);
            let end = range.start.min(self.table.usable.end) / align * align;
            if start < end {
                gaps.push(start..end);
            }
            at = at.max(range.end);
        }
        gaps
    }

    /// Adds a partition; returns its number.
    ///
    /// # Errors
    /// [`EditError::Refused`]: its place is taken or outside, its number, label or identifier is none or taken.
    pub fn add(&mut self, new: &NewPartition) -> Result<u32> {
        let range = self.free_range(new.start_bytes, new.size_bytes, None)?;
        let number = match &mut self.form {
            Form::Gpt(gpt) => gpt.add(new, &self.table)?,
            Form::Mbr(mbr) => mbr.add(new, &self.table)?,
        };
        let is_gpt = self.table.scheme == Scheme::Gpt;
        self.table.partitions.push(Partition {
            number,
            start_bytes: range.start,
            size_bytes: range.end - range.start,
            kind: new.kind,
            label: new.label.clone().filter(|label| is_gpt && !label.is_empty()),
            id: match self.table.disk {
                Some(super::DiskId::Mbr(disk)) => Some(PartitionId::Mbr { disk, number }),
                _ if is_gpt => Some(PartitionId::Gpt(new.id)),
                _ => None,
            },
            bootable: new.bootable,
            attributes: match &self.form {
                Form::Gpt(_) => gpt::attributes(new),
                Form::Mbr(_) => 0,
            },
        });
        self.table.partitions.sort_by_key(|partition| partition.number);
        Ok(number)
    }

    /// Moves the end of a partition.
    ///
    /// # Errors
    /// [`EditError::Refused`]: there is no such partition, it is a logical one or contains such, or what it would get is taken.
    pub fn set_size(&mut self, number: u32, size_bytes: u64) -> Result<()> {
        let Some(partition) = self.table.partition(number) else {
            return refused(format!("there is no partition {number}"));
        };
        if self.table.scheme == Scheme::Mbr && (number > 4 || partition.kind.is_extended()) {
            return refused(format!(
                "partition {number} is a logical one or contains such, which are not changed"
            ));
        }
        let range = self.free_range(partition.start_bytes, size_bytes, Some(number))?;
        match &mut self.form {
            Form::Gpt(gpt) => gpt.set_size(number, size_bytes),
            Form::Mbr(mbr) => mbr.set_size(number, &range, self.table.sector_bytes),
        }
        if let Some(found) = self.table.partitions.iter_mut().find(|partition| partition.number == number) {
            found.size_bytes = size_bytes;
        }
        Ok(())
    }

    /// Makes the table one for a disk of another size.
    ///
    /// # Errors
    /// [`EditError::Refused`]: partitions lie behind the new end.
    pub fn set_disk_size(&mut self, disk_bytes: u64) -> Result<()> {
        let usable = match &mut self.form {
            Form::Gpt(gpt) => gpt.usable_of(disk_bytes)?,
            Form::Mbr(_) => mbr::usable_of(disk_bytes, self.table.sector_bytes),
        };
        if let Some(last) = self.table.partitions.iter().max_by_key(|partition| partition.range().end)
            && last.range().end > usable.end
        {
            let behind = match &self.form {
                Form::Gpt(gpt) => gpt.bytes_behind(),
                Form::Mbr(_) => 0,
            };
            return refused(format!(
                "partition {} ends at byte {}, so the disk has at least {} bytes",
                last.number,
                last.range().end,
                last.range().end.saturating_add(behind)
            ));
        }
        if let Form::Gpt(gpt) = &mut self.form {
            gpt.set_disk_size(disk_bytes, &usable);
        }
        self.table.usable = usable;
        self.disk_bytes = disk_bytes;
        Ok(())
    }

    /// Writes the table. The device must be as large as the disk at least.
    ///
    /// # Errors
    /// The device failed; the old table or the new one is there.
    pub fn write<D: BlockDevice + ?Sized>(&self, device: &D) -> crate::Result<()> {
        match &self.form {
            Form::Gpt(gpt) => gpt.write(device, &self.table),
            Form::Mbr(mbr) => mbr.write(device),
        }
    }

    /// A range that no partition but `own` has.
    fn free_range(&self, start: u64, size: u64, own: Option<u32>) -> Result<Range<u64>> {
        let sector = u64::from(self.table.sector_bytes);
        let Some(end) = start.checked_add(size).filter(|_| size > 0) else {
            return refused("a partition has at least one sector");
        };
        if !start.is_multiple_of(sector) || !size.is_multiple_of(sector) {
            return refused(format!("partitions are made of whole sectors of {sector} bytes"));
        }
        let usable = &self.table.usable;
        if start < usable.start || end > usable.end {
            return refused(format!(
                "bytes {start} to {end} are not free: partitions may lie from byte {} to {}",
                usable.start, usable.end
            ));
        }
        let is_inside_own = |partition: &Partition| Some(partition.number) == own;
        let others = self.table.partitions.iter().filter(|&partition| !is_inside_own(partition));
        match others.into_iter().find(|other| other.range().start < end && start < other.range().end) {
            Some(other) => refused(format!(
                "bytes {start} to {end} are not free: partition {} lies from byte {} to {}",
                other.number,
                other.range().start,
                other.range().end
            )),
            None => Ok(start..end),
        }
    }
}

fn sectors(sector_bytes: u32) -> Result<u32> {
    if sector_bytes.is_power_of_two() && (512..=4096).contains(&sector_bytes) {
        Ok(sector_bytes)
    } else {
        refused(format!("there are no sectors of {sector_bytes} bytes"))
    }
}

/// Partitions that overlap or lie outside, in words. Logical ones lie in their container.
pub(super) fn contradiction(table: &Table) -> Option<String> {
    for (index, partition) in table.partitions.iter().enumerate() {
        let range = partition.range();
        if range.start < table.usable.start || range.end > table.usable.end {
            return Some(format!(
                "partition {} lies outside of the usable part of the disk",
                partition.number
            ));
        }
        let mut before = table.partitions[..index].iter();
        let crosses = |other: &&Partition| {
            let overlaps = other.range().start < range.end && range.start < other.range().end;
            overlaps && !other.kind.is_extended() && !partition.kind.is_extended()
        };
        if let Some(other) = before.find(crosses) {
            return Some(format!("partitions {} and {} overlap", other.number, partition.number));
        }
    }
    let is_primary = |partition: &&Partition| partition.number <= 4;
    for container in table.partitions.iter().filter(|partition| partition.kind.is_extended()) {
        let range = container.range();
        let mut primaries = table.partitions.iter().filter(is_primary);
        let crosses = |other: &&Partition| {
            other.number != container.number
                && other.range().start < range.end
                && range.start < other.range().end
        };
        if let Some(other) = primaries.find(crosses) {
            return Some(format!("partitions {} and {} overlap", container.number, other.number));
        }
    }
    None
}

#[cfg(test)]
mod tests;
