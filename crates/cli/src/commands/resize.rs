//! `resize`: makes a filesystem larger, whether or not it is mounted, or smaller while it is not.

use std::cmp::Ordering;
use std::fs::File;
use std::io::Write;

use serde::Serialize;
use undercroft_block::Device;
use undercroft_ext4::{BackupSuperblock, OpenOptions, Shrunk, Superblock};
use undercroft_vfs::Error;

use super::grow;
use crate::control::client;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, Filesystem, FilesystemKind, Located};
use crate::plan::{Format, ImageSpec, NewSize};
use crate::text::bar::Bar;
use crate::text::human;
use crate::text::out::Out;

/// How it has become smaller.
#[derive(Debug, Serialize)]
struct ShrinkReport {
    /// Whether it has.
    shrunk: bool,
    size_bytes: u64,
    size_bytes_before: u64,
    block_bytes: u32,
    blocks: u64,
    blocks_before: u64,
    groups: u32,
    groups_before: u32,
    inodes: u32,
    inodes_before: u32,
    /// Whether the image file was made as long as the filesystem.
    file_cut: bool,
    /// Why it was not, where it has another size.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_not_cut: Option<&'static str>,
}

/// How small it can become.
#[derive(Debug, Serialize)]
struct MinimumReport {
    minimum_bytes: u64,
    minimum_blocks: u64,
    block_bytes: u32,
    blocks: u64,
}

/// Gives a filesystem another size, and tells which, or tells how small it can become.
pub(crate) fn run(spec: &ImageSpec, size: NewSize, format: Format) -> Result<(), Failure> {
    if let Some(live) = client::find(spec)? {
        let smaller = || live.is_mounted(", and becomes smaller only while it is not");
        return match size {
            NewSize::Minimum | NewSize::ShowMinimum => Err(smaller()),
            NewSize::WholeDevice => grow::run(spec, None, format),
            NewSize::Bytes(bytes) => grow::run(spec, Some(bytes), format).map_err(|failure| {
                // That the size makes no sense is said of one that is smaller than the filesystem.
                let is_smaller = failure.kind() == Kind::Usage && live.served.filesystem.starts_with("ext");
                if is_smaller { smaller() } else { failure }
            }),
        };
    }
    client::refuse_directory(spec)?;
    match size {
        NewSize::WholeDevice => grow::run(spec, None, format),
        NewSize::Bytes(bytes) => {
            let now = size_now(spec)?;
            match (bytes - bytes % now.unit_bytes).cmp(&now.bytes) {
                Ordering::Less => shrink(spec, Some(bytes), format),
                Ordering::Equal if now.can_shrink => finish_shrinking(spec, bytes, format),
                _ => grow::run(spec, Some(bytes), format),
            }
        }
        NewSize::Minimum => shrink(spec, None, format),
        NewSize::ShowMinimum => show_minimum(spec, format),
    }
}

/// How large a filesystem is.
struct SizeNow {
    bytes: u64,
    /// A filesystem is so many of these.
    unit_bytes: u64,
    can_shrink: bool,
}

fn size_now(spec: &ImageSpec) -> Result<SizeNow, Failure> {
    Ok(match &image::open(spec)?.filesystem {
        Filesystem::Ext4(ext4) => {
            let geometry = ext4.superblock().geometry();
            SizeNow {
                bytes: geometry.size_bytes(),
                unit_bytes: geometry.block_bytes().into(),
                can_shrink: true,
            }
        }
        Filesystem::Xfs(xfs) => {
            SizeNow { bytes: xfs.superblock().geometry().data_bytes(), unit_bytes: 1, can_shrink: false }
        }
    })
}

