//! Changing sizes: blocks are removed in steps, and the inode is an orphan until the last of them.
//!
//! A crash between two steps leaves an orphan: a file of the new size with blocks past its end, which the next
//! opening of the filesystem removes. The caller excludes other writers, so the file's reservation window is freed
//! first.

use undercroft_vfs::{Error, Extent, Mapping, Result};

use super::write::INODE_CREDITS;
use super::{Live, block_bits, check_kind, inline, map, store, store_keeping_times};
use crate::inode::Inode;
use crate::map::{self as blocks, Progress, Removed};
use crate::transaction::Handle;
use crate::{orphan, xattr};

/// Sets the size.
///
/// # Errors
/// As for [`Inode::set_size`](undercroft_vfs::Inode::set_size).
pub(crate) fn set_size(live: &Live, size: u64) -> Result<()> {
    live.content.window.lock().clear();
    let (old, is_inline, limit) = {
        let inode = live.fields.read();
        check_kind(&inode)?;
        (inode.size_bytes, inode.has_inline_data(), blocks::limit(&live.volume, &inode) << block_bits(live))
    };
    if size > limit {
        return Err(Error::FileTooLarge);
    }
    if is_inline {
        inline::to_blocks(live, size)?;
    }
    if size > old {
        let handle = live.volume.start(SIZE_CREDITS)?;
        return store(live, &handle, &mut live.fields.write(), Some(size));
    }
    clear(live, size, old.min(size.next_multiple_of(1 << block_bits(live))))?;
    shrink(live, size)
}

/// The inode, and the superblock's feature `large_file`.
const SIZE_CREDITS: u32 = INODE_CREDITS + 1;

/// Clears bytes of one block, if they lie anywhere.
pub(super) fn clear(live: &Live, from: u64, to: u64) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    /// The largest block.
    static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
    live.volume.writer()?.transactions.check()?;
    if let Extent { start, mapping: Mapping::Device { offset }, .. } = map(live, from)? {
        live.volume.device().write_at(offset + (from - start), &ZEROES[..(to - from) as usize])?;
    }
    Ok(())
}

fn shrink(live: &Live, size: u64) -> Result<()> {
    let mut from = size.div_ceil(1 << block_bits(live));
    let mut is_first = true;
    loop {
        let credits = blocks::remove_credits(&live.fields.read()) + SIZE_CREDITS + orphan::CREDITS;
        let handle = live.volume.start(credits)?;
        let mut fields = live.fields.write();
        orphan::add(&handle, live)?;
        let progress = remove(live, &handle, &mut fields, from, u64::MAX);
        // What was removed before an error stays removed.
        if is_first {
            store(live, &handle, &mut fields, Some(size))?;
        } else {
            store_keeping_times(live, &handle, &mut fields, None)?;
        }
        match progress? {
            // With the fields held: a file that loses its last name meanwhile stays an orphan.
            Progress::Done if fields.links > 0 => return orphan::remove(&handle, live),
            Progress::Done => return Ok(()),
            Progress::From(next) => (from, is_first) = (next, false),
        }
    }
}

/// Removes blocks from the map and from the extent cache.
pub(super) fn remove(
    live: &Live,
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
) -> Result<Progress> {
    live.content.extents.invalidate();
    blocks::remove(handle, inode, from, to, Removed::of(inode.kind))
}

/// Removes all blocks of an inode that is being deleted, which is an orphan, in as many steps as it takes.
///
/// # Errors
/// Corruption; I/O failure; why the filesystem takes no changes any more.
pub(crate) fn truncate_all(live: &Live) -> Result<()> {
    live.content.window.lock().clear();
    let mut from = 0;
    loop {
        let credits = {
            let inode = live.fields.read();
            if !has_blocks(live, &inode) {
                return Ok(());
            }
            blocks::remove_credits(&inode) + INODE_CREDITS
        };
        let handle = live.volume.start(credits)?;
        match truncate_some(live, &handle, from)? {
            Progress::Done => return Ok(()),
            Progress::From(next) => from = next,
        }
    }
}

/// Blocks that [`truncate_now`] changes at most, where it is certain to be one step.
pub(crate) fn remove_all_credits(live: &Live, inode: &Inode) -> Option<u32> {
    if inode.sectors == 0 {
        return Some(0);
    }
    // The count of sectors includes attribute values, which may be many.
    if xattr::has_value_inodes(&live.volume) {
        return None;
    }
    if !blocks::is_mapped(&live.volume, inode) {
        return Some(0);
    }
    blocks::remove_all_credits(&live.volume, inode).map(|credits| credits + INODE_CREDITS)
}

/// The same under a handle that must have room for all of it: of an inode that was made under it, or that
/// [takes one step](remove_all_credits).
///
/// # Errors
/// As for [`truncate_all`].
pub(crate) fn truncate_now(handle: &Handle<'_>, live: &Live) -> Result<()> {
    live.content.window.lock().clear();
    if !has_blocks(live, &live.fields.read()) {
        return Ok(());
    }
    match truncate_some(live, handle, 0)? {
        Progress::Done => Ok(()),
        Progress::From(_) => Err(Error::NoSpace),
    }
}

fn truncate_some(live: &Live, handle: &Handle<'_>, from: u64) -> Result<Progress> {
    let mut fields = live.fields.write();
    let progress = remove(live, handle, &mut fields, from, u64::MAX);
    store_keeping_times(live, handle, &mut fields, Some(0))?;
    progress
}

/// Whether there are blocks to free: an inode that occupies none has none.
fn has_blocks(live: &Live, inode: &Inode) -> bool {
    inode.sectors != 0 && blocks::is_mapped(&live.volume, inode)
}
