//! Which part of a device is meant.

use std::num::NonZeroU32;
use std::sync::Arc;

use undercroft_block::partition::{Partition, Scheme, Table, lost_gpt, partitions};
use undercroft_block::{CutShortDevice, Device, PartitionDevice};
use undercroft_ext4::BackupSuperblock;

use super::{FilesystemKind, rescue};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::lost_gpt::{self, advice_on_partition};
use crate::plan::ImageSpec;
use crate::text::names::safe;
use crate::text::note::note;
use crate::text::partitions::list;

/// Linux numbers logical partitions from here on.
const FIRST_LOGICAL: u32 = 5;

/// The whole device, or one partition of it with its number.
///
/// Of a partition that reaches past the end of the device what is there can be read.
pub(super) fn choose(
    spec: &ImageSpec,
    device: Device,
    to_write: bool,
) -> Result<(Device, Option<u32>), Failure> {
    if spec.partition.is_none() && !spec.lost_gpt && (holds_filesystem(&device) || has_copy(spec, &device)) {
        return Ok((device, None));
    }
    let table = read(spec, &device)?;
    for damage in &table.damage {
        note(format_args!("{}: {}", spec.shown(), safe(damage.as_bytes())));
    }
    if let Some(number) = spec.partition {
        let partition = named(spec, &table, &device, number)?;
        return open(spec, device, partition, to_write);
    }
    let meant: Vec<&Partition> =
        table.partitions.iter().filter(|partition| may_be_meant(&device, partition)).collect();
    match meant[..] {
        [] if table.partitions.is_empty() => Ok((device, None)),
        [] => Err(Failure::new(
            Kind::Unsupported,
            format!("{} has {}, none of which holds a Linux filesystem", spec.shown(), list(&table)),
        )
        .advise(format!("name one to see what it holds, as {}", spec.shown_with_part("N")))),
        [only] => open(spec, device, only, to_write),
        _ => Err(Failure::new(Kind::CannotOpen, format!("{} has {}", spec.shown(), list(&table)))
            .advise(format!("name one as {}", spec.shown_with_part("N")))),
    }
}

/// The partition of this number.
fn named<'a>(
    spec: &ImageSpec,
    table: &'a Table,
    device: &Device,
    number: NonZeroU32,
) -> Result<&'a Partition, Failure> {
    table.partition(number.get()).ok_or_else(|| {
        let what = format!("{} has no partition {number}", spec.shown());
        let failure = Failure::new(Kind::CannotOpen, what);
        if table.partitions.is_empty() {
            failure.advise(advice_on_partition(device))
        } else {
            failure.advise(format!("it has {}", list(table)))
        }
    })
}

/// The whole device, or the partition that is named, to be overwritten.
pub(super) fn to_overwrite(spec: &ImageSpec, device: Device) -> Result<Device, Failure> {
    let Some(number) = spec.partition else { return Ok(device) };
    let table = read(spec, &device)?;
    for damage in &table.damage {
        note(format_args!("{}: {}", spec.shown(), safe(damage.as_bytes())));
    }
    let partition = named(spec, &table, &device, number)?;
    refuse_extended(spec, &table, partition)?;
    Ok(open(spec, device, partition, true)?.0)
}

/// An extended partition begins with the chain of the logical ones.
fn refuse_extended(spec: &ImageSpec, table: &Table, partition: &Partition) -> Result<(), Failure> {
    if !partition.kind.is_extended() {
        return Ok(());
    }
    let shown = spec.shown_as_typed();
    let what = format!("{shown} is an extended partition, which logical partitions lie in");
    let advice = if table.partitions.iter().any(|other| other.number >= FIRST_LOGICAL) {
        format!("name one of these; `undercroft disk list {}` shows them", spec.shown())
    } else {
        "it has none yet: make one in it, as with sfdisk or parted, and name that".to_owned()
    };
    Err(Failure::new(Kind::Usage, what).advise(advice))
}

/// Two partitions of one disk, which is open for writing: `from` to be read, and `to` to be written.
pub(super) fn two(from: &ImageSpec, to: &ImageSpec, disk: &Device) -> Result<(Device, Device), Failure> {
    let table = read(to, disk)?;
    for damage in &table.damage {
        note(format_args!("{}: {}", to.shown(), safe(damage.as_bytes())));
    }
    let find = |spec: &ImageSpec| match spec.partition {
        Some(number) => named(spec, &table, disk, number),
        None => Err(Failure::new(Kind::Usage, format!("{} names no partition", spec.shown()))),
    };
    let (one, other) = (find(from)?, find(to)?);
    let end = |partition: &Partition| partition.start_bytes.saturating_add(partition.size_bytes);
    if one.start_bytes < end(other) && other.start_bytes < end(one) {
        let what = match one.number == other.number {
            true => format!("{} is copied to itself", to.shown_as_typed()),
            false => format!("{} and {} overlap", from.shown_as_typed(), to.shown_as_typed()),
        };
        return Err(Failure::new(Kind::Usage, what).advise("copy it to another partition, or to a file"));
    }
    refuse_extended(to, &table, other)?;
    Ok((open(from, Device::clone(disk), one, false)?.0, open(to, Device::clone(disk), other, true)?.0))
}

