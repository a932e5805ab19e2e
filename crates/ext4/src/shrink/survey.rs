//! What has to move: inodes with blocks past the new end, and inodes of groups that go.

use std::collections::BTreeMap;

use undercroft_vfs::{Error, Result};

use crate::group::GroupDescriptor;
use crate::inode::{self, Inode, InodeFlags};
use crate::map::{self, RunState};
use crate::numbers::{FileBlock, FsBlock, Group};
use crate::superblock::Geometry;
use crate::volume::Volume;

/// Blocks of inode tables that are read together.
const TABLE_READAHEAD_BLOCKS: u64 = 16;

/// What lies past the new end.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Inodes with blocks there, of content or of the map.
    pub(super) files: Vec<u32>,
    /// Blocks of attributes there, and the inodes that have them.
    pub(super) attributes: BTreeMap<u64, Vec<u32>>,
    /// Inodes in use whose number goes.
    pub(super) numbers: Vec<u32>,
    /// Blocks of content that have to move.
    pub(super) blocks: u64,
}

impl Survey {
    /// Looks at all inodes in use.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn take(volume: &Volume, new: &Geometry) -> Result<Self> {
        let mut survey = Self::default();
        for_each_inode(volume, &mut |inode| survey.look_at(volume, new, inode))?;
        Ok(survey)
    }

    fn look_at(&mut self, volume: &Volume, new: &Geometry, inode: &Inode) -> Result<()> {
        let end = new.blocks();
        if inode.number > new.inodes() {
            self.numbers.push(inode.number);
        }
        if inode.xattr_block.0 >= end {
            self.attributes.entry(inode.xattr_block.0).or_default().push(inode.number);
        }
        if map::is_mapped(volume, inode) {
            let mut is_past = false;
            map::for_each_node(volume, inode, &mut |node| is_past |= node.0 >= end)?;
            let blocks = blocks_past(volume, inode, FsBlock(end))?;
            self.blocks += blocks;
            if is_past || blocks > 0 {
                self.files.push(inode.number);
            }
        }
        Ok(())
    }
}

/// Blocks of a file's content at or past `end`.
fn blocks_past(volume: &Volume, inode: &Inode, end: FsBlock) -> Result<u64> {
    let limit = map::limit(volume, inode);
    let (mut at, mut count) = (0, 0);
    while at < limit {
        let run = map::lookup(volume, inode, FileBlock(at as u32))?;
        if let RunState::Mapped(first) | RunState::Unwritten(first) = run.state {
            count += run.len.min((first.0 + run.len).saturating_sub(end.0));
        }
        at += run.len;
    }
    Ok(count)
}

/// Calls `visit` with all inodes in use, but for the resize inode and the list of bad blocks.
///
/// # Errors
/// Corruption; I/O failure; those of `visit`.
pub(crate) fn for_each_inode(volume: &Volume, visit: &mut dyn FnMut(&Inode) -> Result<()>) -> Result<()> {
    const BAD_BLOCKS: u32 = 1;
    const RESIZE: u32 = 7;
    let geometry = volume.superblock().geometry();
    let per_group = geometry.inodes_per_group();
    let mut prefetched = FsBlock(0);
    for group in 0..geometry.groups() {
        let descriptor = GroupDescriptor::read(volume, Group(group))?;
        if descriptor.free_inodes == per_group {
            continue;
        }
        for slot in 0..per_group - descriptor.unused_inodes {
            let number = group * per_group + slot + 1;
            if number == BAD_BLOCKS || number == RESIZE {
                continue;
            }
            let location = inode::locate(volume, number)?;
            if location.block != prefetched && location.block.0.is_multiple_of(TABLE_READAHEAD_BLOCKS) {
                volume.buffers().prefetch(location.block.0, TABLE_READAHEAD_BLOCKS);
                prefetched = location.block;
            }
            match Inode::read_linked_or_not(volume, number, location) {
                // An inode that was deleted keeps its kind.
                Ok(inode) if inode.links == 0 && !inode.flags.contains(InodeFlags::EA_INODE) => {}
                Ok(inode) => visit(&inode)?,
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