/// Does what is left to do where the filesystem has become smaller and the command was stopped then: the file is cut, when
/// the journal does not say any more that the filesystem is larger. Where the rest of the file has no copy of the superblock,
/// nothing tells that it was the filesystem's, and it stays.
fn finish_shrinking(spec: &ImageSpec, size_bytes: u64, format: Format) -> Result<(), Failure> {
    grow::grow_unmounted(spec, Some(size_bytes), &mut |_, _| ())?;
    let located = image::locate(spec)?;
    let failed = |error: Error| failure(&spec.shown(), &error);
    let superblock = Superblock::read(&*located.device).map_err(failed)?;
    let geometry = superblock.geometry();
    let same = Shrunk {
        block_bytes: geometry.block_bytes(),
        blocks: (geometry.blocks(), geometry.blocks()),
        groups: (geometry.groups(), geometry.groups()),
        inodes: (geometry.inodes(), geometry.inodes()),
    };
    let (device, is_partition) = (std::sync::Arc::clone(&located.device), located.partition.is_some());
    let is_whole = device.size_bytes() <= geometry.size_bytes();
    let was_larger = !is_whole && has_copy_behind(&superblock, &device).map_err(failed)?;
    located.close()?;
    let not_cut = if is_whole {
        None
    } else if was_larger {
        cut(spec, &device, &same, is_partition)?
    } else {
        Some("what lies behind the filesystem stays")
    };
    let report = ShrinkReport::of(&same, not_cut);
    report.tell(spec, "has that size already", format)
}

/// Whether a copy of the superblock lies behind the end of the filesystem, where one lay when it was larger.
fn has_copy_behind(superblock: &Superblock, device: &Device) -> undercroft_vfs::Result<bool> {
    let (block_bits, end) = (superblock.geometry().block_bits(), superblock.geometry().blocks());
    let copies = BackupSuperblock::find(&**device)?;
    Ok(copies.iter().any(|copy| {
        let is_its = copy.superblock().uuid() == superblock.uuid();
        is_its && copy.superblock().geometry().block_bits() == block_bits && copy.block() >= end
    }))
}

fn options() -> OpenOptions {
    OpenOptions { on_mmp_wait: image::tell_of_wait, ..OpenOptions::default() }
}

/// Refuses what is no ext2, ext3 or ext4.
fn require_ext4(located: &Located, shown: &str) -> Result<(), Failure> {
    match image::require_filesystem(&located.device, &located.shown)? {
        FilesystemKind::Ext4 => Ok(()),
        FilesystemKind::Xfs => {
            let what = format!("{shown} is XFS, which cannot be made smaller");
            let advice = "make a smaller one, and copy the files into it";
            Err(Failure::new(Kind::Unsupported, what).advise(advice))
        }
    }
}

fn show_minimum(spec: &ImageSpec, format: Format) -> Result<(), Failure> {
    let shown = spec.shown();
    let located = image::locate(spec)?;
    require_ext4(&located, &shown)?;
    let found = undercroft_ext4::minimum(&located.device, options());
    let minimum = found.map_err(|error| failure(&shown, &error))?;
    let report = MinimumReport {
        minimum_bytes: minimum.least * u64::from(minimum.block_bytes),
        minimum_blocks: minimum.least,
        block_bytes: minimum.block_bytes,
        blocks: minimum.blocks,
    };
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => {
            let size = human::size(report.minimum_bytes);
            let blocks = human::counted(report.minimum_blocks, "block");
            writeln!(
                out,
                "the filesystem on {shown} needs {} bytes at least: {size}, {blocks}",
                report.minimum_bytes
            )?;
        }
    }
    out.finish()
}

fn shrink(spec: &ImageSpec, size_bytes: Option<u64>, format: Format) -> Result<(), Failure> {
    let shown = spec.shown();
    // Refused before the image is opened for writing.
    let looked_at = image::locate(spec)?;
    require_ext4(&looked_at, &shown)?;
    looked_at.close()?;
    let located = image::locate_to_write(spec)?;
    let bar = Bar::new();
    let mut progress = |done: u64, all: u64| bar.show("moving", done, all);
    let done = undercroft_ext4::shrink(&located.device, options(), size_bytes, &mut progress);
    drop(bar);
    let is_partition = located.partition.is_some();
    let device = std::sync::Arc::clone(&located.device);
    let closed = located.close();
    let shrunk = done.map_err(|error| match &error {
        // It is the size that makes no sense.
        Error::Unsupported(why) if is_too_small(&device, size_bytes) => {
            Failure::new(Kind::Usage, format!("cannot make the filesystem on {shown} smaller: {why}"))
        }
        error => failure(&shown, error),
    })?;
    closed?;
    let report = ShrinkReport::of(&shrunk, cut(spec, &device, &shrunk, is_partition)?);
    report.tell(spec, "is as small as it can be", format)
}

