//! `disk resize`: another size for a disk image, its table, and with `--grow` its last partition.
//!
//! Everything is decided on the table in memory first. A disk that becomes larger does so before its table is written, one
//! that becomes smaller after it, so that a crash leaves a disk with a table that fits it.

use std::fs::{self, File};

use undercroft_block::partition::{Partition, Table, TableEditor};
use undercroft_block::{FileDevice, FileOptions, ImageOptions, Qcow2Device};

use super::parts::ALIGN_BYTES;
use super::{list, table_failure};
use crate::commands::grow;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, FilesystemKind, new_file, open_failure};
use crate::plan::{Format, ImageSpec};
use crate::text::bar::Bar;
use crate::text::note::note;

pub(super) fn run(
    spec: &ImageSpec,
    size_bytes: Option<u64>,
    grow: bool,
    format: Format,
) -> Result<(), Failure> {
    let is_file = spec.array.is_none() && fs::metadata(&spec.path).is_ok_and(|found| found.is_file());
    let is_qcow2 = is_file && is_qcow2(spec)?;
    let target = image::open_to_overwrite(spec)?;
    let before = target.device.size_bytes();
    let wanted = size_bytes.unwrap_or(before);
    if !is_file && wanted != before {
        return Err(Failure::new(
            Kind::Usage,
            format!("{} is no image file: it has {before} bytes", spec.shown()),
        )
        .advise("leave the size off"));
    }
    if is_qcow2 && wanted < before {
        return Err(Failure::new(
            Kind::Unsupported,
            format!("{} is a qcow2 image, which is not made smaller", spec.shown()),
        )
        .advise("copy it to a raw image first: `undercroft image copy`"));
    }
    let mut editor =
        TableEditor::open(&*target.device).map_err(|error| table_failure(spec, &target.device, &error))?;
    let refused = |error: &dyn std::error::Error| {
        Failure::new(Kind::Usage, format!("cannot resize {}", spec.shown())).because(error)
    };
    let read = editor.table().clone();
    editor.set_disk_size(wanted).map_err(|error| refused(&error))?;
    let last = if grow { grow_last(&mut editor).map_err(|error| refused(&error))? } else { None };
    target.close()?;
    if wanted > before {
        if is_qcow2 { grow_qcow2(spec, wanted)? } else { new_file::resize(spec, wanted)? }
    }
    let target = image::open_to_overwrite(spec)?;
    // It was closed for a moment.
    let found =
        TableEditor::open(&*target.device).map_err(|error| table_failure(spec, &target.device, &error))?;
    if !is_same(found.table(), &read) {
        return Err(Failure::new(
            Kind::Host,
            format!("the partition table of {} was changed meanwhile", spec.shown()),
        )
        .advise("run the command again"));
    }
    editor.write(&*target.device).map_err(|error| Failure::of(Kind::Io, &error))?;
    target.close()?;
    if wanted < before {
        new_file::resize(spec, wanted)?;
    }
    // Also if the partition is large enough: what grew it may have been stopped before the filesystem grew.
    if let Some(partition) = last {
        grow_filesystem(spec, &partition)?;
    }
    list(spec, format)
}

/// Whether two tables name the same partitions. Where they may lie depends on the size of the disk.
fn is_same(one: &Table, other: &Table) -> bool {
    (one.scheme, one.disk, &one.partitions) == (other.scheme, other.disk, &other.partitions)
}

/// Lets the last partition reach to the end; returns it.
fn grow_last(editor: &mut TableEditor) -> Result<Option<Partition>, undercroft_block::partition::EditError> {
    let table = editor.table();
    let Some(last) = table.partitions.iter().max_by_key(|partition| partition.start_bytes).cloned() else {
        return Ok(None);
    };
    let end = table.usable.end / ALIGN_BYTES * ALIGN_BYTES;
    if end > last.range().end {
        editor.set_size(last.number, end - last.start_bytes)?;
    }
    Ok(Some(last))
}

fn grow_filesystem(spec: &ImageSpec, partition: &Partition) -> Result<(), Failure> {
    let spec = ImageSpec { partition: std::num::NonZeroU32::new(partition.number), ..spec.clone() };
    let located = image::locate(&spec)?;
    let kind = FilesystemKind::on(&located.device);
    located.close()?;
    if !matches!(kind, Ok(Some(_))) {
        note(format_args!(
            "what {} holds is none of ext2, ext3, ext4 and XFS, and stays as it is",
            spec.shown_with_part(&partition.number.to_string())
        ));
        return Ok(());
    }
    let bar = Bar::new();
    let grown = grow::grow_unmounted(&spec, None, &mut |done, all| bar.show("growing", done.min(all), all))?;
    drop(bar);
    if let Some(told) = grown.told_bound() {
        let part = spec.shown_with_part(&partition.number.to_string());
        note(format_args!("the filesystem on {part} is smaller than its partition: {told}"));
    }
    Ok(())
}

/// Whether the file of an image has the mark of qcow2.
pub(super) fn is_qcow2(spec: &ImageSpec) -> Result<bool, Failure> {
    let file = File::open(&spec.path).map_err(|error| Failure::host(spec.shown(), &error))?;
    Ok(image::is_qcow2(&file))
}

fn grow_qcow2(spec: &ImageSpec, size_bytes: u64) -> Result<(), Failure> {
    let file =
        FileDevice::open(&spec.path, FileOptions::read_write()).map_err(|error| open_failure(&error))?;
    let image = Qcow2Device::open(file, ImageOptions::read_write()).map_err(|error| open_failure(&error))?;
    image
        .grow(size_bytes)
        .map_err(|error| Failure::host(format!("cannot make {} larger", spec.shown()), &error))
}
