//! `grow`: makes a filesystem larger, whether or not it is mounted.

use std::io::Write;

use serde::{Deserialize, Serialize};
use undercroft_ext4::{Ext4, Grown};
use undercroft_vfs::{Error, VfsOptions};

use crate::control::client;
use crate::control::protocol::{Answer, Request, no_answer};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::image::writing::Writing;
use crate::image::{self, Filesystem, FilesystemKind, Use};
use crate::plan::{Format, ImageSpec};
use crate::text::bar::Bar;
use crate::text::human;
use crate::text::names::safe;
use crate::text::out::Out;

/// How it has grown.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GrowReport {
    /// Whether it has.
    grown: bool,
    size_bytes: u64,
    size_bytes_before: u64,
    block_bytes: u32,
    blocks: u64,
    blocks_before: u64,
    groups: u32,
    groups_before: u32,
    inodes: u32,
    inodes_before: u32,
    /// Whether it has the feature `meta_bg` now and had it not before.
    got_meta_bg: bool,
}

/// What grows, besides the filesystem.
pub(crate) struct Below<'a> {
    /// The image that the filesystem fills, unless it lies in a partition.
    pub(crate) whole: Option<&'a ImageSpec>,
    /// The file that is in use under its name, where that may have changed.
    pub(crate) open: Option<FileId>,
    /// What to call it.
    pub(crate) shown: &'a str,
}

/// Grows the filesystem, by the process that has it mounted if it is, and tells how large it is.
pub(crate) fn run(spec: &ImageSpec, size_bytes: Option<u64>, format: Format) -> Result<(), Failure> {
    let bar = Bar::new();
    let mut progress = |done: u64, all: u64| bar.show("growing", done.min(all), all);
    let (report, shown) = match client::find(spec)? {
        Some(live) => {
            let answer = live.ask(&Request::Grow { size_bytes }, &mut |answer| {
                if let Answer::Growing { done, all } = answer {
                    progress(done, all);
                }
            })?;
            let Answer::Grown(report) = answer else { return Err(no_answer()) };
            (report, safe(live.served.image.as_bytes()))
        }
        None => {
            client::refuse_directory(spec)?;
            (grow_unmounted(spec, size_bytes, &mut progress)?, spec.shown())
        }
    };
    drop(bar);
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => report.print(&mut out, &shown)?,
    }
    out.finish()
}

fn grow_unmounted(
    spec: &ImageSpec,
    size_bytes: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<GrowReport, Failure> {
    let shown = spec.shown();
    // One that cannot grow is not opened for writing, which may change it.
    let located = image::locate(spec)?;
    if image::require_filesystem(&located.device, &located.shown)? != FilesystemKind::Ext4 {
        return Err(cannot_grow(&shown));
    }
    drop(located);
    let opened = image::open_for(spec, Use::Write(Writing::default()), VfsOptions::default())?;
    let whole = opened.partition.is_none().then_some(spec);
    let below = Below { whole, open: None, shown: &shown };
    let Filesystem::Ext4(ext4) = &opened.filesystem else { return Err(cannot_grow(&shown)) };
    let grown = grow(ext4, &below, size_bytes, progress);
    let closed = ext4.close();
    let array_closed = opened.array.map_or(Ok(()), |open| open.array.close());
    let report = grown?;
    closed.map_err(|error| failure(&shown, &error))?;
    array_closed.map_err(|error| image::md_failure(&error))?;
    Ok(report)
}

/// Grows a filesystem that is open, in use or not; a raw image file that it fills is made longer first. `progress` hears of
/// bytes that are done and of all.
pub(crate) fn grow(
    ext4: &Ext4,
    below: &Below<'_>,
    size_bytes: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<GrowReport, Failure> {
    let lengthened = match (below.whole, size_bytes) {
        (Some(spec), Some(size_bytes)) => image::lengthen_raw_file(spec, below.open, size_bytes)?,
        _ => None,
    };
    let block_bytes = u64::from(ext4.superblock().geometry().block_bytes());
    let grown = ext4.grow(size_bytes, &mut |done, all| progress(done * block_bytes, all * block_bytes));
    if let (Err(Error::Unsupported(_) | Error::ReadOnly), Some(lengthened)) = (&grown, lengthened) {
        // It was refused before anything was changed.
        lengthened.undo();
    }
    grown.map(|grown| GrowReport::of(&grown)).map_err(|error| failure(below.shown, &error))
}

/// Only ext2, ext3 and ext4 can be made larger.
pub(crate) fn cannot_grow(shown: &str) -> Failure {
    Failure::new(Kind::Unsupported, format!("cannot grow {shown}: it holds no ext2, ext3 or ext4"))
        .advise("the programs of its own kind grow it while it is mounted by Linux: xfs_growfs for XFS")
}

fn failure(shown: &str, error: &Error) -> Failure {
    Failure::new(Kind::of(error), format!("cannot grow {shown}")).because(error)
}

impl GrowReport {
    fn of(grown: &Grown) -> Self {
        let block_bytes = u64::from(grown.block_bytes);
        Self {
            grown: grown.blocks.0 != grown.blocks.1,
            size_bytes: grown.blocks.1 * block_bytes,
            size_bytes_before: grown.blocks.0 * block_bytes,
            block_bytes: grown.block_bytes,
            blocks: grown.blocks.1,
            blocks_before: grown.blocks.0,
            groups: grown.groups.1,
            groups_before: grown.groups.0,
            inodes: grown.inodes.1,
            inodes_before: grown.inodes.0,
            got_meta_bg: grown.got_meta_bg,
        }
    }

    fn print(&self, out: &mut Out, shown: &str) -> Result<(), Failure> {
        let blocks = human::counted(self.blocks, "block");
        if !self.grown {
            let size = human::size(self.size_bytes);
            writeln!(out, "the filesystem on {shown} fills it already: {size}, {blocks}")?;
            return Ok(());
        }
        let (before, now) = (human::size(self.size_bytes_before), human::size(self.size_bytes));
        writeln!(out, "the filesystem on {shown} has grown from {before} to {now}")?;
        writeln!(
            out,
            "{blocks}, {}, {}",
            human::counted(self.inodes.into(), "inode"),
            human::counted(self.groups.into(), "group")
        )?;
        if self.got_meta_bg {
            writeln!(out, "it has the feature meta_bg now: the blocks reserved for descriptors are used up")?;
        }
        Ok(())
    }
}
