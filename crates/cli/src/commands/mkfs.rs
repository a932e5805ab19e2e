//! `mkfs`: makes a filesystem on an image or a device, and the image if it is not there.

pub(crate) mod fill;
mod first_block;
mod gathered;
pub(crate) mod size;
mod whole;

use std::fs;
use std::io::Write;

use serde::Serialize;
use undercroft_block::{BlockDevice, ImageFormat, MemoryDevice};
use undercroft_diskfs::mkfs::MkfsError;
use undercroft_ext4 as ext4;
use undercroft_xfs as xfs;

use crate::commands::info::xfs::Geometry;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, ToOverwrite, new_file};
use crate::plan::{Format, ImageSpec, MkfsPlan, NewFormat};
use crate::text::human;
use crate::text::out::Out;

/// What was made, and what was put into it.
#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    filesystem: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    filled: Option<Contents>,
}

/// What a filesystem was filled with.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Contents {
    /// Files of all kinds, directories among them.
    entries: u64,
    data_bytes: u64,
    /// Space that is left.
    free_bytes: u64,
    /// The part of it that is not reserved.
    #[serde(skip)]
    available_bytes: u64,
}

/// What was made.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Report {
    Ext(ExtReport),
    Xfs(XfsReport),
}

/// An ext2, ext3 or ext4.
#[derive(Debug, Serialize)]
struct ExtReport {
    filesystem: &'static str,
    uuid: String,
    size_bytes: u64,
    block_bytes: u32,
    blocks: u64,
    reserved_blocks: u64,
    groups: u32,
    inodes: u32,
    inode_bytes: u16,
    journal_blocks: u32,
    /// Where copies of the superblock lie.
    superblock_backups: Vec<u64>,
    features: Vec<String>,
}

/// An XFS, with its geometry by the names that xfs_info has for its parts.
#[derive(Debug, Serialize)]
struct XfsReport {
    filesystem: &'static str,
    uuid: String,
    size_bytes: u64,
    geometry: Geometry,
}

/// A filesystem that was made.
pub(crate) enum Made {
    Ext(ext4::NewFilesystem),
    Xfs(xfs::NewFilesystem),
}

impl Made {
    /// How large it is.
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Ext(made) => made.superblock.geometry().size_bytes(),
            Self::Xfs(made) => made.superblock.geometry().data_bytes(),
        }
    }
}

/// What the file of an image was before it was made or made larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Absent,
    /// A raw image of this many bytes.
    Bytes(u64),
}

impl Before {
    /// Makes it so again, so that nothing is left behind of a filesystem that could not be made.
    fn restore(self, image: &ImageSpec) {
        let _ = match self {
            Self::Absent => fs::remove_file(&image.path),
            Self::Bytes(bytes) => {
                fs::OpenOptions::new().write(true).open(&image.path).and_then(|file| file.set_len(bytes))
            }
        };
    }
}

/// Makes it and tells what it became.
pub(crate) fn run(plan: &MkfsPlan, format: Format) -> Result<(), Failure> {
    image::refuse_copies(&plan.image)?;
    if let Some(fill) = plan.fill.as_ref().filter(|_| !plan.dry_run) {
        let (made, filled) = whole::make_and_fill(plan, fill)?;
        return if plan.quiet { Ok(()) } else { report(plan, format, &made, Some(filled)) };
    }
    if plan.dry_run {
        return report(plan, format, &would_make(plan)?, None);
    }
    let before = make_image(plan)?;
    let (before, made) = match before {
        Some(before) => (Some(before), open_and_make(plan)),
        None => in_place(plan)?,
    };
    if let (Err(_), Some(before)) = (&made, before) {
        before.restore(&plan.image);
    }
    let made = made?;
    if plan.quiet { Ok(()) } else { report(plan, format, &made, None) }
}

fn report(plan: &MkfsPlan, format: Format, made: &Made, filled: Option<Contents>) -> Result<(), Failure> {
    let report = Whole { filesystem: Report::of(made), filled };
    let mut out = Out::stdout();
    match (format, &report.filesystem) {
        (Format::Json, _) => out.json(&report)?,
        (Format::Text, Report::Ext(report)) => report.print(&mut out, &plan.image.shown())?,
        (Format::Text, Report::Xfs(report)) => report.print(&mut out, &plan.image.shown())?,
    }
    if let (Format::Text, Some(filled)) = (format, filled) {
        writeln!(
            out,
            "{} with {} of data, {} free",
            human::counted(filled.entries, "file"),
            human::size(filled.data_bytes),
            human::size(filled.free_bytes)
        )?;
    }
    out.finish()
}

