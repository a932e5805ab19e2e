//! Changing sizes, and removing everything.
//!
//! The handle that removes the first blocks stores the new size; further handles remove the rest. A crash between two of
//! them leaves post-EOF blocks, which are never shown: see `post_eof`. The caller excludes other
//! writers, so the file's reservation window is freed first.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, FileType, Result};

use super::{Live, check_kind, end_block, post_eof, store, store_keeping_times};
use crate::attr;
use crate::format::FileBlock;
use crate::format::extent::FILE_BLOCK_END;
use crate::inode::{Fork, ForkKind, Inode, STORE_CREDITS};
use crate::map::change::{self, Progress};
use crate::statfs::FILE_MAX_BYTES;
use crate::transaction::Handle;

/// Extents that are removed at once, at most.
const AT_ONCE_MAX: usize = 4;

/// Sets the size.
///
/// # Errors
/// As for [`Inode::set_size`](undercroft_vfs::Inode::set_size).
pub(in super::super) fn set_size(live: &Live, size: u64) -> Result<()> {
    live.content.window.lock().clear();
    let old = {
        let inode = live.fields.read();
        check_kind(&inode)?;
        inode.core.size_bytes
    };
    if size > FILE_MAX_BYTES {
        return Err(Error::FileTooLarge);
    }
    if size > old {
        post_eof::remove_written(live)?;
        let handle = live.volume.start(STORE_CREDITS)?;
        return store(live, &handle, &mut live.fields.write(), Some(size));
    }
    shrink(live, size)
}

fn shrink(live: &Live, size: u64) -> Result<()> {
    let mut from = end_block(live, size);
    let mut is_first = true;
    live.content.end_is_clean.store(false, Ordering::Relaxed);
    loop {
        let credits = change::credits(&live.volume, &live.fields.read(), ForkKind::Data) + STORE_CREDITS;
        let handle = live.volume.start(credits)?;
        let mut fields = live.fields.write();
        // In a transaction that is durable the size is, too.
        let progress = remove(live, &handle, &mut fields, from, FILE_BLOCK_END);
        // What was removed before an error stays removed.
        if is_first {
            store(live, &handle, &mut fields, Some(size))?;
        } else {
            store_keeping_times(live, &handle, &mut fields, None)?;
        }
        match progress? {
            Progress::Done => {
                live.content.end_is_clean.store(true, Ordering::Relaxed);
                return Ok(());
            }
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
    change::remove(handle, inode, ForkKind::Data, FileBlock(from), FileBlock(to))
}

/// Removes all blocks of an inode that is being deleted, which is on an unlinked list, in as many steps as it takes: those
/// of its content and those of its attributes.
///
/// # Errors
/// Corruption; I/O failure; why the filesystem takes no changes any more.
pub(in super::super) fn truncate_all(live: &Live) -> Result<()> {
    live.content.window.lock().clear();
    loop {
        let credits = {
            let inode = live.fields.read();
            let Some(kind) = fork_with_blocks(&inode) else { return Ok(()) };
            match kind {
                ForkKind::Data => change::credits(&live.volume, &inode, kind) + STORE_CREDITS,
                ForkKind::Attr => attr::change::remove_credits(&live.volume, &inode),
            }
        };
        let handle = live.volume.start(credits)?;
        truncate_some(live, &handle)?;
    }
}

/// Blocks that [`truncate_now`] changes at most, where it is certain to be one step: few extents, of which the inode itself
/// knows, and no other file has them.
pub(in super::super) fn remove_all_credits(live: &Live, inode: &Inode) -> Option<u32> {
    let (mut extents, mut most) = (0, STORE_CREDITS);
    for kind in [ForkKind::Data, ForkKind::Attr] {
        match inode.fork(kind) {
            None | Some(Fork::Device(_) | Fork::Local(_)) => {}
            Some(Fork::Extents(list)) => {
                // Attributes in several blocks go in steps, the tree first.
                let blocks: u64 = list.iter().map(|extent| u64::from(extent.count)).sum();
                let most_blocks = match kind {
                    ForkKind::Attr => 1,
                    ForkKind::Data if live.kind == FileType::Regular => u64::MAX,
                    ForkKind::Data => change::METADATA_STEP,
                };
                if blocks > most_blocks {
                    return None;
                }
                extents += list.len();
                most = most.max(change::credits(&live.volume, inode, kind) + STORE_CREDITS);
            }
            Some(Fork::Btree(_)) => return None,
        }
    }
    if extents > AT_ONCE_MAX || inode.core.may_share_blocks() && extents > 0 {
        return None;
    }
    Some(extents as u32 * change::group_credits(&live.volume) + most)
}

/// The same as [`truncate_all`] under a handle that must have room for all of it: of an inode that was made under it, or
/// that [takes one step](remove_all_credits).
///
/// # Errors
/// As for [`truncate_all`].
pub(in super::super) fn truncate_now(handle: &Handle<'_>, live: &Live) -> Result<()> {
    live.content.window.lock().clear();
    while fork_with_blocks(&live.fields.read()).is_some() {
        match truncate_some(live, handle)? {
            Progress::Done => {}
            Progress::From(_) => return Err(Error::NoSpace),
        }
    }
    Ok(())
}

/// Removes what one handle has room for. After a crash between two steps Linux reads what is left of the attributes, so
/// their tree is emptied before its blocks go.
fn truncate_some(live: &Live, handle: &Handle<'_>) -> Result<Progress> {
    let mut fields = live.fields.write();
    let Some(kind) = fork_with_blocks(&fields) else { return Ok(Progress::Done) };
    if kind == ForkKind::Attr {
        return attr::change::remove_all(handle, &mut fields);
    }
    live.content.extents.invalidate();
    let progress = change::remove(handle, &mut fields, kind, FileBlock(0), FileBlock(FILE_BLOCK_END));
    store_keeping_times(live, handle, &mut fields, Some(0))?;
    progress
}

/// A fork that has blocks to free.
fn fork_with_blocks(inode: &Inode) -> Option<ForkKind> {
    [ForkKind::Data, ForkKind::Attr].into_iter().find(|&kind| match inode.fork(kind) {
        None | Some(Fork::Device(_) | Fork::Local(_)) => false,
        Some(Fork::Extents(list)) => !list.is_empty(),
        Some(Fork::Btree(_)) => true,
    })
}
