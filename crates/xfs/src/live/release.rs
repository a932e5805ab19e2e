//! The end of an in-memory inode.
//!
//! An inode whose last name went while it was in use is deleted when its last user goes. Until that is durable it is on
//! an unlinked list, so after a crash in between it is deleted when the filesystem is opened again.
//!
//! A deletion reserves no space: what it may need is set aside in each group. On a volume that was filled by others there
//! may be less. Then what has been freed by now is made durable, so that it can be used, and the rest is tried again. An
//! inode that still cannot be deleted, for want of space or because it is damaged or cannot be read, stays on its list
//! for the next opening, and is counted.
//!
//! Other threads may still hold the handle, to store lazy times: nothing is stored through it once it is released, see
//! [`LazyTimeState`](undercroft_diskfs::in_use::LazyTimeState).

use std::sync::Arc;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, FileType, Result};

use super::{Live, content};
use crate::alloc::FREE_INODE_CREDITS;
use crate::inode::STORE_CREDITS;
use crate::transaction::Handle;

/// Blocks that putting an inode on an unlinked list changes, or taking it off: the group's header, the inode's place, and
/// that of the one before it.
pub(super) const UNLINKED_CREDITS: u32 = 3;

/// A deletion in one step reserves this part of a transaction's room at most: in a small log it would wait for others.
const PART_OF_ROOM: u32 = 4;

/// Deleting what is left when the content is gone.
const DELETE_CREDITS: u32 = FREE_INODE_CREDITS + UNLINKED_CREDITS + STORE_CREDITS;

/// The last user is gone.
pub(super) fn release(live: &Arc<Live>) {
    // Deleted with its last name.
    if live.volume.writer().is_err() || live.lazy_times.is_released() {
        return;
    }
    let has_no_name = live.fields.read().core.links == 0;
    let result = if has_no_name { delete(live) } else { store_and_free_window(live) };
    if let Err(error) = result
        && let Ok(writer) = live.volume.writer()
        && !writer.transactions.has_stopped()
    {
        // There is no caller to return the error to.
        let cause = format!("inode {} could not be released: {error}", live.ino);
        writer.transactions.abort_with(&cause, &error);
    }
}

/// Frees a file's reservation window and what is left past its end, and stores times that are newer in memory.
fn store_and_free_window(live: &Live) -> Result<()> {
    content::give_back_reserved(live);
    // Blocks that stay harm nothing, and the next user of the file meets what is wrong with its map.
    let _ = content::remove_unreserved(live);
    live.store_and_release()
}

/// Deletes an inode that is on an unlinked list, or leaves it there if that is not possible.
fn delete(live: &Live) -> Result<()> {
    live.lazy_times.set_released();
    let writer = live.volume.writer()?;
    let mut deleted = delete_once(live);
    if is_refused(live, &deleted) {
        writer.transactions.commit(writer.transactions.running())?;
        deleted = delete_once(live);
    }
    match deleted {
        // A failure after a step's first change has ended the changes.
        Err(error) if !writer.transactions.has_stopped() => {
            if matches!(error, Error::Corrupt(_)) {
                writer.allocator.note_damaged_list();
            }
            writer.inodes_left.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        deleted => deleted,
    }
}

/// The same in as many steps as it takes. A step that is refused changes nothing.
fn delete_once(live: &Live) -> Result<()> {
    content::truncate_all(live)?;
    let handle = live.volume.start(DELETE_CREDITS)?;
    handle.writer().allocator.free_unlinked(&handle, live.ino)
}

/// Whether a deletion found no space, and stopped where everything is consistent.
fn is_refused(live: &Live, deleted: &Result<()>) -> bool {
    matches!(deleted, Err(Error::NoSpace))
        && live.volume.writer().is_ok_and(|writer| !writer.transactions.has_stopped())
}

/// Blocks that [`delete_now`] changes for a file with one name that is not in use; `None` where it may take more than
/// one step.
pub(super) fn credits_at_once(live: &Live) -> Option<u32> {
    let fields = live.fields.read();
    if live.kind == FileType::Directory || fields.core.links != 1 {
        return None;
    }
    let credits = content::remove_all_credits(live, &fields)? + DELETE_CREDITS;
    let room = live.volume.writer().ok()?.transactions.room() / PART_OF_ROOM;
    (credits.saturating_mul(live.volume.credit_units()) <= room).then_some(credits)
}

/// Blocks that [`take_back`] changes at most.
pub(super) const TAKE_BACK_CREDITS: u32 = DELETE_CREDITS;

/// Deletes an inode that was made under the same handle, has got no blocks, and has no user. Where the filesystem has no
/// space for that it stays on its list for the next opening, and is counted.
///
/// # Errors
/// As for [`delete_now`].
pub(super) fn take_back(handle: &Handle<'_>, live: &Live) -> Result<()> {
    delete_now(handle, live)?;
    if !live.lazy_times.is_released() {
        handle.writer().inodes_left.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Deletes an inode under a handle that has room for all of it, content and all: one that was made under it, or one
/// whose content [goes in one step](credits_at_once). It is on no unlinked list, and gets there where that is refused, for
/// want of space or because it is damaged: it is deleted when its last user goes, or stays for the next opening.
///
/// # Errors
/// Corruption; I/O failure. The caller aborts the changes then.
pub(super) fn delete_now(handle: &Handle<'_>, live: &Live) -> Result<()> {
    live.lazy_times.set_released();
    let allocator = &handle.writer().allocator;
    let deleted = content::truncate_now(handle, live).and_then(|()| allocator.free_inode(handle, live.ino));
    // A failure after a step's first change has ended the changes.
    if deleted.is_ok() || handle.writer().transactions.has_stopped() {
        return deleted;
    }
    {
        let mut fields = live.fields.write();
        fields.core.links = 0;
        fields.store(handle)?;
    }
    allocator.add_unlinked(handle, live.ino)?;
    live.lazy_times.set_in_use();
    Ok(())
}