/// What would be made; an image that is not there, or not as large as is asked for, is thought of.
fn would_make(plan: &MkfsPlan) -> Result<Made, Failure> {
    let found = fs::metadata(&plan.image.path).ok().filter(|_| plan.image.array.is_none());
    let is_blank = found.is_none_or(|found| found.is_file() && found.len() == 0);
    if let Some(size) = plan.size_bytes.filter(|_| is_blank && plan.image.array.is_none()) {
        return decide(plan, &MemoryDevice::new(size));
    }
    let target = image::open_to_overwrite(&plan.image)?;
    let room = target.device.size_bytes();
    let made = match plan.size_bytes.filter(|&size| size > room && plan.image.partition.is_none()) {
        Some(size) if fs::metadata(&plan.image.path).is_ok_and(|found| found.is_file()) => {
            decide(plan, &MemoryDevice::new(size))
        }
        _ => decide(plan, &*target.device),
    };
    target.close()?;
    made
}

fn decide(plan: &MkfsPlan, device: &dyn BlockDevice) -> Result<Made, Failure> {
    match &plan.options {
        NewFormat::Ext(options) => {
            let made = ext4::plan_mkfs(device, options);
            made.map(Made::Ext).map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))
        }
        NewFormat::Xfs(options) => {
            let made = xfs::plan_mkfs(device, options);
            made.map(Made::Xfs).map_err(|error| xfs_failure(device, options, &error))
        }
    }
}

/// Tells how to have what is not supported, where it is nothing else that is refused.
fn xfs_failure(device: &dyn BlockDevice, options: &xfs::MkfsOptions, error: &MkfsError) -> Failure {
    let failure = Failure::of(Kind::of_mkfs(error), error);
    let is_small = matches!(error, MkfsError::Refused(_)) && is_only_small(device, options);
    if is_small { failure.advise("`--small` makes it all the same") } else { failure }
}

/// Whether an XFS that is refused would be made if what mkfs.xfs does not support were.
pub(crate) fn is_only_small(device: &dyn BlockDevice, options: &xfs::MkfsOptions) -> bool {
    let small = xfs::MkfsOptions { small: true, ..options.clone() };
    !options.small && xfs::plan_mkfs(device, &small).is_ok()
}

/// Makes the image of a file that is not there or is empty, and tells which of these it was.
fn make_image(plan: &MkfsPlan) -> Result<Option<Before>, Failure> {
    let image = &plan.image;
    let ImageSpec { array: None, partition, .. } = image else { return Ok(None) };
    let found = fs::metadata(&image.path).ok();
    if found.as_ref().is_some_and(|found| !found.is_file() || found.len() > 0) {
        return Ok(None);
    }
    let shown = image.shown();
    if found.is_none() && image::is_for_devices(&image.path) {
        // A file of that name would be lost with the next start, and take the place of a device meanwhile.
        return Err(Failure::new(Kind::CannotOpen, format!("{shown} does not exist"))
            .advise(image::no_such_device(&image.path)));
    }
    let Some(size) = plan.size_bytes.filter(|_| partition.is_none()) else {
        return Err(match found {
            None => Failure::new(Kind::CannotOpen, format!("{shown} does not exist"))
                .advise("`--size 10G` makes it, 10 GiB large"),
            Some(_) => Failure::new(Kind::Usage, format!("{shown} is empty"))
                .advise("`--size 10G` makes it 10 GiB large"),
        });
    };
    let format = new_file::format_of(&image.path, plan.format)?;
    if found.is_none() {
        new_file::make(image, size, format)?;
        return Ok(Some(Before::Absent));
    }
    // It may be empty and in use.
    image::open_to_overwrite(image)?.close()?;
    new_file::fill(image, size, format)?;
    Ok(Some(Before::Bytes(0)))
}

/// Makes it on what is there, after a look at that. A raw image that is smaller than what is asked for is made larger, as
/// by mke2fs.
fn in_place(plan: &MkfsPlan) -> Result<(Option<Before>, Result<Made, Failure>), Failure> {
    let image = &plan.image;
    let target = image::open_to_overwrite(image)?;
    let room = target.device.size_bytes();
    let file = fs::metadata(&image.path).ok().filter(|found| found.is_file() && image.array.is_none());
    let raw = file.as_ref().is_some_and(|found| found.len() == room || image.partition.is_some());
    if file.is_some() {
        format_there(plan, raw)?;
    }
    if !plan.overwrite {
        image::refuse_present(&target.device)?;
    }
    let larger =
        plan.size_bytes.filter(|&wanted| wanted > room && file.is_some() && image.partition.is_none());
    let Some(wanted) = larger else { return Ok((None, make(plan, target, false))) };
    let shown = image.shown();
    if !raw {
        let what = format!("{shown} has {room} bytes, too few for {wanted}");
        let advice = format!("`qemu-img resize {shown} {wanted}` makes it larger");
        return Err(Failure::new(Kind::Usage, what).advise(advice));
    }
    target.close()?;
    new_file::resize(image, wanted)?;
    // It was closed for a moment, in which another program may have taken it; it is left as large as it is then.
    let target = image::open_to_overwrite(image)?;
    if !plan.overwrite {
        image::refuse_present(&target.device)?;
    }
    Ok((Some(Before::Bytes(room)), make(plan, target, false)))
}

