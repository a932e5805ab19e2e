//! What only some kinds of filesystem have to tell of an inode.

use serde::Serialize;
use undercroft_vfs::{Ino, Result};
use undercroft_xfs::{ExtentDescription, ForkDescription, InodeDescription, Xfs};

use crate::text::human;

/// As many extents of a fork as are told.
const EXTENTS_MAX: usize = 1000;
/// As many of them as the text shows.
const EXTENTS_SHOWN: usize = 4;

/// What there is to tell, under the name of the kind.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Details {
    Xfs(XfsInode),
}

/// Where an inode of XFS lies, its flags, and its forks.
#[derive(Debug, Serialize)]
pub(crate) struct XfsInode {
    group: u32,
    number_in_group: u32,
    block: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_first: Option<u64>,
    flags: Vec<&'static str>,
    extent_size_blocks: u32,
    cow_extent_size_blocks: u32,
    data: Fork,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Fork>,
}

/// A fork: its form in the words of xfs_db, and its first extents.
#[derive(Debug, Serialize)]
struct Fork {
    form: &'static str,
    extents: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first: Vec<Extent>,
}

#[derive(Debug, Serialize)]
struct Extent {
    file_block: u64,
    block: u64,
    group: u32,
    block_in_group: u32,
    blocks: u64,
    unwritten: bool,
}

impl Details {
    /// Of an inode of XFS.
    pub(super) fn of_xfs(xfs: &Xfs, ino: Ino) -> Result<Self> {
        let InodeDescription {
            group,
            number_in_group,
            block,
            chunk_first,
            flags,
            extent_size_blocks,
            cow_extent_size_blocks,
            data,
            attributes,
        } = xfs.describe(ino, EXTENTS_MAX)?;
        Ok(Self::Xfs(XfsInode {
            group,
            number_in_group,
            block,
            chunk_first: chunk_first.map(|ino| ino.0),
            flags,
            extent_size_blocks,
            cow_extent_size_blocks,
            data: data.into(),
            attributes: attributes.map(Fork::from),
        }))
    }

    /// Lines of text, each with its label.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let Self::Xfs(inode) = self;
        let chunk = inode.chunk_first.map_or_else(String::new, |first| format!(", chunk from inode {first}"));
        let place = format!(
            "group {}, number {} in it, block {}{chunk}",
            inode.group, inode.number_in_group, inode.block
        );
        let mut lines = vec![("place", place)];
        if !inode.flags.is_empty() {
            lines.push(("xfs flags", inode.flags.join(", ")));
        }
        for (label, blocks) in
            [("extsize", inode.extent_size_blocks), ("cowextsize", inode.cow_extent_size_blocks)]
        {
            if blocks > 0 {
                lines.push((label, human::counted(blocks.into(), "block")));
            }
        }
        inode.data.lines("data fork", &mut lines);
        if let Some(attributes) = &inode.attributes {
            attributes.lines("attr fork", &mut lines);
        }
        lines
    }
}

impl Fork {
    fn lines(&self, label: &'static str, lines: &mut Vec<(&'static str, String)>) {
        let extents = match self.form {
            "extents" if self.extents == 0 => ", none".to_owned(),
            "extents" | "btree" => format!(", {}", human::counted(self.extents, "extent")),
            _ => String::new(),
        };
        lines.push((label, format!("{}{extents}", self.form)));
        for extent in self.first.iter().take(EXTENTS_SHOWN) {
            let Extent { file_block, block, group, block_in_group, blocks, unwritten } = extent;
            let unwritten = if *unwritten { ", unwritten" } else { "" };
            let length = human::counted(*blocks, "block");
            let text = format!(
                "  {file_block}: {length} at block {block} (group {group}, {block_in_group}){unwritten}"
            );
            lines.push(("", text));
        }
        if self.extents > EXTENTS_SHOWN as u64 && self.first.len() > EXTENTS_SHOWN {
            lines.push(("", format!("  ... and {} more", self.extents - EXTENTS_SHOWN as u64)));
        }
    }
}

impl From<ForkDescription> for Fork {
    fn from(fork: ForkDescription) -> Self {
        let ForkDescription { form, extents, first } = fork;
        Self { form, extents, first: first.iter().map(Extent::from).collect() }
    }
}

impl From<&ExtentDescription> for Extent {
    fn from(extent: &ExtentDescription) -> Self {
        let ExtentDescription { file_block, block, group, block_in_group, blocks, unwritten } = *extent;
        Self { file_block, block, group, block_in_group, blocks, unwritten }
    }
}
