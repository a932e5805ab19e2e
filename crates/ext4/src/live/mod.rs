//! An in-memory inode: its state ([`InodeState`]), its content, its cached permissions, and the vfs contract for it
//! (`contract`).
//!
//! Locks: those of its state and of its content.

mod attributes;
mod content;
mod contract;
#[cfg(all(test, shuttle))]
mod model_tests;
mod names;
mod owner;
mod release;

use std::ops::Deref;
use std::sync::{Arc, Weak};

use undercroft_diskfs::in_use::{ChangeTimes, InUse};
use undercroft_sync::atomic::AtomicBool;
use undercroft_vfs::{InodeFlags, Result, Timestamp};

use crate::inode::{Inode, InodeState, Location};
use crate::writer::Mounted;
use content::ContentState;

/// An in-memory inode.
#[derive(Debug)]
pub(crate) struct Live {
    state: InodeState,
    pub(crate) content: ContentState,
    times: ChangeTimes,
    /// Made by `O_TMPFILE`: it has no name, and may get one.
    linkable: AtomicBool,
    permissions_cache: owner::CachedPermissions,
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
    pub(crate) fn new(volume: Arc<Mounted>, inode: Inode, location: Location) -> Self {
        Self {
            content: ContentState::new(&inode),
            permissions_cache: owner::CachedPermissions::new(&inode),
            state: InodeState::new(volume, inode, location),
            times: ChangeTimes::default(),
            linkable: AtomicBool::new(false),
            this: Weak::new(),
        }
    }

    /// An inode in the hands of the vfs.
    pub(crate) fn shared(volume: Arc<Mounted>, inode: Inode, location: Location) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: Weak::clone(this), ..Self::new(volume, inode, location) })
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
