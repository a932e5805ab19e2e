//! `grow`: makes a filesystem larger, whether or not it is mounted.

use std::io::Write;

use serde::{Deserialize, Serialize};
use undercroft_vfs::{Error, VfsOptions};

use crate::control::client;
use crate::control::protocol::{Answer, Request, no_answer};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::image::writing::Writing;
use crate::image::{self, Filesystem, Use};
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
    /// Those that it can have, where that is decided when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inodes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inodes_before: Option<u32>,
    /// Whether it has the feature `meta_bg` now and had it not before.
    got_meta_bg: bool,
    /// Why it is not as large as its device, where that is larger than the filesystem can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound: Option<String>,
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

/// Grows the filesystem of an image that nothing has mounted.
pub(crate) fn grow_unmounted(
    spec: &ImageSpec,
    size_bytes: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<GrowReport, Failure> {
    let shown = spec.shown();
    let opened = image::open_for(spec, Use::Write(Writing::by_tool()), VfsOptions::default())?;
    let whole = opened.partition.is_none().then_some(spec);
    let below = Below { whole, open: None, shown: &shown };
    let grown = grow(&opened.filesystem, &below, size_bytes, progress);
    let closed = opened.close(|error| failure(&shown, error));
    let report = grown?;
    closed.map(|()| report)
}

/// Grows a filesystem that is open, in use or not; a raw image file that it fills is made longer first, and shorter again if
/// the filesystem has not grown. The caller must serialize calls for one image: another call could have grown the filesystem
/// into what is cut off. `progress` hears of bytes that are done and of all.
pub(crate) fn grow(
    filesystem: &Filesystem,
    below: &Below<'_>,
    size_bytes: Option<u64>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<GrowReport, Failure> {
    let lengthened = match (below.whole, size_bytes) {
        (Some(spec), Some(size_bytes)) => image::lengthen_raw_file(spec, below.open, size_bytes)?,
        _ => None,
    };
    let block_bytes = u64::from(match filesystem {
        Filesystem::Ext4(ext4) => ext4.superblock().geometry().block_bytes(),
        Filesystem::Xfs(xfs) => xfs.superblock().geometry().block_bytes(),
    });
    let mut progress = |done, all| progress(done * block_bytes, all * block_bytes);
    let grown = match filesystem {
        Filesystem::Ext4(ext4) => {
            ext4.grow(size_bytes, &mut progress).map(|grown| GrowReport::of_ext4(&grown))
        }
        Filesystem::Xfs(xfs) => xfs.grow(size_bytes, &mut progress).map(|grown| GrowReport::of_xfs(&grown)),
    };
    if let Some(lengthened) = lengthened
        && size_of(filesystem) <= lengthened.before
        && filesystem.for_vfs().failure().is_none()
    {
        // It was refused, failed before anything was changed, or had nothing to do.
        lengthened.undo();
    }
    grown.map_err(|error| {
        let is_smaller = size_bytes.is_some_and(|bytes| bytes - bytes % block_bytes < size_of(filesystem));
        match &error {
            // It asks for what this command does not do.
            Error::Unsupported(why) if is_smaller => {
                Failure::new(Kind::Usage, format!("cannot grow {}: {why}", below.shown))
            }
            error => failure(below.shown, error),
        }
    })
}

fn size_of(filesystem: &Filesystem) -> u64 {
    match filesystem {
        Filesystem::Ext4(ext4) => {
            let geometry = ext4.superblock().geometry();
            geometry.blocks() * u64::from(geometry.block_bytes())
        }
        Filesystem::Xfs(xfs) => xfs.superblock().geometry().data_bytes(),
    }
}

fn failure(shown: &str, error: &Error) -> Failure {
    Failure::new(Kind::of(error), format!("cannot grow {shown}")).because(error)
}

impl GrowReport {
    fn of_ext4(grown: &undercroft_ext4::Grown) -> Self {
        let undercroft_ext4::Grown { block_bytes, blocks, groups, inodes, got_meta_bg, bound } = *grown;
        let (inodes_before, inodes) = (Some(inodes.0), Some(inodes.1));
        let bound = bound.map(str::to_owned);
        Self { inodes, inodes_before, got_meta_bg, bound, ..Self::of(block_bytes, blocks, groups) }
    }

    fn of_xfs(grown: &undercroft_xfs::Grown) -> Self {
        let undercroft_xfs::Grown { block_bytes, blocks, groups } = *grown;
        Self::of(block_bytes, blocks, groups)
    }

    fn of(block_bytes: u32, blocks: (u64, u64), groups: (u32, u32)) -> Self {
        Self {
            grown: blocks.0 != blocks.1,
            size_bytes: blocks.1 * u64::from(block_bytes),
            size_bytes_before: blocks.0 * u64::from(block_bytes),
            block_bytes,
            blocks: blocks.1,
            blocks_before: blocks.0,
            groups: groups.1,
            groups_before: groups.0,
            inodes: None,
            inodes_before: None,
            got_meta_bg: false,
            bound: None,
        }
    }

    /// That it is smaller than its device, and why.
    pub(crate) fn told_bound(&self) -> Option<String> {
        let reason = self.bound.as_ref()?;
        Some(format!("it cannot become larger than {}, because {reason}", human::size(self.size_bytes)))
    }

    fn print(&self, out: &mut Out, shown: &str) -> Result<(), Failure> {
        let blocks = human::counted(self.blocks, "block");
        if !self.grown {
            let size = human::size(self.size_bytes);
            match self.told_bound() {
                Some(told) => writeln!(out, "the filesystem on {shown} has {size}, {blocks}: {told}")?,
                None => writeln!(out, "the filesystem on {shown} fills it already: {size}, {blocks}")?,
            }
            return Ok(());
        }
        let (before, now) = (human::size(self.size_bytes_before), human::size(self.size_bytes));
        writeln!(out, "the filesystem on {shown} has grown from {before} to {now}")?;
        let inodes = self.inodes.map(|inodes| format!("{}, ", human::counted(inodes.into(), "inode")));
        let groups = human::counted(self.groups.into(), "group");
        writeln!(out, "{blocks}, {}{groups}", inodes.unwrap_or_default())?;
        if self.got_meta_bg {
            writeln!(out, "it has the feature meta_bg now: the blocks reserved for descriptors are used up")?;
        }
        if let Some(told) = self.told_bound() {
            writeln!(out, "{told}")?;
        }
        Ok(())
    }
}
