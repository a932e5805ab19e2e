//! `compact`: free space of the filesystems in an image becomes holes of its file.
//!
//! The filesystems tell their device what they have free, as by fstrim. What lies outside of them stays. A raw image file gives that back at once. A qcow2
//! image cannot, so what it was told is left out of a copy, which takes its place.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use serde::Serialize;
use undercroft_block::partition::{Scheme, Table, partitions};
use undercroft_block::probe::probe;
use undercroft_block::{BlockDevice, Device, ForgettingDevice, ImageFormat, PartitionDevice};

use super::copy::copy_all;
use super::output::NewImage;
use super::resize::is_qcow2;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::writing::Writing;
use crate::image::{self, FilesystemKind, Use};
use crate::lost_gpt::advice_on_change;
use crate::plan::{Format, ImageSpec};
use crate::text::human;
use crate::text::out::Out;

/// Bytes in a block of a file, as the system counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// What has become of the file.
#[derive(Debug, Serialize)]
struct CompactReport {
    /// What it takes on its filesystem.
    allocated_bytes: u64,
    allocated_bytes_before: u64,
    /// What filesystems have free.
    free_bytes: u64,
    /// Whether a qcow2 image stays as it was, because the new one was not smaller.
    kept: bool,
}

pub(super) fn run(spec: &ImageSpec, format: Format) -> Result<(), Failure> {
    let is_file = spec.array.is_none() && fs::metadata(&spec.path).is_ok_and(|found| found.is_file());
    if spec.partition.is_some() {
        return Err(Failure::new(Kind::Usage, "an image becomes smaller as a whole")
            .advise(format!("leave `?part=` off: `undercroft compact {}`", spec.shown())));
    }
    if !is_file {
        return Err(Failure::new(Kind::Usage, format!("{} is no image file", spec.shown()))
            .advise("name the file; a mount is trimmed by fstrim"));
    }
    let allocated_bytes_before = allocated(spec)?;
    let is_qcow2 = is_qcow2(spec)?;
    if is_qcow2 {
        // Opening it to write ends its bitmaps.
        refuse_what_would_be_lost(spec)?;
    }
    let target = image::open_to_overwrite(spec)?;
    let (free_bytes, kept) = if is_qcow2 {
        let forgetting = Arc::new(ForgettingDevice::new(Device::clone(&target.device)));
        let free = forget_free(&(Arc::clone(&forgetting) as Device), spec)?;
        forgetting.flush().map_err(|error| Failure::of(Kind::Io, &error))?;
        let new = NewImage::replacing(&spec.path, forgetting.size_bytes(), Some(ImageFormat::Qcow2))?;
        let to = new.open()?;
        copy_all(&(forgetting as Device), &to, true)?;
        drop(to);
        // Compressed clusters are written anew in full.
        let is_smaller = new.allocated_bytes()? < allocated(spec)?;
        if is_smaller {
            new.finish()?;
        }
        (free, !is_smaller)
    } else {
        (forget_free(&target.device, spec)?, false)
    };
    target.close()?;
    let report =
        CompactReport { allocated_bytes: allocated(spec)?, allocated_bytes_before, free_bytes, kept };
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => {
            let (before, now) = (human::size(allocated_bytes_before), human::size(report.allocated_bytes));
            let free = human::size(free_bytes);
            let shown = spec.shown();
            if kept {
                writeln!(
                    out,
                    "{shown} stays, and takes {now}: without what is free it would not be smaller"
                )?;
            } else {
                writeln!(out, "{shown} takes {now}, and took {before}; {free} in it are free")?;
            }
        }
    }
    out.finish()
}

/// A copy of a qcow2 image has what a guest sees, and nothing else.
fn refuse_what_would_be_lost(spec: &ImageSpec) -> Result<(), Failure> {
    const SNAPSHOTS_AT: usize = 60;
    const AUTOCLEAR_AT: usize = 88;
    const HAS_BITMAPS: u64 = 1;
    let mut header = [0; 104];
    let read = File::open(&spec.path).and_then(|file| file.read_exact_at(&mut header, 0));
    read.map_err(|error| Failure::host(spec.shown(), &error))?;
    let field = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| header[at + index]));
    let version = field(4) >> 32;
    let what = if field(SNAPSHOTS_AT) >> 32 > 0 {
        "snapshots"
    } else if version > 2 && field(AUTOCLEAR_AT) & HAS_BITMAPS != 0 {
        "bitmaps of changed blocks"
    } else {
        return Ok(());
    };
    Err(Failure::new(Kind::Unsupported, format!("{} has {what}, which would be lost", spec.shown()))
        .advise("remove them first, with `qemu-img`"))
}

