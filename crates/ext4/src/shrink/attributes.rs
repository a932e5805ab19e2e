//! Moving blocks of extended attributes, which inodes may share, before the new end.

use undercroft_vfs::{Error, Result};

use super::Mover;
use super::blocks::HALF_MOVED;
use crate::alloc::ALLOCATE_CREDITS;
use crate::features::Incompat;
use crate::inode::{self, Inode};
use crate::numbers::FsBlock;
use crate::transaction::Handle;
use crate::xattr;

/// Blocks that change beside the inodes.
const OTHERS: u32 = 2 + 2 * ALLOCATE_CREDITS;

impl Mover<'_> {
    /// Refuses blocks whose users do not fit one transaction, where attributes may have values in inodes of their own: these
    /// count the blocks that name them, and there would be more.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported).
    pub(super) fn refuse_shared_values(&self) -> Result<()> {
        let has_value_inodes = self.volume.superblock().features().incompat.contains(Incompat::EA_INODE);
        match self.survey.attributes.iter().find(|(_, users)| users.len() > self.users_at_once()) {
            Some((block, users)) if has_value_inodes => {
                let what = format!(
                    "moving block {block} of attributes, which {} inodes share, with the feature ea_inode; use resize2fs",
                    users.len()
                );
                Err(Error::Unsupported(what.into()))
            }
            _ => Ok(()),
        }
    }

    fn users_at_once(&self) -> usize {
        (self.writer.transactions.room() / 2).saturating_sub(OTHERS).max(1) as usize
    }

    /// Moves a block of attributes that these inodes have. As many as one transaction has room for get the copy together;
    /// the others keep the old one meanwhile, and its count of users says so.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption; I/O failure.
    pub(super) fn move_attributes(&mut self, block: FsBlock, users: &[u32]) -> Result<()> {
        let mut left = users.len();
        for users in users.chunks(self.users_at_once()) {
            self.ensure_free(1)?;
            let handle = self.volume.start(OTHERS + users.len() as u32)?;
            left -= users.len();
            handle.or_abort(HALF_MOVED, self.move_some(&handle, block, users, left as u32))?;
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
