//! Changing a tree: records inserted, deleted and updated; blocks split and joined; roots that grow and shrink.
//!
//! After a change the tree's root and levels may be others: the caller stores them where the tree begins.

use undercroft_vfs::Result;

use super::{Btree, Kind};
use crate::format::FsBlock;
use crate::transaction::Handle;

/// Where a tree gets its blocks from.
pub(crate) trait TreeSpace {
    /// Takes a block for the tree.
    ///
    /// # Errors
    /// Corruption; I/O failure; no space, which a caller that reserved enough does not get.
    fn take(&mut self, handle: &Handle<'_>) -> Result<FsBlock>;

    /// A block of the tree is in use no more. It has been forgotten.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    fn put(&mut self, handle: &Handle<'_>, block: FsBlock) -> Result<()>;
}

/// A kind of tree that can be changed.
pub(crate) trait ChangeKind: Kind {
    /// Writes a record of [`RECORD_BYTES`](Kind::RECORD_BYTES) bytes.
    fn pack(record: &Self::Record, bytes: &mut [u8], has_sparse_inodes: bool);
    /// Writes the key of a pointer of [`KEY_BYTES`](Kind::KEY_BYTES) bytes, from the records or keys below it: the lowest,
    /// and for the reverse map also the highest.
    fn pack_low_key(record: &Self::Record, bytes: &mut [u8]);
}

impl<K: ChangeKind> Btree<'_, K> {
    /// Inserts a record, which no record of the tree overlaps.
    ///
    /// # Errors
    /// Corruption; I/O failure; those of `space`.
    pub(crate) fn insert(
        &mut self,
        handle: &Handle<'_>,
        space: &mut dyn TreeSpace,
        record: &K::Record,
    ) -> Result<()> {
        let _ = (handle, space, record);
        todo!("btree")
    }

    /// Deletes the record with this key.
    ///
    /// # Errors
    /// Corruption, also when there is no such record; I/O failure; those of `space`.
    pub(crate) fn delete(
        &mut self,
        handle: &Handle<'_>,
        space: &mut dyn TreeSpace,
        key: &K::Key,
    ) -> Result<()> {
        let _ = (handle, space, key);
        todo!("btree")
    }

    /// Replaces the record with this key by another that goes to the same place in the order.
    ///
    /// # Errors
    /// As for [`delete`](Self::delete).
    pub(crate) fn update(&mut self, handle: &Handle<'_>, key: &K::Key, record: &K::Record) -> Result<()> {
        let _ = (handle, key, record);
        todo!("btree")
    }
}
