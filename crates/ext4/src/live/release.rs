//! The end of an inode in use.
//!
//! An inode whose last name went while somebody used it is deleted when its last user goes. Until that is durable the
//! orphan list or file names it, so a crash in between is made good when the filesystem is opened again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use undercroft_vfs::{FileType, Result};

use super::{Live, content};
use crate::transaction::Handle;
use crate::{inode, orphan, xattr};

/// Deleting what is left when the content is gone: the place in the table, attributes and their bitmap, the group's
/// bitmap and descriptor, the orphan's blocks.
const DELETE_CREDITS: u32 = 10;

/// The last user is gone.
pub(super) fn release(live: &Arc<Live>) {
    // Deleted with its last name.
    if live.volume.writer().is_err() || live.released.load(Ordering::Acquire) {
        return;
    }
    let unnamed = live.fields.read().links == 0;
    let result = if unnamed { delete(live) } else { settle(live) };
    if let Err(error) = result
        && let Ok(writer) = live.volume.writer()
        && !writer.transactions.has_ended()
    {
        // Nobody is there to be told; the orphan, if it is one, stays for the next opening.
        writer.transactions.fail(&format!("inode {} could not be let go of: {error}", live.number));
    }
}

/// Gives back what a file kept for growing, and stores times that were kept in memory.
fn settle(live: &Live) -> Result<()> {
    content::give_back_reserved(live);
    live.store_late_times()?;
    live.released.store(true, Ordering::Release);
    Ok(())
}

fn delete(live: &Live) -> Result<()> {
    live.released.store(true, Ordering::Release);
    content::truncate_all(live)?;
    let handle = live.volume.start(DELETE_CREDITS + xattr::credits(&live.volume, None))?;
    delete_inode(&handle, live)
}

/// Blocks that [`delete_now`] changes for a file with one name that nobody uses; `None` where it may take more than one
/// step.
pub(super) fn credits_at_once(live: &Live) -> Option<u32> {
    let fields = live.fields.read();
    if live.kind == FileType::Directory || fields.links != 1 {
        return None;
    }
    let content = content::remove_all_credits(live, &fields)?;
    Some(content + DELETE_CREDITS + xattr::credits(&live.volume, None))
}

/// Deletes an inode under a handle that has room for all of it, content and all: one that was made under it, or one
/// whose content [goes in one step](credits_at_once).
pub(super) fn delete_now(handle: &Handle<'_>, live: &Live) -> Result<()> {
    live.released.store(true, Ordering::Release);
    content::truncate_now(handle, live)?;
    delete_inode(handle, live)
}

fn delete_inode(handle: &Handle<'_>, live: &Live) -> Result<()> {
    // Before the time of deletion is set, which stands where the list of orphans has its links.
    orphan::remove(handle, live)?;
    {
        let mut fields = live.fields.write();
        xattr::release(handle, &mut fields, live.location)?;
        inode::mark_deleted(handle, &mut fields, live.location, live.now())?;
    }
    let writer = live.volume.writer()?;
    writer.allocator.free_inode(handle, live.number, live.kind == FileType::Directory)
}
