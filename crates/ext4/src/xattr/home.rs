//! The block that an inode keeps attributes in: taken, shared, changed and given up.
//!
//! A block that several inodes use is never changed: an inode whose attributes change gets another block. The count of
//! users is read and changed under the block's own lock. Other inodes join a block only after they compared its content
//! under the same lock, so the only user of a block stays its only user while it changes it.

use undercroft_vfs::Result;

use super::block::{self, AttributeBlock};
use super::entry::{Attributes, Entry};
use super::uses::Uses;
use crate::inode::Inode;
use crate::numbers::FsBlock;
use crate::transaction::{Block, Handle, Seal};
use crate::volume::Volume;

/// A change of the attributes that an inode keeps in a block.
pub(super) enum Outside {
    Stays,
    /// There are none any more.
    Goes,
    /// They become this block.
    Becomes {
        content: Vec<u8>,
        /// What it takes of inodes that hold values to make the block's entries, and to change the old block into it.
        made: Uses,
        changed: Uses,
    },
}

impl Outside {
    /// They become the block `content`, which has these entries, after those in `before`.
    pub(super) fn becomes(content: Vec<u8>, entries: &[Entry<'_>], before: Option<Attributes<'_>>) -> Self {
        let (mut made, mut changed) = (Uses::default(), Uses::default());
        made.gain(entries.iter().copied());
        changed.gain(entries.iter().copied());
        if let Some(before) = before {
            changed.lose(before.iter());
        }
        Self::Becomes { content, made, changed }
    }

    /// Carries this out, and adds the changes for inodes that hold values to `uses`.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace): nothing has changed then. Corruption; I/O failure.
    pub(super) fn make(self, handle: &Handle<'_>, inode: &mut Inode, uses: &mut Uses) -> Result<()> {
        match self {
            Self::Stays => Ok(()),
            Self::Goes => drop_block(handle, inode, uses),
            Self::Becomes { content, made, changed } => {
                if share(handle, inode, &content, uses)? {
                    return Ok(());
                }
                if rewrite(handle, inode, &content)? {
                    uses.merge(changed);
                    return Ok(());
                }
                make_block(handle, inode, &content, made, uses)
            }
        }
    }
}

/// Releases the inode's block, if it has one. The last user frees it.
///
/// # Errors
/// Corruption; I/O failure.
pub(super) fn drop_block(handle: &Handle<'_>, inode: &mut Inode, uses: &mut Uses) -> Result<()> {
    let volume = handle.volume();
    let Some((block, old)) = AttributeBlock::hold(volume, inode)? else { return Ok(()) };
    old.check_users(inode)?;
    let (home, hash) = (inode.xattr_block, old.hash());
    let mut lost = Uses::default();
    lost.lose(old.attributes().iter().flat_map(Attributes::iter));
    drop(old);
    let writer = handle.writer();
    let left = handle.change_block(&block, Seal::Xattrs, |bytes| {
        let left = block::users(bytes).saturating_sub(1);
        block::set_users(bytes, left);
        left
    });
    if left == 0 {
        // Before its space is free; see `shared`.
        writer.shared_attributes.leave(hash, home);
        uses.merge(lost);
        handle.forget(home);
        writer.allocator.free(handle, home, 1)?;
    }
    inode.xattr_block = FsBlock(0);
    inode.sectors = inode.sectors.saturating_sub(sectors(volume));
    Ok(())
}

/// Uses a block of another inode that has this content, if there is one.
fn share(handle: &Handle<'_>, inode: &mut Inode, content: &[u8], uses: &mut Uses) -> Result<bool> {
    let volume = handle.volume();
    let Some(home) = handle.writer().shared_attributes.find(block::hash(content)) else { return Ok(false) };
    if home == inode.xattr_block {
        return Ok(false);
    }
    let block = volume.block(home)?;
    // Checked first, so that a block that does not fit is not added to the transaction. Damage is reported when its
    // users read the block.
    let fits = AttributeBlock::validate(volume, home, &block)
        .is_ok_and(|validated| block::may_share(validated.bytes(), content));
    if !fits || !join(handle, &block, content) {
        return Ok(false);
    }
    replace(handle, inode, home, uses)?;
    Ok(true)
}

fn join(handle: &Handle<'_>, block: &Block, content: &[u8]) -> bool {
    handle.change_block(block, Seal::Xattrs, |bytes| {
        let joins = block::may_share(bytes, content);
        if joins {
            block::set_users(bytes, block::users(bytes) + 1);
        }
        joins
    })
}

/// Changes the inode's own block, if it has one that no other inode uses.
fn rewrite(handle: &Handle<'_>, inode: &Inode, content: &[u8]) -> Result<bool> {
    let volume = handle.volume();
    let home = inode.xattr_block;
    let Some((block, before)) = AttributeBlock::hold(volume, inode)? else { return Ok(false) };
    let shared = &handle.writer().shared_attributes;
    if block::users(before.bytes()) != 1 {
        return Ok(false);
    }
    shared.leave(before.hash(), home);
    drop(before);
    let is_only_user = handle.change_block(&block, Seal::Xattrs, |bytes| {
        let is_only_user = block::users(bytes) == 1;
        if is_only_user {
            bytes.copy_from_slice(content);
        }
        is_only_user
    });
    if is_only_user {
        shared.enter(block::hash(content), home);
    }
    Ok(is_only_user)
}

/// Gives the inode a new block. The uses of the new block, `made`, are counted before the old block is released:
/// otherwise its last user could release that one in between, and a value that both blocks use would be deleted.
fn make_block(
    handle: &Handle<'_>,
    inode: &mut Inode,
    content: &[u8],
    made: Uses,
    uses: &mut Uses,
) -> Result<()> {
    let volume = handle.volume();
    let writer = handle.writer();
    let goal = writer.allocator.goal_for(volume, inode.number, inode.kind);
    let (home, _) = writer.allocator.allocate(handle, goal, 1, writer.allocator.purpose_for(inode))?;
    handle.make(home, Seal::Xattrs, |bytes| bytes.copy_from_slice(content))?;
    made.store(handle, inode)?;
    replace(handle, inode, home, uses)?;
    writer.shared_attributes.enter(block::hash(content), home);
    Ok(())
}

/// Gives up the inode's block for one of which it has become a user.
fn replace(handle: &Handle<'_>, inode: &mut Inode, home: FsBlock, uses: &mut Uses) -> Result<()> {
    drop_block(handle, inode, uses)?;
    inode.xattr_block = home;
    inode.sectors += sectors(handle.volume());
    Ok(())
}

/// What a block counts for in the inode.
fn sectors(volume: &Volume) -> u64 {
    u64::from(volume.block_bytes() / 512)
}

/// Copies the block of an inode's attributes to `new`, with so many users there and so many left, and leaves the inode as
/// it is. Two blocks change.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn copy_block(
    handle: &Handle<'_>,
    inode: &Inode,
    new: FsBlock,
    users_there: u32,
    users_left: u32,
) -> Result<()> {
    let Some((block, held)) = AttributeBlock::hold(handle.volume(), inode)? else { return Ok(()) };
    handle.make(new, Seal::Xattrs, |bytes| {
        bytes.copy_from_slice(held.bytes());
        block::set_users(bytes, users_there);
    })?;
    if users_left > 0 {
        handle.change_block(&block, Seal::Xattrs, |bytes| block::set_users(bytes, users_left));
    }
    Ok(())
}
