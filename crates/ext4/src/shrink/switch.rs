//! The transaction that makes the filesystem smaller.

use std::collections::BTreeSet;
use std::ops::Range;

use undercroft_vfs::{Error, Result};

use super::Mover;
use super::blocks::HALF_MOVED;
use crate::alloc::ALLOCATE_CREDITS;
use crate::features::Compat;
use crate::group::GroupDetails;
use crate::grow::resize_inode::ResizeInode;
use crate::grow::{copies, switch};
use crate::mkfs;
use crate::numbers::{FsBlock, Group};
use crate::superblock::{self, Superblock};
use crate::transaction::{Handle, Seal};

impl Mover<'_> {
    /// Moves the resize inode's own block, if it lies past the end.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace); corruption; I/O failure.
    pub(super) fn move_resize_inode(&self) -> Result<()> {
        let Some(resize_inode) = ResizeInode::read(self.volume, self.volume.superblock())? else {
            return Ok(());
        };
        self.ensure_free(1)?;
        let handle = self.volume.start(resize_inode.credits())?;
        handle.or_abort(HALF_MOVED, resize_inode.move_before(&handle, self.end))
    }

    /// Makes the filesystem smaller. Nothing is in use past its new end but structures of groups that go.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn switch(&self, new: &Superblock) -> Result<()> {
        let (volume, transactions) = (self.volume, &self.writer.transactions);
        // So that no descriptor of a group that goes is part of the transaction.
        transactions.write_everything_back(volume)?;
        self.writer.allocator.check_vacant(volume, self.end)?;
        let old = volume.superblock().clone();
        let resize_inode = ResizeInode::read(volume, &old)?;
        let unneeded = self.unneeded(&old, new)?;
        let credits = self.credits(&old, &unneeded, resize_inode.as_ref());
        let room = transactions.room() * 2;
        if credits > room {
            let what = format!(
                "making the filesystem smaller changes {credits} blocks at once, and the journal has room for {room}; \
                 use resize2fs"
            );
            return Err(Error::Unsupported(what.into()));
        }
        {
            let handle = volume.start(credits)?;
            let changed = change_all(&handle, &old, new, &unneeded, resize_inode);
            handle.or_abort(HALF_MOVED, changed)?;
        }
        transactions.commit_everything(volume)?;
        copies::write_all(volume)?;
        volume.flush()
    }

    /// Blocks before the end that the smaller filesystem has no use for: structures of groups that go, and descriptors.
    fn unneeded(&self, old: &Superblock, new: &Superblock) -> Result<Vec<Range<u64>>> {
        let (before, now) = (old.geometry(), new.geometry());
        let table = u64::from(before.inode_table_blocks());
        let mut unneeded = Vec::new();
        for group in (now.groups()..before.groups()).map(Group) {
            let details = GroupDetails::read_on_disk(self.volume, group)?;
            for (first, count) in [
                (details.block_bitmap, 1),
                (details.inode_bitmap, 1),
                (details.descriptor.inode_table, table),
            ] {
                unneeded.push(first.0..(first.0 + count).min(self.end.0));
            }
        }
        for group in (0..now.groups()).map(Group) {
            let start = now.group_start(group).0;
            unneeded.push(start + mkfs::base_blocks(now, group)..start + mkfs::base_blocks(before, group));
        }
        unneeded.retain(|range| range.start < range.end);
        Ok(unneeded)
    }

    fn credits(&self, old: &Superblock, unneeded: &[Range<u64>], resize_inode: Option<&ResizeInode>) -> u32 {
        let geometry = old.geometry();
        let per_group = u64::from(geometry.blocks_per_group());
        let group_of = |block: u64| (block - u64::from(geometry.first_data_block())) / per_group;
        let touched: BTreeSet<u64> =
            unneeded.iter().flat_map(|range| group_of(range.start)..=group_of(range.end - 1)).collect();
        // The superblock and the last group; descriptors that become lists of the resize inode, or that are cut.
        let others = 1 + ALLOCATE_CREDITS + geometry.descriptor_blocks();
        touched.len() as u32 * ALLOCATE_CREDITS + others + resize_inode.map_or(0, ResizeInode::credits)
    }
}

fn change_all(
    handle: &Handle<'_>,
    old: &Superblock,
    new: &Superblock,
    unneeded: &[Range<u64>],
    resize_inode: Option<ResizeInode>,
) -> Result<()> {
    let allocator = &handle.writer().allocator;
    let now = new.geometry();
    for range in unneeded {
        allocator.free_own(handle, FsBlock(range.start), range.end - range.start)?;
    }
    cut_descriptors(handle, old, new)?;
    if let Some(resize_inode) = resize_inode {
        resize_inode.shrink(handle, old, new)?;
    }
    let last = Group(now.groups() - 1);
    allocator.cut(handle, last, now.blocks_in(last))?;
    superblock::change(handle, |raw| switch::put_sizes(raw, new.raw()))?;
    handle.volume().grow(new.clone(), std::iter::empty());
    Ok(())
}

/// Clears descriptors of groups that go in the last block of them that stays. Blocks without others are not metadata any
/// more, unless the resize inode gets them.
fn cut_descriptors(handle: &Handle<'_>, old: &Superblock, new: &Superblock) -> Result<()> {
    let (before, now) = (old.geometry(), new.geometry());
    let last = now.descriptor_blocks() - 1;
    let kept = (now.groups() - last * now.descriptors_per_block()) as usize;
    let bytes = kept * usize::from(now.descriptor_bytes());
    handle.change(switch::home_of(old, last), Seal::Plain, |block| block[bytes..].fill(0))?;
    let is_reserved = new.features().compat.contains(Compat::RESIZE_INODE);
    for index in last + 1..before.descriptor_blocks() {
        let home = switch::home_of(old, index);
        if !is_reserved && home.0 < now.blocks() {
            handle.forget(home);
        }
    }
    Ok(())
}
