//! The tour's second image, an XFS: its allocation groups and their two inode trees, drawn.
//!
//! Linux made it (see `assets/make-tour-xfs`) and was interrupted here too. Everything drawn is read out of the group's
//! headers and trees, after the log was replayed in memory.

use std::io::Write;

use serde::Serialize;
use undercroft_vfs::Error;
use undercroft_xfs::{InodeChunk, InodeTree, Xfs};

use crate::commands::info::shade;
use crate::failure::Failure;
use crate::image::recovery::XfsRecovery;
use crate::image::{Filesystem, Opened};
use crate::text::human;
use crate::text::names::{Value, safe};
use crate::text::out::Out;
use crate::text::style;

/// The image, as `assets/make-tour-xfs` left it.
const IMAGE: &[u8] = include_bytes!("../../../assets/tour-xfs.img.zst");

/// Columns of a group's picture.
const COLUMNS: u32 = 66;

/// Inodes in a chunk.
const CHUNK_INODES: u32 = 64;

/// What the tour found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    compressed_bytes: u64,
    size_bytes: u64,
    recovery: XfsRecovery,
    /// A file that only the log knew.
    last_entry: Value,
    groups: Vec<Group>,
}

/// One allocation group.
#[derive(Debug, Serialize)]
struct Group {
    blocks: u32,
    free_blocks: u32,
    /// What its blocks hold, first to last.
    #[serde(skip)]
    picture: String,
    /// The chunks in the tree of all of them.
    inobt: Vec<Chunk>,
    /// The chunks in the tree of those with free inodes, as far as there is such a tree.
    finobt: Vec<Chunk>,
}

/// A chunk of inodes.
#[derive(Debug, Serialize)]
struct Chunk {
    first_inode: u64,
    used: u32,
    free: u32,
    #[serde(skip)]
    bits: u64,
}

impl From<InodeChunk> for Chunk {
    fn from(chunk: InodeChunk) -> Self {
        let free = (chunk.existing & !chunk.used).count_ones();
        Self { first_inode: chunk.first.0, used: chunk.used.count_ones(), free, bits: chunk.used }
    }
}

/// Opens the image, and looks at it.
pub(super) fn look() -> Result<Report, Failure> {
    let opened = super::open(IMAGE)?;
    read(&opened).map_err(|error| super::not_as_it_should_be(&error))
}

fn read(opened: &Opened) -> Result<Report, Error> {
    let Filesystem::Xfs(xfs) = &opened.filesystem else {
        return Err(Error::InvalidArgument("the image is no XFS"));
    };
    let recovery = xfs.recovery().ok_or(Error::InvalidArgument("the image has no dirty log"))?;
    let usage = xfs.ag_usage().collect::<Result<Vec<_>, _>>()?;
    let mut groups = Vec::new();
    for (number, usage) in (0_u32..).zip(usage) {
        let (mut inobt, mut finobt, mut first_blocks) = (Vec::new(), Vec::new(), Vec::new());
        xfs.for_each_inode_chunk(number, InodeTree::All, |chunk| {
            first_blocks.push(chunk.first_block);
            inobt.push(chunk.into());
        })?;
        xfs.for_each_inode_chunk(number, InodeTree::Free, |chunk| finobt.push(chunk.into()))?;
        groups.push(Group {
            blocks: usage.blocks,
            free_blocks: usage.free_blocks,
            picture: picture(xfs, number, usage.blocks, &first_blocks)?,
            inobt,
            finobt,
        });
    }
    Ok(Report {
        compressed_bytes: IMAGE.len() as u64,
        size_bytes: xfs.superblock().geometry().data_bytes(),
        recovery: recovery.into(),
        last_entry: super::content(&opened.vfs, b"/guestbook/last-entry.txt")?.into(),
        groups,
    })
}

