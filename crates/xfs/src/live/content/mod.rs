//! A file's content: what lies under its bytes, and changing it.

use undercroft_sync::atomic::{AtomicU64, Ordering};
use undercroft_vfs::{Durable, Error, Extent, FallocateMode, FileType, Result, Written};

use super::{Live, reading};
use crate::inode::Inode;
use crate::transaction::Handle;

/// What a file in use keeps in memory about its content.
#[derive(Debug)]
pub(crate) struct ContentState {
    /// The fields' size, to be read without their lock.
    size: AtomicU64,
}

impl ContentState {
    pub(crate) fn new(inode: &Inode) -> Self {
        Self { size: AtomicU64::new(inode.core.size_bytes) }
    }

    /// Frees the reservation window. `false` if it was empty.
    pub(crate) fn free_window(&self) -> bool {
        todo!("content")
    }
}

/// The size of a regular file, without a lock.
pub(super) fn size(live: &Live) -> u64 {
    live.content.size.load(Ordering::Acquire)
}

pub(super) fn map(live: &Live, offset: u64) -> Result<Extent> {
    match live.kind {
        FileType::Regular => reading::map_bytes(&live.volume, &live.snapshot(), offset),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::InvalidArgument("not a regular file")),
    }
}

/// Runs `change`; where it finds no space, commits what freed some and frees windows of files, and runs it again.
pub(super) fn retry_when_full<T>(live: &Live, mut change: impl FnMut() -> Result<T>) -> Result<T> {
    let _ = live;
    change()
}

pub(super) fn prepare_write(live: &Live, offset: u64, len: u64) -> Result<Extent> {
    let _ = (live, offset, len);
    todo!("content")
}

pub(super) fn finish_write(live: &Live, offset: u64, len: u64, size: u64, written: Written) -> Result<()> {
    let _ = (live, offset, len, size, written);
    todo!("content")
}

pub(super) fn set_size(live: &Live, size: u64) -> Result<()> {
    let _ = (live, size);
    todo!("content")
}

pub(super) fn fallocate(live: &Live, mode: FallocateMode, offset: u64, len: u64, size: u64) -> Result<()> {
    let _ = (live, mode, offset, len, size);
    todo!("content")
}

pub(super) fn sync(live: &Live, what: Durable) -> Result<()> {
    let _ = (live, what);
    todo!("content")
}

/// Frees what is reserved for a file without a write under way.
pub(super) fn give_back_reserved(live: &Live) {
    let _ = live;
    todo!("content")
}

/// Removes all blocks of an inode that is being deleted, which is on an unlinked list, in as many steps as it takes.
pub(super) fn truncate_all(live: &Live) -> Result<()> {
    let _ = live;
    todo!("content")
}

/// Blocks that [`truncate_now`] changes at most, where it is certain to be one step.
pub(super) fn remove_all_credits(live: &Live, inode: &Inode) -> Option<u32> {
    let _ = (live, inode);
    todo!("content")
}

/// The same as [`truncate_all`] under a handle that has room for all of it.
pub(super) fn truncate_now(handle: &Handle<'_>, live: &Live) -> Result<()> {
    let _ = (handle, live);
    todo!("content")
}
