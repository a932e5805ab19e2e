//! Reference counts of shared blocks.

use super::*;

impl Allocator {
    /// One user of the blocks, which lie in one group, is gone: those without another are freed.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn remove_user(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        if !handle.volume().superblock().features().has_reflink() {
            return self.free_data(handle, first, count);
        }
        todo!("refcount")
    }

    /// The blocks, which lie in one group, have one user more.
    ///
    /// # Errors
    /// Corruption; I/O failure; more users than can be counted.
    pub(crate) fn add_user(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        let _ = (handle, first, count);
        todo!("refcount")
    }
}
