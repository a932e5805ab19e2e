//! Partition tables: GPT and MBR with its extended partitions, as found on the first sectors of a disk image.
//!
//! Partitions have the numbers that Linux gives them: in a GPT the place in the table, in an MBR 1 to 4 for the
//! entries of the first sector and from 5 on for the logical partitions, in the order of their chain. As in Linux, a
//! GPT counts only behind a protective MBR, so that its remains under a newer table or filesystem are not taken for
//! partitions.
//!
//! Nothing in a table is trusted beyond what is validated here: entries are bounded in number, chains in length. A
//! partition may still reach past the end of an image that was cut short; it is listed as the table has it, and
//! [`PartitionDevice::open`](crate::PartitionDevice::open) refuses it.
//!
//! Tables are made and changed by a [`TableEditor`].
//!
//! Left out: tables inside partitions, and changing logical partitions. Formats: UEFI specification chapter 5 (GPT); the MBR has
//! none, and what Linux and util-linux do counts.

mod edit;
mod gpt;
mod kind;
mod mbr;
mod types;

use std::fmt;
use std::ops::Range;

use uuid::Uuid;

pub use edit::{EditError, NewPartition, TableEditor};
pub use kind::PartitionKind;

use crate::{BlockDevice, Error};

/// More logical partitions than this are not followed; Linux has the same limit for all of a disk.
const MAX_PARTITIONS: usize = 256;

/// What a partition table says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Which kind of table it is.
    pub scheme: Scheme,
    /// The unit of the table's numbers in bytes.
    pub sector_bytes: u32,
    /// The disk's own identifier.
    pub disk: Option<DiskId>,
    /// The bytes in which partitions may lie: as a GPT says; behind the first sector with an MBR.
    pub usable: Range<u64>,
    /// The partitions, by rising number.
    pub partitions: Vec<Partition>,
    /// What is wrong with the table although it could be used, as sentences for the user.
    pub damage: Vec<String>,
}

impl Table {
    /// The partition of this number.
    #[must_use]
    pub fn partition(&self, number: u32) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.number == number)
    }

    /// Partitions that overlap or lie outside of the usable part of the disk, in words. A container of logical partitions
    /// overlaps them, and nothing else.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        edit::contradiction(self)
    }

    fn none(sector_bytes: u32) -> Self {
        Self {
            scheme: Scheme::None,
            sector_bytes,
            disk: None,
            usable: 0..0,
            partitions: Vec::new(),
            damage: Vec::new(),
        }
    }

    /// Runs of bytes that are in no partition, in order, each longer than `longer_than`; a container of logical
    /// partitions counts as free where none of these lies.
    #[must_use]
    pub fn free(&self, longer_than: u64) -> Vec<Range<u64>> {
        let mut taken: Vec<Range<u64>> = self
            .partitions
            .iter()
            .filter(|partition| !partition.kind.is_extended())
            .map(|partition| {
                partition.start_bytes..partition.start_bytes.saturating_add(partition.size_bytes)
            })
            .collect();
        taken.push(self.usable.end..self.usable.end);
        taken.sort_by_key(|range| range.start);
        let mut free = Vec::new();
        let mut at = self.usable.start;
        for range in taken {
            let end = range.start.min(self.usable.end);
            if end.saturating_sub(at) > longer_than {
                free.push(at..end);
            }
            at = at.max(range.end);
        }
        free
    }
}

/// The kinds of partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// There is no table: what the device holds, it holds as a whole.
    None,
    /// A master boot record, also called a DOS table.
    Mbr,
    /// A GUID partition table.
    Gpt,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Mbr => "MBR",
            Self::Gpt => "GPT",
        })
    }
}

/// What identifies a disk, in its table's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskId {
    /// The 32-bit signature of an MBR.
    Mbr(u32),
    /// The UUID of a GPT.
    Gpt(Uuid),
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr(signature) => write!(f, "{signature:08x}"),
            Self::Gpt(uuid) => uuid.fmt(f),
        }
    }
}

/// What identifies a partition; prints as Linux's `PARTUUID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionId {
    /// The disk's signature and the partition's number.
    Mbr {
        /// The disk's signature.
        disk: u32,
        /// The partition's number.
        number: u32,
    },
    /// The partition's own UUID.
    Gpt(Uuid),
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr { disk, number } => write!(f, "{disk:08x}-{number:02x}"),
            Self::Gpt(uuid) => uuid.fmt(f),
        }
    }
}

/// One partition, as its table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The number that Linux gives it.
    pub number: u32,
    /// First byte on the device.
    pub start_bytes: u64,
    /// Size in bytes, more than zero.
    pub size_bytes: u64,
    /// What it is said to hold.
    pub kind: PartitionKind,
    /// Its name in a GPT; empty names count as none.
    pub label: Option<String>,
    /// What identifies it; an MBR without a signature has nothing.
    pub id: Option<PartitionId>,
    /// Whether it is marked for booting: active in an MBR, bootable by legacy BIOS in a GPT.
    pub bootable: bool,
    /// The attribute bits of a GPT; none in an MBR.
    pub attributes: u64,
}

impl Partition {
    /// Its first byte on the device, and the first one behind it.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start_bytes..self.start_bytes.saturating_add(self.size_bytes)
    }
}

/// A table that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The device failed.
    #[error("cannot read the partition table: {0}")]
    Device(#[from] Error),
    /// There should be a GPT, and neither copy of it is usable.
    #[error("both copies of the partition table of {device} are damaged; first: {primary}; backup: {backup}")]
    Damaged {
        /// The device's name.
        device: String,
        /// What is wrong with the copy at the start.
        primary: String,
        /// What is wrong with the copy at the end.
        backup: String,
    },
}

/// Reads the partition table of a device.
///
/// The table counts in sectors of the disk it was made for, which an image file does not tell. A GPT shows by its
/// place what they are; for an MBR they are the device's own logical blocks.
///
/// # Errors
/// [`TableError`].
pub fn partitions<D: BlockDevice + ?Sized>(device: &D) -> Result<Table, TableError> {
    parse(device, &candidates(device))
}

/// Reads a GPT, from either copy, of a device whose first sector does not say that there is one: it was destroyed. What is
/// found may be the remains of an older table.
///
/// # Errors
/// [`TableError`]; when neither copy is usable, [`TableError::Damaged`].
pub fn lost_gpt<D: BlockDevice + ?Sized>(device: &D) -> Result<Table, TableError> {
    gpt::read(device, &candidates(device))
}

fn candidates<D: BlockDevice + ?Sized>(device: &D) -> Vec<u32> {
    let own = device.topology().logical_block_bytes;
    let mut candidates = vec![own, 512, 4096];
    candidates.dedup();
    if own == 4096 {
        candidates.truncate(2);
    }
    candidates
}

/// Reads the partition table of a device whose table counts in sectors of one of the given sizes in bytes, tried
/// in this order. Sizes are powers of two from 512 to 65536; others are left out.
///
/// # Errors
/// [`TableError`].
pub fn parse<D: BlockDevice + ?Sized>(device: &D, sector_bytes: &[u32]) -> Result<Table, TableError> {
    let usable = |bytes: &u32| bytes.is_power_of_two() && (512..=65536).contains(bytes);
    let candidates: Vec<u32> = sector_bytes.iter().copied().filter(usable).collect();
    let first = candidates.first().copied().unwrap_or(512);
    let Some(boot) = mbr::BootRecord::read(device, 0)? else { return Ok(Table::none(first)) };
    if boot.is_protective() { gpt::read(device, &candidates) } else { mbr::read(device, first, &boot) }
}
