//! The end of an inode in use.
//!
//! An inode whose last name went while it was in use is deleted when its last user goes. Until that is durable it is on
//! an unlinked list, so after a crash in between it is deleted when the filesystem is opened again.

use std::sync::Arc;

use undercroft_vfs::Result;

use super::Live;
use crate::transaction::Handle;

/// The last user is gone.
pub(super) fn release(live: &Arc<Live>) {
    if live.volume.writer().is_err() {
        return;
    }
    todo!("names")
}

/// Deletes an inode under a handle that has room for all of it, content and all.
pub(super) fn delete_now(handle: &Handle<'_>, live: &Live) -> Result<()> {
    let _ = (handle, live);
    todo!("names")
}