fn allocated(spec: &ImageSpec) -> Result<u64, Failure> {
    let found = fs::metadata(&spec.path).map_err(|error| Failure::host(spec.shown(), &error))?;
    Ok(found.blocks() * STAT_BLOCK_BYTES)
}

/// Tells the device what its filesystems have free; returns how many bytes that is. What lies outside of filesystems stays: boot
/// loaders, the metadata of arrays, and whatever else a table does not tell of.
fn forget_free(device: &Device, spec: &ImageSpec) -> Result<u64, Failure> {
    refuse_member(device, &spec.shown())?;
    let table = partitions(&**device).map_err(|error| {
        Failure::new(Kind::Corrupt, format!("cannot use the partition table of {}", spec.shown()))
            .because(&error)
    })?;
    if holds_filesystem(device, &spec.shown())? {
        refuse_both(&table, spec)?;
        return trim(Device::clone(device), &spec.shown());
    }
    refuse_damage(&table, device, spec)?;
    let mut windows = Vec::new();
    for partition in table.partitions.iter().filter(|partition| !partition.kind.is_extended()) {
        let window = PartitionDevice::open(Device::clone(device), partition);
        let window: Device = Arc::new(window.map_err(|error| Failure::of(Kind::Corrupt, &error))?);
        let shown = spec.shown_with_part(&partition.number.to_string());
        refuse_member(&window, &shown)?;
        if holds_filesystem(&window, &shown)? {
            windows.push((window, shown));
        }
    }
    windows.into_iter().map(|(window, shown)| trim(window, &shown)).sum()
}

fn holds_filesystem(device: &Device, shown: &str) -> Result<bool, Failure> {
    let found = FilesystemKind::on(device)
        .map_err(|error| Failure::new(Kind::of(&error), format!("cannot read {shown}")).because(&error))?;
    Ok(found.is_some())
}

/// A filesystem in a member of an array may be a part of one on the array, which knows what is free.
fn refuse_member(device: &Device, shown: &str) -> Result<(), Failure> {
    let found = probe(&**device).map_err(|error| Failure::of(Kind::Io, &error))?;
    match found.filter(|found| found.format.name == "linux_raid_member") {
        Some(found) => Err(Failure::new(
            Kind::Unsupported,
            format!("{shown} holds {}, which is not compacted", found.format.what),
        )
        .advise("trim the filesystem on the array")),
        None => Ok(()),
    }
}

/// Only one of them is in use, and the other would destroy it.
fn refuse_both(table: &Table, spec: &ImageSpec) -> Result<(), Failure> {
    if table.partitions.is_empty() {
        return Ok(());
    }
    let what = format!("{} has both partitions and a filesystem on the whole of it", spec.shown());
    Err(Failure::new(Kind::Unsupported, what).advise("remove the one that is not in use, with `wipefs`"))
}

/// Of a table that contradicts itself it is not known which partitions are in use.
fn refuse_damage(table: &Table, device: &Device, spec: &ImageSpec) -> Result<(), Failure> {
    if table.scheme == Scheme::None {
        let what = format!("{} has neither a partition table nor a filesystem that is known", spec.shown());
        let failure = Failure::new(Kind::Unsupported, what);
        return Err(match advice_on_change(&**device) {
            Some(advice) => failure.advise(advice),
            None => failure,
        });
    }
    match table.damage.first().cloned().or_else(|| table.contradiction()) {
        Some(damage) => {
            Err(Failure::new(Kind::Corrupt, format!("the partition table of {}: {damage}", spec.shown())))
        }
        None => Ok(()),
    }
}

fn trim(device: Device, shown: &str) -> Result<u64, Failure> {
    let opened = image::open_filesystem(device, None, None, shown, Use::Write(Writing::by_tool()))?;
    let failed = |error: &undercroft_vfs::Error| {
        Failure::new(Kind::of(error), format!("cannot find what {shown} has free")).because(error)
    };
    let trimmed = opened.filesystem.for_vfs().trim(0..u64::MAX, 0);
    let closed = opened.close(failed);
    let trimmed = trimmed.map_err(|error| failed(&error))?;
    closed.map(|()| trimmed)
}
