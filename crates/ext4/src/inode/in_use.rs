//! An inode in use, for callers that know only that there is one.
//!
//! Inodes with late times and files with space ahead are listed, so that they are found when something is due. The
//! lists belong to the filesystem's state, below the inodes in use: they know them by this trait.

use undercroft_vfs::Result;

/// An inode in use, as the lists of such inodes have it.
pub(crate) trait InUse: Send + Sync {
    /// Stores times that are late. Under no handle.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    fn store_late_times(&self) -> Result<()>;

    /// The same, unless the running transaction has no room: `false` then.
    ///
    /// # Errors
    /// As for [`store_late_times`](Self::store_late_times).
    fn store_late_times_if_room(&self) -> Result<bool>;

    /// Takes back the space that a file has ahead. `false` if there was nothing.
    fn give_back_ahead(&self) -> bool;
}
