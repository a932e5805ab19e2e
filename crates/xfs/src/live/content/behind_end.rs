//! Written blocks behind the end of a file: removed before the file grows over them.
//!
//! Whole extents go, so the map never needs space for it. Blocks that were never written stay. Only an inode that was read
//! can have some, or one of which a truncation failed: a file is looked through once.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Result;

use super::size::remove;
use super::{Live, end_block, store_unchanged};
use crate::format::FileBlock;
use crate::format::extent::{Extent, FILE_BLOCK_END};
use crate::inode::{ForkKind, Inode, STORE_CREDITS};
use crate::map::change::{self, Progress};
use crate::map::{self, Run};

/// Removes all that was written behind the end of the file. The inode's state is held exclusively.
///
/// # Errors
/// Corruption; I/O failure; why the filesystem takes no changes any more.
pub(super) fn remove_written(live: &Live) -> Result<()> {
    while !live.content.end_is_clean.load(Ordering::Relaxed) {
        {
            let fields = live.fields.read();
            if find(live, &fields, end_block(live, fields.core.size_bytes))?.is_none() {
                live.content.end_is_clean.store(true, Ordering::Relaxed);
                break;
            }
        }
        let credits = change::credits(&live.volume, &live.fields.read(), ForkKind::Data) + STORE_CREDITS;
        let handle = live.volume.start(credits)?;
        let mut fields = live.fields.write();
        let mut from = end_block(live, fields.core.size_bytes);
        let mut result = Ok(Progress::Done);
        while let Some(extent) = handle.or_abort(find(live, &fields, from))? {
            result = remove(live, &handle, &mut fields, extent.file.0.max(from), extent.end());
            if !matches!(result, Ok(Progress::Done))
                || !handle.has_room(change::credits(&live.volume, &fields, ForkKind::Data) + STORE_CREDITS)
            {
                break;
            }
            from = extent.end();
        }
        store_unchanged(live, &handle, &mut fields, None)?;
        result?;
    }
    Ok(())
}

/// The first extent with written blocks from a block on.
fn find(live: &Live, inode: &Inode, from: u64) -> Result<Option<Extent>> {
    let mut at = from;
    while at < FILE_BLOCK_END {
        match map::lookup(&live.volume, live.ino, &inode.data, FileBlock(at))? {
            Run::Extent(extent) if extent.unwritten => at = extent.end(),
            Run::Extent(extent) => return Ok(Some(extent)),
            Run::Hole { end, .. } => at = end,
        }
    }
    Ok(None)
}
