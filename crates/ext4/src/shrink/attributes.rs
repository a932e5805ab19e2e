//! Moving blocks of extended attributes, which inodes may share, before the new end.

use undercroft_vfs::Result;

use super::Mover;
use super::blocks::or_abort;
use crate::alloc::ALLOCATE_CREDITS;
use crate::inode::{self, Inode};
use crate::numbers::FsBlock;
use crate::transaction::Handle;
use crate::xattr;

impl Mover<'_> {
    /// Moves a block of attributes that these inodes have. As many as one transaction has room for get the copy together;
    /// the others keep the old one meanwhile, and its count of users says so.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption; I/O failure.
    pub(super) fn move_attributes(&mut self, block: FsBlock, users: &[u32]) -> Result<()> {
        let others = 2 + 2 * ALLOCATE_CREDITS;
        let at_once = (self.writer.transactions.room() / 2).saturating_sub(others).max(1) as usize;
        let mut left = users.len();
        for users in users.chunks(at_once) {
            self.ensure_free()?;
            let handle = self.volume.start(others + users.len() as u32)?;
            left -= users.len();
            or_abort(&handle, self.move_some(&handle, block, users, left as u32))?;
            self.note(1);
        }
        Ok(())
    }

    fn move_some(&self, handle: &Handle<'_>, old: FsBlock, users: &[u32], left: u32) -> Result<()> {
        let new = self.allocate(handle)?;
        for &number in users {
            let location = inode::locate(self.volume, number)?;
            let mut inode = Inode::read_linked_or_not(self.volume, number, location)?;
            if number == users[0] {
                xattr::copy_block(handle, &inode, new, users.len() as u32, left)?;
            }
            inode.xattr_block = new;
            inode.store(handle, location)?;
        }
        if left == 0 {
            handle.forget(old);
            handle.writer().allocator.free(handle, old, 1)?;
        }
        Ok(())
    }
}
