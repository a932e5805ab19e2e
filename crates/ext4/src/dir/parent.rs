//! What a directory says of itself: `.` and `..`, and whether it has other names.

use undercroft_vfs::{FileType, Result};

use super::changing::{Changing, LockedBlock, check_changeable};
use super::directory::Directory;
use super::edit::{self, Look, Place};
use super::inline::{self, InlineEntries};
use super::node::{self, Dots};
use super::walk::Walk;
use crate::inode::{Inode, InodeState};
use crate::map;
use crate::numbers::FileBlock;
use crate::transaction::{Handle, Seal};

/// Gives a new directory its first block, with `.` and `..`. The caller stores the inode.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); I/O failure. Nothing has changed then.
pub(crate) fn make_first(handle: &Handle<'_>, inode: &mut Inode, parent: u32) -> Result<()> {
    let volume = handle.volume();
    check_changeable(volume, inode)?;
    let home = map::grow(handle, inode, FileBlock(0))?;
    inode.size_bytes = u64::from(volume.block_bytes());
    let directory = Directory::open(volume, inode)?;
    let dots = Dots { itself: inode.number, parent };
    handle.make(home, Seal::DirectoryLeaf(inode.checksum_seed(volume)), |bytes| {
        node::make_dots(&mut bytes[..directory.leaf_bytes()], directory.format, dots);
    })
}

/// Refuses a directory whose `..` cannot be changed. Called before a move changes anything.
///
/// # Errors
/// Corruption; [`NoKey`](Error::NoKey), [`Unsupported`](Error::Unsupported); I/O failure.
pub(crate) fn check_parent(handle: &Handle<'_>, dir: &InodeState) -> Result<()> {
    let _index = dir.directory.index.read();
    let inode = dir.fields.read().clone();
    if inode.has_inline_data() {
        return check_changeable(handle.volume(), &inode);
    }
    find_parent(&Changing::open(handle, dir, &inode)?).map(drop)
}

/// The entry `..` of a directory that is not inline, and its block.
fn find_parent<'a>(changing: &Changing<'a>) -> Result<(LockedBlock<'a>, Place)> {
    let Some(first) = changing.lock_block(FileBlock(0))? else {
        return Err(changing.corrupt("has a hole in place of its first block"));
    };
    match first.look(b"..")? {
        Look::Found(place) => Ok((first, place)),
        _ => Err(first.corrupt("has no entry ..")),
    }
}

/// Lets `..` lead to another directory.
///
/// # Errors
/// As for [`check_parent`]. Nothing has changed then.
pub(crate) fn set_parent(handle: &Handle<'_>, dir: &InodeState, parent: u32) -> Result<()> {
    let in_block = |inode: &Inode| {
        let changing = Changing::open(handle, dir, inode)?;
        let (first, place) = find_parent(&changing)?;
        let format = changing.directory.format;
        first.change(|bytes| edit::replace(bytes, format, place, parent, FileType::Directory));
        Ok(())
    };
    {
        let _index = dir.directory.index.read();
        let inode = dir.fields.read().clone();
        if !inode.has_inline_data() {
            return in_block(&inode);
        }
    }
    let _index = dir.directory.index.write();
    let inode = dir.fields.read().clone();
    if !inode.has_inline_data() {
        return in_block(&inode);
    }
    check_changeable(handle.volume(), &inode)?;
    let mut fields = dir.fields.write();
    let mut changed = fields.clone();
    inline::set_parent(&mut changed, parent);
    changed.store(handle, dir.location)?;
    *fields = changed;
    Ok(())
}

/// Whether a directory has no names but `.` and `..`. The caller keeps names from being added meanwhile.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn is_empty(dir: &InodeState) -> Result<bool> {
    let _index = dir.directory.index.read();
    let inode = dir.fields.read().clone();
    let directory = Directory::open(&dir.volume, &inode)?;
    let has_names = |region: super::directory::Region<'_>| -> Result<bool> {
        for entry in region.entries(&directory) {
            if !matches!(entry?.name, b"." | b"..") {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if inode.has_inline_data() {
        for region in InlineEntries::read(&directory)?.regions() {
            if has_names(region)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let mut walk = Walk::new(directory, 0);
    while let Some(block) = walk.next()? {
        if has_names(block.region(&directory))? {
            return Ok(false);
        }
    }
    Ok(true)
}
