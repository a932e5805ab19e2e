//! Where a directory names inodes, and letting it name them by other numbers. Names, their order and hashes stay.
//!
//! The filesystem is in use by the calling thread only.

use undercroft_vfs::Result;

use super::directory::{Block, Directory, Shape};
use super::entry::{Entries, EntryFormat};
use super::inline::{InlineEntries, PARENT_BYTES, set_parent};
use super::walk::Walk;
use crate::error::corrupt_inode;
use crate::inode::{self, Inode};
use crate::numbers::FsBlock;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;
use crate::xattr;

/// Where an inode is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// In the directory's own inode, by a name.
    InInode,
    /// In the directory's own inode, as its parent.
    ParentInInode,
    /// In a block, by a name or as the directory itself.
    InBlock(FsBlock, Seal),
    /// In a block, as the directory's parent.
    ParentInBlock(FsBlock, Seal),
}

impl Named {
    /// Whether it is named as a parent only.
    pub(crate) fn is_parent(&self) -> bool {
        matches!(self, Self::ParentInInode | Self::ParentInBlock(..))
    }
}

/// Calls `visit` with each number past `last` that the directory names, and where; once for each block.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn for_each_named(
    volume: &Volume,
    inode: &Inode,
    last: u32,
    visit: &mut dyn FnMut(u32, Named),
) -> Result<()> {
    let directory = Directory::open(volume, inode)?;
    if inode.has_inline_data() {
        let inline = InlineEntries::read(&directory)?;
        if inline.parent > last {
            visit(inline.parent, Named::ParentInInode);
        }
        for region in inline.regions() {
            for entry in region.entries(&directory) {
                let number = entry?.ino;
                if number > last {
                    visit(number, Named::InInode);
                }
            }
        }
        return Ok(());
    }
    let seed = inode.checksum_seed(volume);
    let mut walk = Walk::new(Directory::open(volume, inode)?, 0);
    while let Some(block) = walk.next()? {
        let seal = match block.shape {
            Shape::IndexNode => continue,
            Shape::IndexRoot => Seal::DirectoryIndex(seed),
            Shape::Leaf => Seal::DirectoryLeaf(seed),
        };
        let mut numbers = numbers_in(&directory, &block, last)?;
        numbers.sort_unstable();
        numbers.dedup_by_key(|(number, _)| *number);
        for (number, is_parent) in numbers {
            let named = if is_parent { Named::ParentInBlock } else { Named::InBlock };
            visit(number, named(block.home, seal));
        }
    }
    Ok(())
}

/// Numbers past `last`, and whether it is `..` that leads there. A name comes before `..` among equal numbers.
fn numbers_in(directory: &Directory<'_>, block: &Block, last: u32) -> Result<Vec<(u32, bool)>> {
    let mut numbers = Vec::new();
    for entry in block.region(directory).entries(directory) {
        let entry = entry?;
        if entry.ino > last {
            numbers.push((entry.ino, entry.name == b".."));
        }
    }
    Ok(numbers)
}

/// Lets the names of `from` in one place of the directory `number` lead to `to`. One block changes.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn lead_elsewhere(
    handle: &Handle<'_>,
    number: u32,
    named: Named,
    from: u32,
    to: u32,
) -> Result<()> {
    let volume = handle.volume();
    let format = EntryFormat::of(volume.superblock());
    match named {
        Named::InBlock(home, seal) | Named::ParentInBlock(home, seal) => {
            let has_tail =
                volume.superblock().has_metadata_checksums() && matches!(seal, Seal::DirectoryLeaf(_));
            let tail = if has_tail { super::tail::LEAF_TAIL_BYTES } else { 0 };
            handle.change(home, seal, |bytes| {
                let end = bytes.len() - tail;
                replace(&mut bytes[..end], format, from, to);
            })
        }
        Named::InInode | Named::ParentInInode => {
            let location = inode::locate(volume, number)?;
            let mut inode = Inode::read_linked_or_not(volume, number, location)?;
            let corrupt = || corrupt_inode("inline directory", number, None, "has gone");
            if !inode.has_inline_data() {
                return Err(corrupt());
            }
            if named == Named::ParentInInode {
                set_parent(&mut inode, to);
                return inode.store(handle, location);
            }
            let attribute = crate::inline::read_attribute(volume, &inode)?;
            replace(&mut inode.i_block[PARENT_BYTES..], format, from, to);
            let mut attribute = attribute.unwrap_or_default();
            if replace(&mut attribute, format, from, to) {
                xattr::replace_inline_data(handle, &inode, location, &attribute)
            } else {
                inode.store(handle, location)
            }
        }
    }
}

/// Replaces a number in entries that have been validated; whether it was there.
fn replace(bytes: &mut [u8], format: EntryFormat, from: u32, to: u32) -> bool {
    let places: Vec<usize> = Entries::new(bytes, format)
        .filter_map(|entry| entry.ok().filter(|entry| entry.ino == from).map(|entry| entry.at))
        .collect();
    for &at in &places {
        bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
    }
    !places.is_empty()
}
