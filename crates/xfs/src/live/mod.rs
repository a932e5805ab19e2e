//! An in-memory inode: its state ([`InodeState`]), its content, and the vfs contract for it (`contract`).
//!
//! Locks: those of its state and of its content.

mod attributes;
mod content;
mod contract;
#[cfg(all(test, feature = "oracle"))]
mod damaged_tests;
#[cfg(all(test, feature = "oracle"))]
mod full_tests;
mod making;
mod names;
#[cfg(all(test, feature = "oracle"))]
mod names_tests;
mod owner;
#[cfg(all(test, feature = "oracle"))]
mod parallel_tests;
mod reading;
mod release;

use std::ops::Deref;
use std::sync::{Arc, Weak};

use undercroft_diskfs::in_use::{ChangeTimes, InUse};
use undercroft_sync::atomic::{AtomicBool, Ordering};
use undercroft_vfs::{Error, InodeFlags, Result, Timestamp};

use crate::inode::{Inode, InodeState};
use crate::writer::Mounted;
pub(crate) use reading::prefetch;

/// An in-memory inode.
#[derive(Debug)]
pub(crate) struct Live {
    state: InodeState,
    permissions_cache: owner::CachedPermissions,
    pub(crate) content: content::ContentState,
    times: ChangeTimes,
    /// Made by `O_TMPFILE`: it has no name, and may get one.
    linkable: AtomicBool,
    this: Weak<Self>,
}

impl Deref for Live {
    type Target = InodeState;
    #[inline]
    fn deref(&self) -> &InodeState {
        &self.state
    }
}

impl Live {
    pub(crate) fn new(volume: Arc<Mounted>, inode: Inode) -> Self {
        let folds_case = volume.superblock().features().has_ascii_ci();
        Self {
            permissions_cache: owner::CachedPermissions::new(&inode, folds_case),
            content: content::ContentState::new(&inode),
            state: InodeState::new(volume, inode),
            times: ChangeTimes::default(),
            linkable: AtomicBool::new(false),
            this: Weak::new(),
        }
    }

    /// An inode in the hands of the vfs.
    pub(crate) fn shared(volume: Arc<Mounted>, inode: Inode) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: Weak::clone(this), ..Self::new(volume, inode) })
    }

    /// This inode, for a list of in-memory inodes.
    fn listed(&self) -> Weak<dyn InUse> {
        Weak::<Self>::clone(&self.this)
    }

    /// The times in memory are newer than those on the disk.
    pub(crate) fn times_are_late(&self) {
        if self.lazy_times.set()
            && let Ok(writer) = self.volume.writer()
        {
            writer.lazy_times.add(self.listed());
        }
    }

    /// The time for a change that is made now.
    pub(crate) fn now(&self) -> Timestamp {
        self.times.now()
    }

    /// Notes a change at `now` that is not one of content.
    fn note_change(&self, fields: &mut Inode, now: Timestamp) {
        if self.times.are_left_to_cache() {
            fields.note_version();
        } else {
            fields.note_change(now);
        }
    }

    /// Notes a change of content at `now`.
    fn note_modification(&self, fields: &mut Inode, now: Timestamp) {
        if self.cache_keeps_times_of_content() {
            fields.note_version();
        } else {
            fields.note_modification(now);
            self.content.note_time(now);
        }
    }

    /// Whether a write sets no times, because the cache above does. Immutable and append-only files are not written
    /// through a cache.
    fn cache_keeps_times_of_content(&self) -> bool {
        self.times.are_left_to_cache()
            && !self
                .permissions_cache
                .ownership(self.kind)
                .flags
                .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    }
}

/// Deletes unlinked inodes that a crash left: those on the lists of unlinked inodes, which no caller uses now. A list
/// that is broken or cannot be read stays, and so does an inode that cannot be read or that no chunk has in use: xfs_repair
/// finds them. Each is counted once.
///
/// # Errors
/// Why the filesystem takes no changes any more.
pub(crate) fn delete_unlinked(volume: &Arc<Mounted>) -> Result<()> {
    let writer = volume.writer()?;
    let (inodes, broken_lists) = writer.allocator.collect_unlinked(volume);
    writer.inodes_left.fetch_add(broken_lists, Ordering::Relaxed);
    for ino in inodes {
        match writer.allocator.check_in_use(volume, ino).and_then(|()| Inode::read(volume, ino)) {
            Ok(inode) => release::release(&Live::shared(Arc::clone(volume), inode)),
            Err(error) => {
                if !matches!(error, Error::Io(_)) {
                    writer.allocator.note_damaged_list();
                }
                writer.inodes_left.fetch_add(1, Ordering::Relaxed);
            }
        }
        writer.transactions.first_failure()?;
    }
    Ok(())
}

impl InUse for Live {
    fn store_lazy_times(&self) -> Result<()> {
        self.state.store_lazy_times()
    }

    fn store_lazy_times_if_room(&self) -> Result<bool> {
        self.state.store_lazy_times_if_room()
    }

    fn free_window(&self) -> bool {
        self.content.free_window()
    }
}
