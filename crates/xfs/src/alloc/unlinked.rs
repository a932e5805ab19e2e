//! Inodes without names that are in use: lists that begin in the header of each group, from which a crash leaves them to
//! be deleted at the next opening.

use super::*;

impl Allocator {
    /// Puts an inode that has lost its last name on its group's list.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn add_unlinked(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let _ = (handle, ino);
        todo!("inodes")
    }

    /// Takes it off the list.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn remove_unlinked(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let _ = (handle, ino);
        todo!("inodes")
    }
}