/// All partitions of a disk.
pub(super) fn disk(spec: &ImageSpec, device: Device) -> Result<Partitioned, Failure> {
    let table = read(spec, &device)?;
    if table.scheme == Scheme::None {
        return Err(Failure::new(Kind::Unsupported, format!("{} has no partition table", spec.shown()))
            .advise(
                lost_gpt::advice_on_disk(&device)
                    .unwrap_or_else(|| format!("`undercroft info {}` tells what is on it", spec.shown())),
            ));
    }
    Ok(Partitioned { device, table, meant: None })
}

/// A disk whose partitions are listed one by one.
pub(crate) struct Partitioned {
    pub(crate) device: Device,
    pub(crate) table: Table,
    /// The number of the only partition that can be meant.
    pub(crate) meant: Option<NonZeroU32>,
}

/// The partitions of a disk, unless a filesystem fills it, or its only partition can be meant.
pub(super) fn partitioned(spec: &ImageSpec, device: Device) -> Result<Option<Partitioned>, Failure> {
    if spec.partition.is_some() || (!spec.lost_gpt && (holds_filesystem(&device) || has_copy(spec, &device)))
    {
        return Ok(None);
    }
    let table = read(spec, &device)?;
    let mut meant = table.partitions.iter().filter(|partition| may_be_meant(&device, partition));
    let meant = match (meant.next(), meant.next()) {
        (Some(only), None) => NonZeroU32::new(only.number),
        _ => None,
    };
    match table.partitions[..] {
        [] => Ok(None),
        [_] if meant.is_some() => Ok(None),
        _ => Ok(Some(Partitioned { device, table, meant })),
    }
}

fn read(spec: &ImageSpec, device: &Device) -> Result<Table, Failure> {
    let table = if spec.lost_gpt { lost_gpt(&**device) } else { partitions(&**device) };
    table.map_err(|error| {
        Failure::new(Kind::Corrupt, format!("cannot use the partition table of {}", spec.shown()))
            .because(&error)
    })
}

fn open(
    spec: &ImageSpec,
    mut device: Device,
    partition: &Partition,
    to_write: bool,
) -> Result<(Device, Option<u32>), Failure> {
    let number = partition.number;
    let end = partition.start_bytes.saturating_add(partition.size_bytes);
    if !to_write && end > device.size_bytes() && partition.start_bytes < device.size_bytes() {
        let shown = format!("partition {number} of {}", spec.shown());
        let there = device.size_bytes() - partition.start_bytes;
        rescue::tell_cut_short(&shown, partition.size_bytes, there);
        device = Arc::new(CutShortDevice::new(device, end));
    }
    let advice = match partition.start_bytes < device.size_bytes() {
        true => "the image is cut short: what is there of it can be read, and not written",
        false => "it begins behind the end of the image: the image is cut short, or the table is wrong",
    };
    let window = PartitionDevice::open(device, partition).map_err(|error| {
        Failure::new(Kind::CannotOpen, format!("cannot use partition {number} of {}", spec.shown()))
            .because(&error)
            .advise(advice)
    })?;
    Ok((Arc::new(window), Some(number)))
}

/// Whether a filesystem of ours begins on this device. Where that cannot be read, it is found out at opening.
fn holds_filesystem(device: &Device) -> bool {
    FilesystemKind::on(device).is_ok_and(|kind| kind.is_some())
}

/// Whether the copy of a superblock that was named is one for the whole device.
fn has_copy(spec: &ImageSpec, device: &Device) -> bool {
    spec.superblock.is_some_and(|block| BackupSuperblock::read(&**device, block.get()).is_ok())
}

/// A partition for Linux's files, by its type or by what it holds.
fn may_be_meant(device: &Device, partition: &Partition) -> bool {
    if partition.kind.is_extended() {
        return false;
    }
    let by_content = PartitionDevice::open(Device::clone(device), partition)
        .is_ok_and(|window| holds_filesystem(&(Arc::new(window) as Device)));
    by_content || is_for_files_of_linux(partition)
}

fn is_for_files_of_linux(partition: &Partition) -> bool {
    let not_files = ["Linux swap", "Linux RAID", "Linux LVM"];
    partition.kind.name().is_some_and(|name| name.starts_with("Linux") && !not_files.contains(&name))
}
