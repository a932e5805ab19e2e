//! `compact`: free space of the filesystems in an image becomes holes of its file.
//!
//! The filesystems tell their device what they have free, as by fstrim. A raw image file gives that back at once. A qcow2
//! image cannot, so what it was told is left out of a copy, which takes its place.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use serde::Serialize;
use undercroft_block::partition::{Scheme, Table, partitions};
use undercroft_block::{BlockDevice, Device, ForgettingDevice, ImageFormat, PartitionDevice};

use super::copy::copy_all;
use super::output::NewImage;
use super::resize::is_qcow2;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::writing::Writing;
use crate::image::{self, FilesystemKind, Use};
use crate::plan::{Format, ImageSpec};
use crate::text::human;
use crate::text::out::Out;

/// Boot loaders lie here, outside of partitions.
const FRONT_BYTES: u64 = 1 << 20;
/// Bytes in a block of a file, as the system counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// What has become of the file.
#[derive(Debug, Serialize)]
struct CompactReport {
    /// What it takes on its filesystem.
    allocated_bytes: u64,
    allocated_bytes_before: u64,
    /// What filesystems have free, and what is outside of partitions.
    free_bytes: u64,
}

pub(super) fn run(spec: &ImageSpec, format: Format) -> Result<(), Failure> {
    let is_file = spec.array.is_none() && fs::metadata(&spec.path).is_ok_and(|found| found.is_file());
    if !is_file || spec.partition.is_some() {
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
    let free_bytes = if is_qcow2 {
        let forgetting = Arc::new(ForgettingDevice::new(Device::clone(&target.device)));
        let free = forget_free(&(Arc::clone(&forgetting) as Device), spec)?;
        forgetting.flush().map_err(|error| Failure::of(Kind::Io, &error))?;
        let new = NewImage::replacing(&spec.path, forgetting.size_bytes(), Some(ImageFormat::Qcow2))?;
        let to = new.open()?;
        copy_all(&(forgetting as Device), &to, true)?;
        drop(to);
        new.finish()?;
        free
    } else {
        forget_free(&target.device, spec)?
    };
    target.close()?;
    let report = CompactReport { allocated_bytes: allocated(spec)?, allocated_bytes_before, free_bytes };
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => {
            let (before, now) = (human::size(allocated_bytes_before), human::size(report.allocated_bytes));
            let free = human::size(free_bytes);
            writeln!(out, "{} takes {now}, and took {before}; {free} in it are free", spec.shown())?;
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

/// Tells the device everything that is free on it; returns how many bytes that is.
fn forget_free(device: &Device, spec: &ImageSpec) -> Result<u64, Failure> {
    let holds_filesystem = |device: &Device| FilesystemKind::on(device).is_ok_and(|kind| kind.is_some());
    if holds_filesystem(device) {
        return trim(Device::clone(device), &spec.shown());
    }
    let table = partitions(&**device).map_err(|error| {
        Failure::new(Kind::Corrupt, format!("cannot use the partition table of {}", spec.shown()))
            .because(&error)
    })?;
    refuse_damage(&table, spec)?;
    let mut free = 0;
    for partition in table.partitions.iter().filter(|partition| !partition.kind.is_extended()) {
        let window = PartitionDevice::open(Device::clone(device), partition);
        let window: Device = Arc::new(window.map_err(|error| Failure::of(Kind::Corrupt, &error))?);
        if holds_filesystem(&window) {
            free += trim(window, &spec.shown_with_part(&partition.number.to_string()))?;
        }
    }
    // Logical partitions have records between them.
    let has_records = table.partitions.iter().any(|partition| partition.kind.is_extended());
    for gap in table.free(0).into_iter().filter(|_| !has_records) {
        let gap = gap.start.max(FRONT_BYTES)..gap.end;
        if !gap.is_empty() {
            let len = gap.end - gap.start;
            device.discard(gap.start, len).map_err(|error| Failure::of(Kind::Io, &error))?;
            free += len;
        }
    }
    Ok(free)
}

/// What a table does not know to be free is not given away.
fn refuse_damage(table: &Table, spec: &ImageSpec) -> Result<(), Failure> {
    if table.scheme == Scheme::None {
        let what = format!("{} has neither a partition table nor a filesystem that is known", spec.shown());
        return Err(Failure::new(Kind::Unsupported, what));
    }
    match table.damage.first() {
        Some(damage) => {
            Err(Failure::new(Kind::Corrupt, format!("the partition table of {}: {damage}", spec.shown())))
        }
        None => Ok(()),
    }
}

fn trim(device: Device, shown: &str) -> Result<u64, Failure> {
    let opened = image::open_filesystem(device, None, None, shown, Use::Write(Writing::default()))?;
    let failed = |error: &undercroft_vfs::Error| {
        Failure::new(Kind::of(error), format!("cannot find what {shown} has free")).because(error)
    };
    let trimmed = opened.filesystem.for_vfs().trim(0..u64::MAX, 0);
    let closed = opened.close(failed);
    let trimmed = trimmed.map_err(|error| failed(&error))?;
    closed.map(|()| trimmed)
}
