//! Directories that are stored in their inode.
//!
//! Source: kernel documentation, section "Inline Data". The first four bytes of `i_block` are the parent's
//! number; the remaining 56, and then the value of the attribute `system.data`, are filled with entries, each stretch
//! on its own. There are no entries for `.` and `..`: they are synthesized here, at the positions that they have in a
//! directory's first block, and the others follow.

use undercroft_vfs::Result;

use super::directory::{Directory, Region};
use crate::error::corrupt_inode;
use crate::inline::read_attribute;
use crate::inode::Inode;

pub(super) const PARENT_BYTES: usize = 4;
/// Where the entries begin in the directory stream: after `.` and `..` of 12 bytes each.
pub(super) const ENTRIES_POSITION: u64 = 24;

/// Lets `..` lead to another directory.
pub(super) fn set_parent(inode: &mut Inode, parent: u32) {
    inode.i_block[..PARENT_BYTES].copy_from_slice(&parent.to_le_bytes());
}

/// The entries of an inline directory.
#[derive(Debug)]
pub(super) struct InlineEntries<'a> {
    pub(super) parent: u32,
    in_inode: &'a [u8],
    pub(super) in_attribute: Vec<u8>,
}

impl<'a> InlineEntries<'a> {
    pub(super) fn read(directory: &Directory<'a>) -> Result<Self> {
        let (parent, in_inode) = directory.inode.i_block.split_at(PARENT_BYTES);
        let parent = parent.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        if let Err(wrong) = directory.check_inode_number(parent) {
            let detail = format!("entry .. {wrong}");
            return Err(corrupt_inode("inline directory", directory.inode.number, None, detail));
        }
        let in_attribute = read_attribute(directory.volume, directory.inode)?.unwrap_or_default();
        Ok(Self { parent, in_inode, in_attribute })
    }

    pub(super) fn regions(&self) -> [Region<'_>; 2] {
        let second = ENTRIES_POSITION + self.in_inode.len() as u64;
        [
            Region { bytes: self.in_inode, position: ENTRIES_POSITION, home: None },
            Region { bytes: &self.in_attribute, position: second, home: None },
        ]
    }
}
