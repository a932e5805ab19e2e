//! The block that an inode keeps attributes in: taken, shared, changed and given up.
//!
//! A block that several inodes use is changed by none of them: an inode that gets other attributes uses another one.
//! Its count of users is asked and changed under the block's own lock, so an inode that is its only user there stays
//! so: others come to a block only through its content, which they compare under the same lock.

use undercroft_vfs::Result;

use super::block::{self, AttributeBlock};
use super::entry::{Attributes, Entry};
use super::uses::Uses;
use crate::inode::Inode;
use crate::numbers::FsBlock;
use crate::transaction::{Block, Handle, Seal};
use crate::volume::Volume;

/// What becomes of an inode's attributes outside of it.
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

    /// Makes it so; what it means for inodes that hold values is added to `uses`.
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

/// Gives the inode's block up, if it has one. The last user's goodbye frees it.
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
    // Looked at first, so that a block that does not fit is not entered into the transaction. A damaged one is its
    // users' to meet.
    let fits = AttributeBlock::judge(volume, home, &block)
        .is_ok_and(|judged| block::may_share(judged.bytes(), content));
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
    let alone = handle.change_block(&block, Seal::Xattrs, |bytes| {
        let alone = block::users(bytes) == 1;
        if alone {
            bytes.copy_from_slice(content);
        }
        alone
    });
    if alone {
        shared.enter(block::hash(content), home);
    }
    Ok(alone)
}

/// Gives the inode a new block. What it `made` of uses is counted before the old block is given up: another user of
/// that may come to be the last one, and a value of both would go with it.
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
    made.settle(handle, inode)?;
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
