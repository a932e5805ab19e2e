//! A file's content: what lies under its bytes, and changing it.
//!
//! | module         | does                                                           |
//! | -------------- | -------------------------------------------------------------- |
//! | `state`        | what a file in use keeps in memory about its content           |
//! | `window`       | the blocks that are reserved for a file and not in its map yet |
//! | `write`        | prepares and finishes writes                                   |
//! | `size`         | sets the size, and removes everything                          |
//! | `space`        | allocates, punches, zeroes, collapses and inserts              |
//! | `inline`       | moves what lies in the inode to a block                        |
//! | `sync`         | makes a file durable                                           |
//!
//! Blocks for what is written are reserved in memory and written to; a handle then takes them and puts them into the
//! map. So a file never shows what another file had left in a block, also after a crash.
//!
//! Locks: the map is changed with the inode's fields held exclusively, under a handle. With them held the window's lock
//! may be taken (class `file_space`).

mod inline;
mod size;
mod space;
mod state;
mod sync;
#[cfg(test)]
mod tests;
mod window;
mod write;

use undercroft_diskfs::in_use::CachedExtent;
use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, Extent, FileType, Mapping, Result};

use super::Live;
use crate::features::RoCompat;
use crate::inode::{Inode, InodeFlags};
use crate::map::{self, Run, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::superblock;
use crate::transaction::Handle;

pub(crate) use self::size::{remove_all_credits, set_size, truncate_all, truncate_now};
pub(crate) use self::space::fallocate;
pub(crate) use self::state::ContentState;
pub(crate) use self::sync::sync;
pub(crate) use self::write::{finish_write, is_noted, prepare_write, retry_when_full};

/// The size of a regular file, without a lock.
pub(crate) fn size(live: &Live) -> u64 {
    live.content.size.load(Ordering::Acquire)
}

/// Frees what is reserved for a file without a write under way.
pub(crate) fn give_back_reserved(live: &Live) {
    live.content.window.lock().clear();
}

/// What lies under `offset`, and how far that extends.
///
/// # Errors
/// As for [`Inode::map`](undercroft_vfs::Inode::map).
pub(crate) fn map(live: &Live, offset: u64) -> Result<Extent> {
    let bits = block_bits(live);
    if let Ok(block) = u32::try_from(offset >> bits)
        && let Some(extent) = live.content.extents.find(u64::from(block), size(live) >> bits)
    {
        return Ok(in_bytes(&run_of(extent, block), bits));
    }
    let inode = &*live.fields.read();
    check_kind(inode)?;
    if inode.has_inline_data() {
        // An inode is never larger than a block; a size may say anything.
        let end = 1 << bits;
        if offset >= end {
            return Ok(Extent { start: end, len: u64::MAX - end, mapping: Mapping::Hole });
        }
        let bytes = crate::inline::read(&live.volume, inode)?;
        return Ok(Extent { start: 0, len: end, mapping: Mapping::Inline(bytes) });
    }
    let Ok(block) = u32::try_from(offset >> bits) else {
        // Past the last block that a file can have there is nothing.
        let start = 1 << (32 + bits);
        return Ok(Extent { start, len: u64::MAX - start, mapping: Mapping::Hole });
    };
    Ok(in_bytes(&lookup(live, inode, block)?, bits))
}

/// Where these bytes lie on the device, if the extent cache has them and they lie within the size.
pub(crate) fn written_at(live: &Live, offset: u64, len: u64) -> Option<u64> {
    let (size, bits) = (size(live), block_bits(live));
    if offset.checked_add(len)? > size {
        return None;
    }
    let (home, skip) = live.content.extents.find_bytes(offset, len, size >> bits, bits)?;
    (home << bits).checked_add(skip)
}

/// Looks a block up with the fields held, and caches what was found.
fn lookup(live: &Live, inode: &Inode, block: u32) -> Result<Run> {
    let run = map::lookup(&live.volume, inode, FileBlock(block))?;
    if let RunState::Mapped(home) = run.state {
        let block = u64::from(block);
        let extent =
            CachedExtent { start: block - run.before, end: block + run.len, home: home.0 - run.before };
        live.content.extents.keep(extent, block, inode.size_bytes >> block_bits(live));
    }
    Ok(run)
}

/// The run of a block that a cached extent has.
fn run_of(extent: CachedExtent, block: u32) -> Run {
    let before = u64::from(block) - extent.start;
    Run {
        start: FileBlock(block),
        len: extent.end - u64::from(block),
        before,
        state: RunState::Mapped(FsBlock(extent.home + before)),
    }
}

/// Refuses an inode without content of its own, or whose content cannot be read.
fn check_kind(inode: &Inode) -> Result<()> {
    match inode.kind {
        FileType::Regular => {}
        FileType::Directory => return Err(Error::IsDirectory),
        _ => return Err(Error::InvalidArgument("not a regular file")),
    }
    if inode.flags.contains(InodeFlags::ENCRYPTED) { Err(Error::NoKey) } else { Ok(()) }
}

fn block_bits(live: &Live) -> u32 {
    live.volume.superblock().geometry().block_bits()
}

/// A run of blocks as the vfs has it.
fn in_bytes(run: &Run, bits: u32) -> Extent {
    let offset = |block: FsBlock| (block.0 - run.before) << bits;
    let mapping = match run.state {
        RunState::Hole => Mapping::Hole,
        RunState::Unwritten(block) => Mapping::Unwritten { offset: offset(block) },
        RunState::Mapped(block) => Mapping::Device { offset: offset(block) },
    };
    Extent {
        start: (u64::from(run.start.0) - run.before) << bits,
        len: (run.before + run.len) << bits,
        mapping,
    }
}

/// Notes a change of content: sets times, and stores the fields under a handle, with a new size perhaps.
fn store(live: &Live, handle: &Handle<'_>, inode: &mut Inode, size: Option<u64>) -> Result<()> {
    let now = live.now();
    live.note_modification(inode, now);
    store_keeping_times(live, handle, inode, size)
}

/// The same without new times.
fn store_keeping_times(live: &Live, handle: &Handle<'_>, inode: &mut Inode, size: Option<u64>) -> Result<()> {
    /// The largest size of a file that the oldest filesystems know.
    const SMALL: u64 = i32::MAX as u64;
    if let Some(size) = size {
        let has_large = live.volume.superblock().features().ro_compat.contains(RoCompat::LARGE_FILE);
        if size > SMALL && inode.size_bytes <= SMALL && !has_large {
            superblock::change(handle, |raw| {
                let features = raw.s_feature_ro_compat.get() | RoCompat::LARGE_FILE.bits();
                raw.s_feature_ro_compat.set(features);
            })?;
        }
        inode.size_bytes = size;
        live.content.size.store(size, Ordering::Release);
    }
    live.content.changed_in.store(handle.tid().0, Ordering::Relaxed);
    inode.store(handle, live.location)?;
    live.lazy_times.clear();
    Ok(())
}
