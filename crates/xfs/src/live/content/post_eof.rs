//! Post-EOF blocks of a file: written ones are removed before the file grows over them, and with the last user of the
//! file all go that no program has reserved.
//!
//! Whole extents go, so the map never needs space for it. Blocks that were never written stay. Only an inode that was read
//! can have some, or one of which a truncation failed: a file is looked through once.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{FileType, Result};

use super::size::remove;
use super::{Live, end_block, store_keeping_times};
use crate::format::FileBlock;
use crate::format::dinode::DiFlags;
use crate::format::extent::{Extent, FILE_BLOCK_END};
use crate::inode::{Fork, ForkKind, Inode, STORE_CREDITS};
use crate::map::change::{self, Progress};
use crate::map::{self, Run};

/// Removes all that was written past the end of the file. The inode's state is held exclusively.
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
        store_keeping_times(live, &handle, &mut fields, None)?;
        result?;
    }
    Ok(())
}

/// Removes all post-EOF blocks of a file that has no users any more, as Linux does: not those that a program has
/// reserved, which the file says. A file whose content was not changed while it was in use is left alone: looking at a damaged
/// file changes nothing.
///
/// # Errors
/// As for [`remove_written`].
pub(in super::super) fn remove_unreserved(live: &Live) -> Result<()> {
    if live.content.changed_in.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let keeps = DiFlags::PREALLOC | DiFlags::APPEND;
    let mut from = {
        let fields = live.fields.read();
        let from = end_block(live, fields.core.size_bytes);
        if fields.core.kind != FileType::Regular || fields.core.flags.intersects(keeps) {
            return Ok(());
        }
        let end = match &fields.data {
            Fork::Extents(list) => list.last().map_or(0, Extent::end),
            // A tree that no user of the file has read is not read for this.
            Fork::Btree(tree) if tree.found.get().is_some() => last_end(live, &fields)?,
            _ => 0,
        };
        if end <= from {
            return Ok(());
        }
        from
    };
    loop {
        let credits = change::credits(&live.volume, &live.fields.read(), ForkKind::Data) + STORE_CREDITS;
        let handle = live.volume.start(credits)?;
        let mut fields = live.fields.write();
        let progress = remove(live, &handle, &mut fields, from, FILE_BLOCK_END);
        store_keeping_times(live, &handle, &mut fields, None)?;
        match progress? {
            Progress::Done => return Ok(()),
            Progress::From(next) => from = next,
        }
    }
}

fn last_end(live: &Live, inode: &Inode) -> Result<u64> {
    Ok(match map::lookup(&live.volume, live.ino, &inode.data, FileBlock(FILE_BLOCK_END - 1))? {
        Run::Hole { start, .. } => start,
        Run::Extent(extent) => extent.end(),
    })
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
