//! An in-memory inode, as far as directories, unlinked lists and the store of its fields need it.
//!
//! Locks: `fields` (class `inode_fields`) guards the core and the forks. Changing them takes the lock exclusively, under
//! a handle; reading them takes it shared, and no handle. A thread that holds the lock starts no handle. `names` (class
//! `directory_index`) guards which blocks a directory has and its form: shared to look names up and to change names in
//! place where the index has blocks of its own, exclusive for all other changes (see `dir::change`); it is taken before
//! `fields`.

use std::sync::Arc;

use undercroft_diskfs::in_use::LazyTimeState;
use undercroft_sync::atomic::AtomicBool;
use undercroft_sync::{RwLock, order};
use undercroft_vfs::{FileType, Ino, Result};

use super::Inode;
use crate::transaction::Handle;
use crate::writer::Mounted;

/// Blocks that storing an inode's fields changes.
pub(crate) const STORE_CREDITS: u32 = 1;

/// The state of an in-memory inode.
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) volume: Arc<Mounted>,
    pub(crate) ino: Ino,
    pub(crate) kind: FileType,
    pub(crate) fields: RwLock<Inode>,
    pub(crate) names: RwLock<()>,
    /// The directory has its hash index in blocks of its own, when its names were changed last. A hint.
    pub(crate) is_indexed: AtomicBool,
    /// The times are newer than those on the disk.
    pub(crate) lazy_times: LazyTimeState,
}

impl InodeState {
    pub(crate) fn new(volume: Arc<Mounted>, mut inode: Inode) -> Self {
        if volume.writer().is_ok() {
            inode.use_form_of_times(&volume);
        }
        Self {
            volume,
            ino: inode.ino,
            kind: inode.core.kind,
            fields: RwLock::new(&order::INODE_FIELDS, inode),
            names: RwLock::new(&order::DIRECTORY_INDEX, ()),
            is_indexed: AtomicBool::new(false),
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
        fields.store(handle)?;
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
                || self.volume.start(STORE_CREDITS).map(Some),
                |fields, handle| fields.store(handle),
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
            || self.volume.start_if_room(STORE_CREDITS),
            |fields, handle| fields.store(handle),
        )
    }

    /// The last user of an inode with names is gone; see [`LazyTimeState::store_and_release`].
    ///
    /// # Errors
    /// As for [`store_lazy_times`](Self::store_lazy_times).
    pub(crate) fn store_and_release(&self) -> Result<()> {
        self.lazy_times.store_and_release(
            &self.fields,
            || self.volume.start(STORE_CREDITS),
            |fields, handle| fields.store(handle),
        )
    }
}
