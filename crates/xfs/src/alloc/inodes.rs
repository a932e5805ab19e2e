//! Inodes: allocated near their directory, by the free inode B+tree where there is one; chunks made and freed.

use super::*;

impl Allocator {
    /// Takes a free inode near `parent`, or for a directory in a group with room; makes a chunk where none is free. The
    /// inode's place still holds what was there before; the caller stores a new inode there.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace), when nothing has changed; corruption; I/O failure.
    pub(crate) fn new_inode(&self, handle: &Handle<'_>, parent: Ino, is_directory: bool) -> Result<Ino> {
        let _ = (handle, parent, is_directory);
        todo!("inodes")
    }

    /// Frees an inode whose content is gone and which is on no list; marks its place as free. A chunk of which no inode
    /// is in use is freed.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn free_inode(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let _ = (handle, ino);
        todo!("inodes")
    }
}
