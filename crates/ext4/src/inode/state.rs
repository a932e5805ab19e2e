//! An in-memory inode, as far as directories, orphans and the store of its fields need it.
//!
//! Locks: `fields` (class `inode_fields`) guards the fields and with them the root of the block map. Changing
//! them takes the lock exclusively, under a handle; reading them takes it shared, and no handle. A thread that holds the
//! lock starts no handle.

use std::sync::Arc;

use undercroft_diskfs::in_use::LazyTimeState;
use undercroft_sync::{RwLock, order};
use undercroft_vfs::{FileType, Result};

use super::{Inode, Location};
use crate::dir::DirectoryLocks;
use crate::orphan::Membership;
use crate::transaction::Handle;
use crate::writer::Mounted;

/// The state of an in-memory inode.
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) volume: Arc<Mounted>,
    pub(crate) number: u32,
    pub(crate) kind: FileType,
    /// Where the inode lies on the disk.
    pub(crate) location: Location,
    pub(crate) fields: RwLock<Inode>,
    pub(crate) directory: DirectoryLocks,
    pub(crate) orphan: Membership,
    /// The times are newer than those on the disk.
    pub(crate) lazy_times: LazyTimeState,
}

impl InodeState {
    pub(crate) fn new(volume: Arc<Mounted>, inode: Inode, location: Location) -> Self {
        Self {
            volume,
            number: inode.number,
            kind: inode.kind,
            location,
            fields: RwLock::new(&order::INODE_FIELDS, inode),
            directory: DirectoryLocks::new(),
            orphan: Membership::default(),
            lazy_times: LazyTimeState::default(),
        }
    }

    /// Changes the fields and writes them under a handle.
    ///
    /// # Errors
    /// I/O failure.
    pub(crate) fn change_fields<R>(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut Inode) -> R,
    ) -> Result<R> {
        let mut fields = self.fields.write();
        let result = change(&mut fields);
        fields.store(handle, self.location)?;
        self.lazy_times.clear();
        Ok(result)
    }

    /// Stores times that are late. Under no handle.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    pub(crate) fn store_lazy_times(&self) -> Result<()> {
        self.lazy_times
            .store(
                &self.fields,
                || self.volume.start(1).map(Some),
                |fields, handle| fields.store(handle, self.location),
            )
            .map(drop)
    }

    /// The same, unless the running transaction has no room: `false` then.
    ///
    /// # Errors
    /// As for [`store_lazy_times`](Self::store_lazy_times).
    pub(crate) fn store_lazy_times_if_room(&self) -> Result<bool> {
        self.lazy_times.store(
            &self.fields,
            || self.volume.start_if_room(1),
            |fields, handle| fields.store(handle, self.location),
        )
    }

    /// The last user of an inode with names is gone; see [`LazyTimeState::store_and_release`].
    ///
    /// # Errors
    /// As for [`store_lazy_times`](Self::store_lazy_times).
    pub(crate) fn store_and_release(&self) -> Result<()> {
        self.lazy_times.store_and_release(
            &self.fields,
            || self.volume.start(1),
            |fields, handle| fields.store(handle, self.location),
        )
    }
}