/// Whether a filesystem cannot be as small as is asked for, whatever else stands against it.
fn is_too_small(device: &Device, size_bytes: Option<u64>) -> bool {
    let least = || undercroft_ext4::minimum(device, OpenOptions::default()).ok();
    size_bytes.is_some_and(|bytes| {
        least().is_some_and(|minimum| bytes / u64::from(minimum.block_bytes) < minimum.least)
    })
}

/// Makes a raw image file as long as the filesystem. Otherwise tells why not.
fn cut(
    spec: &ImageSpec,
    device: &Device,
    shrunk: &Shrunk,
    is_partition: bool,
) -> Result<Option<&'static str>, Failure> {
    let size_bytes = shrunk.blocks.1 * u64::from(shrunk.block_bytes);
    if is_partition || spec.partition.is_some() {
        return Ok(Some("the partition stays as large as it was"));
    }
    if spec.array.is_some() {
        return Ok(Some("the array stays as large as it was"));
    }
    let failed = |error| {
        Failure::host(format!("the filesystem is smaller, but {} cannot be cut", spec.shown()), &error)
    };
    let file = File::options().read(true).write(true).open(&spec.path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Ok(Some("the device stays as large as it was"));
    }
    if metadata.len() != device.size_bytes() || image::is_qcow2(&file) {
        return Ok(Some("the qcow2 image stays as large as it was; `qemu-img resize --shrink` cuts it"));
    }
    file.set_len(size_bytes).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(None)
}

fn failure(shown: &str, error: &Error) -> Failure {
    Failure::new(Kind::of(error), format!("cannot make the filesystem on {shown} smaller")).because(error)
}

impl ShrinkReport {
    fn of(shrunk: &Shrunk, file_not_cut: Option<&'static str>) -> Self {
        let Shrunk { block_bytes, blocks, groups, inodes } = *shrunk;
        Self {
            shrunk: blocks.0 != blocks.1,
            size_bytes: blocks.1 * u64::from(block_bytes),
            size_bytes_before: blocks.0 * u64::from(block_bytes),
            block_bytes,
            blocks: blocks.1,
            blocks_before: blocks.0,
            groups: groups.1,
            groups_before: groups.0,
            inodes: inodes.1,
            inodes_before: inodes.0,
            file_cut: file_not_cut.is_none(),
            file_not_cut,
        }
    }

    /// Prints it; `otherwise` says what the filesystem is if it has not become smaller.
    fn tell(&self, spec: &ImageSpec, otherwise: &str, format: Format) -> Result<(), Failure> {
        let mut out = Out::stdout();
        match format {
            Format::Json => out.json(self)?,
            Format::Text => self.print(&mut out, &spec.shown(), otherwise)?,
        }
        out.finish()
    }

    fn print(&self, out: &mut Out, shown: &str, otherwise: &str) -> Result<(), Failure> {
        let now = human::size(self.size_bytes);
        if self.shrunk {
            let before = human::size(self.size_bytes_before);
            writeln!(out, "the filesystem on {shown} has become smaller, from {before} to {now}")?;
        } else {
            writeln!(out, "the filesystem on {shown} {otherwise}: {now}")?;
        }
        let blocks = human::counted(self.blocks, "block");
        let inodes = human::counted(self.inodes.into(), "inode");
        writeln!(out, "{blocks}, {inodes}, {}", human::counted(self.groups.into(), "group"))?;
        if let Some(reason) = self.file_not_cut {
            writeln!(out, "{reason}")?;
        }
        Ok(())
    }
}
