//! `disk create`: a disk with partitions and what is in them.
//!
//! Sizes are decided first, then each partition is filled in its place, and the table is written last.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use undercroft_block::partition::{NewPartition, Scheme, TableEditor};
use undercroft_block::{BlockDevice, Device, PartitionDevice};
use undercroft_disk::definition::ContentFormat;
use undercroft_disk::layout::{self, Size};
use uuid::Uuid;

use super::output::NewImage;
use super::parts::{ALIGN_BYTES, Ids, Part, least_sizes, no_room};
use super::{content, copy, list};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::{CreatePlan, Format, ImageSpec};

pub(super) fn run(plan: &CreatePlan, format: Format) -> Result<(), Failure> {
    let ids = Ids::new(plan.seed.clone());
    let parts = (1..).zip(&plan.partitions).map(|(place, definition)| {
        Part::of(definition, place, plan.scheme, plan.architecture.as_deref(), &ids)
    });
    let mut parts: Vec<Part<'_>> = parts.collect::<Result<_, _>>()?;
    parts.iter_mut().for_each(|part| part.leave_out(&plan.image.path));
    let sizes: Vec<Size> = parts.iter().map(Part::size).collect::<Result<_, _>>()?;
    if plan.to_stdout {
        return to_stdout(plan, &ids, &parts, &sizes);
    }
    let is_device = fs::metadata(&plan.image.path).is_ok_and(|found| found.file_type().is_block_device());
    if is_device || plan.image.array.is_some() {
        on_device(plan, &ids, &parts, &sizes)?;
    } else {
        let disk_bytes = disk_size(plan, &parts, &sizes)?;
        // What cannot be laid out is refused before a file is made.
        let (editor, places) = lay_out(plan, &ids, &parts, &sizes, disk_bytes, sector_of_file(plan)?)?;
        let mut new = NewImage::make(&plan.image.path, disk_bytes, plan.format, plan.force)?;
        if parts.iter().any(|part| part.copies(&plan.image.path)) {
            new.release_replaced();
        }
        parts.iter_mut().for_each(|part| part.leave_out(new.path()));
        let device = new.open()?;
        fill(&parts, &places, &editor, &device, true)?;
        drop(device);
        new.finish()?;
    }
    if plan.quiet { Ok(()) } else { list(&plan.image, format) }
}

/// The sectors of a disk in a file, which does not tell what they are.
fn sector_of_file(plan: &CreatePlan) -> Result<u32, Failure> {
    let bytes = plan.sector_bytes.unwrap_or(512);
    if plan.scheme == Scheme::Mbr && bytes != 512 {
        let what = format!("an MBR in a file would not tell that its sectors have {bytes} bytes");
        return Err(Failure::new(Kind::Unsupported, what).advise("take a GPT, or sectors of 512 bytes"));
    }
    Ok(bytes)
}

/// The sectors of a device, which are what they are.
fn sector_of_device(plan: &CreatePlan, device: &dyn BlockDevice) -> Result<u32, Failure> {
    let own = device.topology().logical_block_bytes;
    match plan.sector_bytes.filter(|&bytes| bytes != own) {
        None => Ok(own),
        Some(bytes) => {
            let what = format!("{} has sectors of {own} bytes, and not of {bytes}", plan.image.shown());
            Err(Failure::new(Kind::Usage, what).advise("leave the size of sectors off"))
        }
    }
}

/// FAT counts in the sectors of its disk.
pub(super) fn refuse_fat(part: &Part<'_>, sector_bytes: u32) -> Result<(), Failure> {
    if sector_bytes != 512 && part.definition.format == Some(ContentFormat::Vfat) {
        let what = format!("FAT is made for sectors of 512 bytes, and those of the disk have {sector_bytes}");
        return Err(part.failed(Kind::Unsupported, &what));
    }
    Ok(())
}