/// A group's blocks in a line.
fn picture(xfs: &Xfs, number: u32, blocks: u32, inode_chunks: &[u32]) -> Result<String, Error> {
    let per_column = blocks.div_ceil(COLUMNS).max(1);
    let columns = blocks.div_ceil(per_column);
    let mut free = vec![0_u32; columns as usize];
    xfs.for_each_free_extent(number, |start, count| {
        let end = start.saturating_add(count).min(blocks);
        let mut at = start;
        while at < end {
            let to = end.min((at / per_column + 1).saturating_mul(per_column));
            free[(at / per_column) as usize] += to - at;
            at = to;
        }
    })?;
    let log = xfs.log_extent().filter(|&(group, ..)| group == number);
    Ok((0..columns)
        .map(|column| {
            let (start, end) = (column * per_column, blocks.min((column + 1) * per_column));
            match log {
                _ if column == 0 => 'H',
                Some((_, first, count)) if first < end && start < first.saturating_add(count) => 'L',
                _ if inode_chunks.iter().any(|chunk| (start..end).contains(chunk)) => 'i',
                _ => {
                    let used = u64::from((end - start).saturating_sub(free[column as usize]));
                    shade((used * 100).div_ceil(u64::from(end - start).max(1)) as u8)
                }
            }
        })
        .collect())
}

/// Draws it.
pub(super) fn text(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let palette = out.palette;
    let size = human::size(report.size_bytes);
    let packed = human::size(report.compressed_bytes);
    writeln!(out, "  XFS cuts a disk into allocation groups, with trees of their own. This is a")?;
    writeln!(out, "  second image, {size} packed into {packed}, and its log was replayed, too:")?;
    writeln!(out, "  {}.", report.recovery.words())?;
    for (number, group) in report.groups.iter().enumerate() {
        writeln!(out)?;
        let picture = palette.paint(style::PICTURE, &group.picture);
        writeln!(out, "  group {number} {picture}")?;
        let last = group.inobt.len().saturating_sub(1);
        let last_free = group.finobt.last().map(|chunk| chunk.first_inode);
        for (at, chunk) in group.inobt.iter().enumerate() {
            let fork = |is_last| if is_last { "└─" } else { "├─" };
            let label = if at == 0 { "inobt" } else { "" };
            let bits = palette.paint(style::PICTURE, &halves(chunk.bits));
            write!(out, "    {label:<5} {} {:<5} {bits}", fork(at == last), chunk.first_inode)?;
            if let Some(free) = group.finobt.iter().find(|free| free.first_inode == chunk.first_inode) {
                let is_first =
                    group.finobt.first().is_some_and(|first| first.first_inode == free.first_inode);
                let label = if is_first { "finobt" } else { "" };
                let fork = fork(last_free == Some(free.first_inode));
                write!(out, "  {label:<6} {fork} {:<5} {:>2} free", free.first_inode, free.free)?;
            }
            writeln!(out)?;
        }
    }
    writeln!(out)?;
    writeln!(out, "  H headers and roots of trees, i inodes, L the log, █ files, · free. A chunk of")?;
    writeln!(
        out,
        "  {CHUNK_INODES} inodes is in the inobt, and while some of them are free in the finobt too."
    )?;
    for line in report.last_entry.raw.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        writeln!(out, "  {} {}", palette.paint(style::PICTURE, "▌"), safe(line))?;
    }
    Ok(())
}

/// Two inodes in a column.
fn halves(used: u64) -> String {
    let half = |at: u32| match used >> (2 * at) & 3 {
        0 => '·',
        1 => '▌',
        2 => '▐',
        _ => '█',
    };
    (0..CHUNK_INODES / 2).map(half).collect()
}

#[cfg(test)]
mod tests {
    use super::halves;

    #[test]
    fn each_inode_has_its_half_of_a_column() {
        assert!(halves(0b10_01_11).starts_with("█▌▐·"));
        assert_eq!(halves(u64::MAX), "█".repeat(32));
    }
}
