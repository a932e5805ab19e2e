//! Taking names out of a directory, and letting them lead somewhere else.
//!
//! A thread that works in a block holds the directory's `index` shared, and the block's lock.

use undercroft_vfs::{Error, FileType, Result};

use super::changing::Changing;
use super::edit::{self, Look, NewEntry, Place};
use super::entry::EntryFormat;
use super::{NAME_MAX_BYTES, inline_change};
use crate::error::corrupt_inode;
use crate::inode::{Inode, InodeFlags, InodeState};
use crate::numbers::FileBlock;
use crate::transaction::Handle;

/// Blocks that [`remove`], [`replace`] and [`set_parent`](super::set_parent) change at most: one with entries, or the
/// inode that holds them.
pub(crate) const REMOVE_CREDITS: u32 = 1;

/// Takes `name` out, which stands for `number`.
///
/// # Errors
/// [`NotFound`](Error::NotFound); corruption, also when it stands for something else; [`NoKey`](Error::NoKey),
/// [`Unsupported`](Error::Unsupported); I/O failure. Nothing has changed then.
pub(crate) fn remove(handle: &Handle<'_>, dir: &InodeState, name: &[u8], number: u32) -> Result<()> {
    let check = |place: Place| {
        if place.number == number {
            return Ok(());
        }
        let detail = format!("{} leads to inode {}, not {number}", name.escape_ascii(), place.number);
        Err(corrupt_inode("directory", dir.number, None, detail))
    };
    change(handle, dir, name, check, edit::remove)
}

/// Lets `name` lead to another inode.
///
/// # Errors
/// As for [`remove`].
pub(crate) fn replace(
    handle: &Handle<'_>,
    dir: &InodeState,
    name: &[u8],
    number: u32,
    kind: FileType,
) -> Result<()> {
    let replace = |bytes: &mut [u8], format, place| edit::replace(bytes, format, place, number, kind);
    change(handle, dir, name, |_| Ok(()), replace)
}

/// Puts `new_name` into a directory of one block in place of `name`, in one step, if there is room for both. Returns
/// `false` where that is not possible; nothing has changed then. Changes [`REMOVE_CREDITS`] blocks.
///
/// # Errors
/// [`Exists`](Error::Exists); otherwise as for [`remove`].
pub(crate) fn move_in_block(
    handle: &Handle<'_>,
    dir: &InodeState,
    name: &[u8],
    new_name: &[u8],
    number: u32,
    kind: FileType,
) -> Result<bool> {
    let _index = dir.directory.index.read();
    let inode = {
        let fields = dir.fields.read();
        let is_one_block = fields.size_bytes == u64::from(dir.volume.block_bytes())
            && !fields.has_inline_data()
            && !fields.flags.contains(InodeFlags::INDEXED);
        if !is_one_block || new_name.len() > NAME_MAX_BYTES {
            return Ok(false);
        }
        fields.clone()
    };
    let changing = Changing::open(handle, dir, &inode)?;
    let Some(block) = changing.lock_block(FileBlock(0))? else { return Ok(false) };
    let room = match block.look(new_name)? {
        Look::Found(_) => return Err(Error::Exists),
        Look::Room(room) => room,
        Look::Scattered | Look::Full => return Ok(false),
    };
    match block.look(name)? {
        Look::Found(old) if old.number == number => {
            let new = NewEntry { name: new_name, number, kind };
            let format = changing.directory.format;
            block.change(|bytes| edit::insert_and_remove(bytes, format, room, &new, old));
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Finds `name`, checks that its entry is the right one, and changes the bytes around it.
fn change(
    handle: &Handle<'_>,
    dir: &InodeState,
    name: &[u8],
    check: impl Fn(Place) -> Result<()>,
    change: impl Fn(&mut [u8], EntryFormat, Place),
) -> Result<()> {
    let in_block = |inode: &Inode| {
        let changing = Changing::open(handle, dir, inode)?;
        let (block, place) = changing.find(name)?.ok_or(Error::NotFound)?;
        check(place)?;
        block.change(|bytes| change(bytes, changing.directory.format, place));
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
    if inode.has_inline_data() {
        inline_change::change(handle, dir, name, check, change)
    } else {
        in_block(&inode)
    }
}