/// The size that is said, or the least.
fn disk_size(plan: &CreatePlan, parts: &[Part<'_>], sizes: &[Size]) -> Result<u64, Failure> {
    if let Some(size) = plan.size_bytes {
        return Ok(size);
    }
    let sizes = least_sizes(parts, sizes)?;
    let end = layout::least_end(&sizes, ALIGN_BYTES, ALIGN_BYTES).map_err(|error| no_room(&error))?;
    // The backup of a GPT.
    Ok(if plan.scheme == Scheme::Gpt { end.saturating_add(ALIGN_BYTES) } else { end })
}

/// The table, with all partitions at their places.
fn lay_out(
    plan: &CreatePlan,
    ids: &Ids,
    parts: &[Part<'_>],
    sizes: &[Size],
    disk_bytes: u64,
    sector_bytes: u32,
) -> Result<(TableEditor, Vec<std::ops::Range<u64>>), Failure> {
    let refused = |error: &dyn std::error::Error| Failure::of(Kind::Usage, error);
    for part in parts {
        refuse_fat(part, sector_bytes)?;
    }
    let mut editor = match plan.scheme {
        Scheme::Mbr => {
            let signature = signature(plan, ids)?;
            TableEditor::new_mbr(disk_bytes, sector_bytes, signature)
        }
        _ => {
            let id = match &plan.id {
                Some(typed) => Uuid::parse_str(typed)
                    .map_err(|_| Failure::new(Kind::Usage, format!("{typed:?} is no UUID for a disk")))?,
                None => ids.uuid("disk")?,
            };
            TableEditor::new_gpt(disk_bytes, sector_bytes, id)
        }
    }
    .map_err(|error| refused(&error))?;
    let room = editor.table().usable.clone();
    let places = layout::place(sizes, room, ALIGN_BYTES).map_err(|error| no_room(&error))?;
    for (part, place) in parts.iter().zip(&places) {
        let new = new_partition(part, place, plan.scheme);
        editor.add(&new).map_err(|error| part.failed(Kind::Usage, &error))?;
    }
    Ok((editor, places))
}

fn signature(plan: &CreatePlan, ids: &Ids) -> Result<u32, Failure> {
    let Some(typed) = &plan.id else {
        let [a, b, c, d, ..] = *ids.uuid("disk")?.as_bytes();
        return Ok(u32::from_be_bytes([a, b, c, d]));
    };
    u32::from_str_radix(typed.strip_prefix("0x").unwrap_or(typed), 16).map_err(|_| {
        Failure::new(Kind::Usage, format!("{typed:?} is no signature of an MBR, as in 1234abcd"))
    })
}

/// A partition as the table takes it.
pub(super) fn new_partition(part: &Part<'_>, place: &std::ops::Range<u64>, scheme: Scheme) -> NewPartition {
    NewPartition {
        number: part.definition.number,
        start_bytes: place.start,
        size_bytes: place.end - place.start,
        kind: part.kind,
        label: part.definition.name.clone().filter(|_| scheme == Scheme::Gpt),
        id: part.id,
        attributes: part.definition.attributes,
        bootable: part.definition.bootable,
    }
}

/// Fills all partitions and writes the table.
fn fill(
    parts: &[Part<'_>],
    places: &[std::ops::Range<u64>],
    editor: &TableEditor,
    device: &Device,
    is_zeroed: bool,
) -> Result<(), Failure> {
    for (part, place) in parts.iter().zip(places) {
        let window = window(device, place)?;
        content::make(part, &window, place.start, is_zeroed)?;
    }
    let written = device.flush().and_then(|()| editor.write(&**device));
    written.map_err(|error| Failure::of(Kind::Io, &error))
}

/// A partition's place on a disk.
pub(super) fn window(device: &Device, place: &std::ops::Range<u64>) -> Result<Device, Failure> {
    let window = PartitionDevice::new(Device::clone(device), place.start, place.end - place.start);
    Ok(Arc::new(window.map_err(|error| Failure::of(Kind::Io, &error))?))
}

/// Makes the disk on a block device or an array, which is as large as it is.
fn on_device(plan: &CreatePlan, ids: &Ids, parts: &[Part<'_>], sizes: &[Size]) -> Result<(), Failure> {
    let target = image::open_to_overwrite(&plan.image)?;
    if !plan.force {
        image::refuse_present(&target.device)?;
    }
    let room = target.device.size_bytes();
    if plan.size_bytes.is_some_and(|size| size > room) {
        return Err(Failure::new(Kind::Usage, format!("{} has {room} bytes", plan.image.shown()))
            .advise("leave `--size` off"));
    }
    let sector = sector_of_device(plan, &*target.device)?;
    let (editor, places) = lay_out(plan, ids, parts, sizes, plan.size_bytes.unwrap_or(room), sector)?;
    let failed = |error: undercroft_block::Error| Failure::of(Kind::Io, &error);
    // What is left of an older table would be found.
    let device = &target.device;
    device.write_zeroes(0, ALIGN_BYTES.min(room)).map_err(failed)?;
    device.write_zeroes(room.saturating_sub(ALIGN_BYTES), ALIGN_BYTES.min(room)).map_err(failed)?;
    fill(parts, &places, &editor, device, false)?;
    target.close()
}

/// A device in a file that is gone when the program ends, however it does.
fn nameless(size_bytes: u64) -> Result<Device, Failure> {
    let dir = env::temp_dir();
    let failed = |error: &io::Error| Failure::host(format!("cannot make a file in {}", dir.display()), error);
    let file = tempfile::NamedTempFile::new_in(&dir).map_err(|error| failed(&error))?;
    file.as_file().set_len(size_bytes).map_err(|error| failed(&error))?;
    let device = image::open_member(&ImageSpec::plain(file.path().to_owned()), true)?;
    file.close().map_err(|error| failed(&error))?;
    Ok(device)
}

/// Makes the disk in a temporary file and writes it to standard output.
fn to_stdout(plan: &CreatePlan, ids: &Ids, parts: &[Part<'_>], sizes: &[Size]) -> Result<(), Failure> {
    copy::refuse_terminal()?;
    let disk_bytes = disk_size(plan, parts, sizes)?;
    let (editor, places) = lay_out(plan, ids, parts, sizes, disk_bytes, sector_of_file(plan)?)?;
    let device = nameless(disk_bytes)?;
    fill(parts, &places, &editor, &device, true)?;
    copy::to_stdout(&device, plan.compress)
}
