//! Writing inodes: core and forks go into the inode's place.

use undercroft_vfs::Result;

use super::Inode;
use crate::transaction::Handle;

impl Inode {
    /// Writes the core and both forks into the inode's place. One block changes.
    ///
    /// # Errors
    /// I/O failure. Nothing has changed then.
    pub(crate) fn store(&self, handle: &Handle<'_>) -> Result<()> {
        let _ = handle;
        todo!("inodes")
    }

    /// Writes a new inode into its place: nothing of what was there stays, but for the unlinked list's link, which is
    /// empty.
    ///
    /// # Errors
    /// I/O failure. Nothing has changed then.
    pub(crate) fn store_new(&self, handle: &Handle<'_>) -> Result<()> {
        let _ = handle;
        todo!("inodes")
    }
}