/// The format of an image file that is there; refuses another one that is asked for.
fn format_there(plan: &MkfsPlan, raw: bool) -> Result<ImageFormat, Failure> {
    let (is, name) =
        if raw { (ImageFormat::Raw, "a raw image") } else { (ImageFormat::Qcow2, "a qcow2 image") };
    if plan.format.is_some_and(|wanted| wanted != is) {
        return Err(Failure::new(Kind::Usage, format!("{} is {name} already", plan.image.shown()))
            .advise("leave `--format` off, or remove the file"));
    }
    Ok(is)
}

/// Makes it on an image that was just made.
fn open_and_make(plan: &MkfsPlan) -> Result<Made, Failure> {
    make(plan, image::open_to_overwrite(&plan.image)?, true)
}

fn make(plan: &MkfsPlan, target: ToOverwrite, is_zeroed: bool) -> Result<Made, Failure> {
    let made = make_on(&*target.device, plan.options.clone(), is_zeroed)?;
    target.close()?;
    Ok(made)
}

/// Makes a filesystem on a device, whatever is there.
pub(crate) fn make_on(
    device: &dyn BlockDevice,
    options: NewFormat,
    is_zeroed: bool,
) -> Result<Made, Failure> {
    Ok(match options {
        NewFormat::Ext(options) => {
            let options = ext4::MkfsOptions { device_is_zeroed: is_zeroed, overwrite: true, ..options };
            let made = ext4::mkfs(device, &options);
            Made::Ext(made.map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?)
        }
        NewFormat::Xfs(options) => {
            let options = xfs::MkfsOptions { device_is_zeroed: is_zeroed, overwrite: true, ..options };
            let made = xfs::mkfs(device, &options);
            Made::Xfs(made.map_err(|error| xfs_failure(device, &options, &error))?)
        }
    })
}

impl Report {
    fn of(made: &Made) -> Self {
        match made {
            Made::Ext(made) => Self::Ext(ExtReport::of(made)),
            Made::Xfs(made) => Self::Xfs(XfsReport::of(made)),
        }
    }
}

impl XfsReport {
    fn of(made: &xfs::NewFilesystem) -> Self {
        let superblock = &made.superblock;
        Self {
            filesystem: "xfs",
            uuid: superblock.uuid().to_string(),
            size_bytes: superblock.geometry().data_bytes(),
            geometry: Geometry::of(superblock),
        }
    }

    fn print(&self, out: &mut Out, shown: &str) -> Result<(), Failure> {
        writeln!(out, "xfs of {} on {shown}, UUID {}", human::size(self.size_bytes), self.uuid)?;
        writeln!(out, "{}", self.geometry)?;
        Ok(())
    }
}

impl ExtReport {
    fn of(made: &ext4::NewFilesystem) -> Self {
        let superblock = &made.superblock;
        let geometry = superblock.geometry();
        Self {
            filesystem: superblock.family(),
            uuid: superblock.uuid().to_string(),
            size_bytes: geometry.size_bytes(),
            block_bytes: geometry.block_bytes(),
            blocks: geometry.blocks(),
            reserved_blocks: geometry.reserved_blocks(),
            groups: geometry.groups(),
            inodes: geometry.inodes(),
            inode_bytes: geometry.inode_bytes(),
            journal_blocks: made.journal_blocks,
            superblock_backups: made.backups.clone(),
            features: superblock.features().names(),
        }
    }

    fn print(&self, out: &mut Out, shown: &str) -> Result<(), Failure> {
        let size = human::size(self.size_bytes);
        writeln!(out, "{} of {size} on {shown}, UUID {}", self.filesystem, self.uuid)?;
        let journal = match self.journal_blocks {
            0 => "no journal".to_owned(),
            blocks => {
                let bytes = u64::from(blocks) * u64::from(self.block_bytes);
                format!("a journal of {}", human::size(bytes))
            }
        };
        writeln!(
            out,
            "{} of {}, {}, {}, {journal}",
            human::counted(self.blocks, "block"),
            human::size(self.block_bytes.into()),
            human::counted(self.inodes.into(), "inode"),
            human::counted(self.groups.into(), "group"),
        )?;
        if !self.superblock_backups.is_empty() {
            let blocks: Vec<String> = self.superblock_backups.iter().map(u64::to_string).collect();
            writeln!(out, "copies of the superblock at {}", blocks.join(", "))?;
        }
        Ok(())
    }
}
