//! The reverse map: what each block belongs to. Nothing is done on a volume without one.

use super::*;

impl Allocator {
    /// Notes that blocks, which lie in one group, belong to `owner` now; joins neighbours.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn note_owner(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        owner: Owner,
    ) -> Result<()> {
        let _ = (handle, first, count, owner);
        todo!("rmap")
    }

    /// Notes that they belong to it no more.
    ///
    /// # Errors
    /// As for [`note_owner`](Self::note_owner).
    pub(crate) fn note_no_owner(
        &self,
        handle: &Handle<'_>,
        first: FsBlock,
        count: u64,
        owner: Owner,
    ) -> Result<()> {
        let _ = (handle, first, count, owner);
        todo!("rmap")
    }
}
