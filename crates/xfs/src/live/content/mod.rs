//! A file's content: what lies under its bytes, and changing it.
//!
//! | module         | does                                                            |
//! | -------------- | --------------------------------------------------------------- |
//! | `stretch`      | blocks of one kind that lie together, as a reader or a writer sees them |
//! | `look`         | looks up what lies under a block                                |
//! | `state`        | what a file in use keeps in memory about its content            |
//! | `extsize`      | allocates in the multiples that a file has been given           |
//! | `window`       | the blocks that are reserved for a file and not in its map yet  |
//! | `write`        | prepares and finishes writes                                    |
//! | `size`         | sets the size, and removes everything                           |
//! | `post_eof`   | removes post-EOF blocks                                   |
//! | `share`        | shares blocks with another file                                 |
//! | `space`        | allocates, punches, zeroes, collapses and inserts               |
//! | `clear`        | writes zeroes over a part of a block                            |
//! | `sync`         | makes a file durable                                            |
//!
//! Blocks for what is written are held in memory and written to; a handle then takes them and puts them into the map. So
//! a file never shows what another file had left in a block, also after a crash. A block that other files have too is
//! never written: a write to it goes to another block, which takes its place in the map when the write is finished.
//!
//! Behind the end of a file there may be blocks: never written ones that a program reserved, and written ones that a crash
//! in the middle of a truncation left, or that Linux had allocated ahead. No byte of the latter is read or written where
//! it lies: for readers and writers they are a hole, and before the file grows over them they are removed.
//!
//! Locks: the map is changed with the inode's fields held exclusively, under a handle. With them held the window's lock
//! may be taken (class `file_space`).

mod clear;
mod extsize;
#[cfg(all(test, feature = "oracle"))]
mod extsize_tests;
mod look;
mod post_eof;
mod share;
#[cfg(all(test, feature = "oracle"))]
mod share_tests;
mod size;
mod space;
mod state;
mod stretch;
mod sync;
#[cfg(all(test, feature = "oracle"))]
mod tests;
#[cfg(all(test, feature = "oracle"))]
mod whole_tests;
mod window;
mod write;

use undercroft_diskfs::in_use::CachedExtent;
use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, Extent, FileType, Mapping, Result};

use super::Live;
use crate::inode::Inode;
use crate::transaction::Handle;

pub(super) use self::post_eof::remove_unreserved;
pub(super) use self::share::{clone_range, shares_blocks};
pub(super) use self::size::{remove_all_credits, set_size, truncate_all, truncate_now};
pub(super) use self::space::fallocate;
pub(crate) use self::state::ContentState;
pub(super) use self::sync::sync;
pub(super) use self::write::{cancel_write, finish_write, is_noted, prepare_write, retry_when_full};

/// The size of a regular file, without a lock.
pub(super) fn size(live: &Live) -> u64 {
    live.content.size.load(Ordering::Acquire)
}

/// Frees what is reserved for a file without a write under way.
pub(super) fn give_back_reserved(live: &Live) {
    live.content.window.lock().clear();
}

/// What lies under `offset`, and how far that extends.
///
/// # Errors
/// As for [`Inode::map`](undercroft_vfs::Inode::map).
pub(super) fn map(live: &Live, offset: u64) -> Result<Extent> {
    let bits = block_bits(live);
    let block = offset >> bits;
    let file_end = end_block(live, size(live));
    if let Some(CachedExtent { start, end, home }) = live.content.extents.find(block, file_end)
        && block < file_end
    {
        let len = (end.min(file_end) - start) << bits;
        return Ok(Extent { start: start << bits, len, mapping: Mapping::Device { offset: home << bits } });
    }
    let inode = &*live.fields.read();
    check_kind(inode)?;
    look::in_bytes(&look::lookup(live, inode, block)?, live)
}

/// Where these bytes lie on the device, if the extent cache has them and they lie within the size.
pub(super) fn written_at(live: &Live, offset: u64, len: u64) -> Option<u64> {
    let (size, bits) = (size(live), block_bits(live));
    if offset.checked_add(len)? > size {
        return None;
    }
    let (home, skip) = live.content.extents.find_bytes(offset, len, blocks_of(size, bits), bits)?;
    (home << bits).checked_add(skip)
}

/// Refuses an inode without content of its own.
fn check_kind(inode: &Inode) -> Result<()> {
    match inode.core.kind {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::InvalidArgument("not a regular file")),
    }
}

/// Size of a block as a power of two.
fn block_bits(live: &Live) -> u32 {
    u32::from(live.volume.geometry().block_log())
}

/// The first block behind a size.
fn end_block(live: &Live, size: u64) -> u64 {
    blocks_of(size, block_bits(live))
}

/// Blocks of `1 << bits` bytes that a size takes.
const fn blocks_of(size: u64, bits: u32) -> u64 {
    (size >> bits) + (size & ((1 << bits) - 1) != 0) as u64
}

/// Notes a change of content: sets times, and stores the fields under a handle, with a new size perhaps.
fn store(live: &Live, handle: &Handle<'_>, inode: &mut Inode, size: Option<u64>) -> Result<()> {
    let now = live.now();
    live.note_modification(inode, now);
    store_keeping_times(live, handle, inode, size)
}

/// The same without new times. The map may have changed before, so a failure aborts the changes.
fn store_keeping_times(live: &Live, handle: &Handle<'_>, inode: &mut Inode, size: Option<u64>) -> Result<()> {
    if let Some(size) = size {
        inode.core.size_bytes = size;
        live.content.size.store(size, Ordering::Release);
    }
    live.content.changed_in.store(handle.tid().0, Ordering::Relaxed);
    handle.or_abort(inode.store(handle))?;
    live.lazy_times.clear();
    Ok(())
}
