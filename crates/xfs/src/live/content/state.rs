//! What a file in use keeps in memory about its content.

use undercroft_diskfs::in_use::{ExtentCache, coarse_nanoseconds};
use undercroft_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Timestamp;

use super::window::Window;
use crate::inode::Inode;

/// What a file in use keeps in memory about its content.
#[derive(Debug)]
pub(crate) struct ContentState {
    /// The fields' size, to be read without their lock.
    pub(super) size: AtomicU64,
    pub(super) extents: ExtentCache,
    pub(super) window: Mutex<Window>,
    /// No written blocks are known to lie past the end. Changed with the inode's state held exclusively.
    pub(super) end_is_clean: AtomicBool,
    /// The time of the last write that the fields have, in nanoseconds; 0 if they may have another. Written with the
    /// fields locked.
    pub(super) written_at: AtomicU64,
    /// The transaction that changed the content last; 0 if it was before the inode was read or made.
    pub(super) changed_in: AtomicU64,
}

impl ContentState {
    pub(crate) fn new(inode: &Inode) -> Self {
        Self {
            size: AtomicU64::new(inode.core.size_bytes),
            extents: ExtentCache::default(),
            window: Mutex::new(&order::FILE_SPACE, Window::default()),
            end_is_clean: AtomicBool::new(false),
            written_at: AtomicU64::new(0),
            changed_in: AtomicU64::new(0),
        }
    }

    /// The fields have this time, of a change of content.
    pub(crate) fn note_time(&self, now: Timestamp) {
        self.written_at.store(coarse_nanoseconds(now), Ordering::Relaxed);
    }

    /// The fields' times were set by something else than a write.
    pub(crate) fn forget_time(&self) {
        self.written_at.store(0, Ordering::Relaxed);
    }

    /// Frees the reservation window. `false` if it was empty.
    pub(crate) fn free_window(&self) -> bool {
        let mut window = self.window.lock();
        window.is_listed = false;
        window.free_unused()
    }
}
