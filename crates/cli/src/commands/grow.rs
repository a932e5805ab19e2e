//! `grow`: makes a filesystem larger that is not mounted.

use std::fs::File;
use std::io::Write;

use serde::Serialize;
use undercroft_ext4::{Ext4, Grown, WriteOptions};
use undercroft_vfs::{Error, VfsOptions};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, Use};
use crate::plan::{Format, ImageSpec};
use crate::text::bar::Bar;
use crate::text::human;
use crate::text::out::Out;

/// How it has grown.
#[derive(Debug, Serialize)]
struct Report {
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

/// Grows it and tells how large it is.
pub(crate) fn run(spec: &ImageSpec, size_bytes: Option<u64>, format: Format) -> Result<(), Failure> {
    let opened = image::open_for(spec, Use::Write(WriteOptions::default()), VfsOptions::default())?;
    let shown = spec.shown();
    let failed =
        |error: Error| Failure::new(Kind::of(&error), format!("cannot grow {shown}")).because(&error);
    let is_whole = opened.partition.is_none();
    let before = match size_bytes.filter(|_| is_whole) {
        Some(size_bytes) => image::lengthen_raw_file(spec, size_bytes)?,
        None => None,
    };
    let grown = grow(&opened.ext4, size_bytes);
    if let (Err(Error::Unsupported(_)), Some(before)) = (&grown, before) {
        // It was refused before anything was changed.
        let _ = File::options().write(true).open(&spec.path).and_then(|file| file.set_len(before));
    }
    let closed = opened.ext4.close();
    let array_closed = opened.array.map_or(Ok(()), |open| open.array.close());
    let grown = grown.map_err(&failed)?;
    closed.map_err(failed)?;
    array_closed.map_err(|error| image::md_failure(&error))?;
    let report = Report::of(&grown);
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => report.print(&mut out, &shown)?,
    }
    out.finish()
}

fn grow(ext4: &Ext4, size_bytes: Option<u64>) -> Result<Grown, Error> {
    let bar = Bar::new();
    let block_bytes = u64::from(ext4.superblock().geometry().block_bytes());
    ext4.grow(size_bytes, &mut |done, all| {
        bar.show("growing", done.min(all) * block_bytes, all * block_bytes);
    })
}

impl Report {
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
