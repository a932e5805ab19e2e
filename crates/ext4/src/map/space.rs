//! Blocks for a file and its map, and the count of them in the inode.

use undercroft_vfs::Result;

use crate::alloc::Purpose;
use crate::inode::Inode;
use crate::map::run::Removed;
use crate::numbers::FsBlock;
use crate::transaction::Handle;
use crate::volume::Volume;

/// A block for a node of the map, or for another of the file's blocks that is metadata.
///
/// # Errors
/// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption; I/O failure.
pub(super) fn allocate_metadata(handle: &Handle<'_>, inode: &mut Inode, goal: FsBlock) -> Result<FsBlock> {
    let allocator = &handle.writer().allocator;
    let (block, _) = allocator.allocate(handle, goal, 1, Purpose::Metadata)?;
    count(handle.volume(), inode, 1);
    Ok(block)
}

/// Gives a block back that was allocated under the same handle and holds nothing yet.
pub(super) fn unallocate_metadata(handle: &Handle<'_>, inode: &mut Inode, block: FsBlock) -> Result<()> {
    take_out(handle, inode, block, 1, Removed::Data)
}

/// Frees a block of metadata.
pub(super) fn free_metadata(handle: &Handle<'_>, inode: &mut Inode, block: FsBlock) -> Result<()> {
    take_out(handle, inode, block, 1, Removed::Metadata)
}

/// Blocks that are out of the file's map.
pub(super) fn take_out(
    handle: &Handle<'_>,
    inode: &mut Inode,
    first: FsBlock,
    count: u64,
    removed: Removed,
) -> Result<()> {
    inode.sectors = inode.sectors.saturating_sub(sectors(handle.volume(), count));
    match removed {
        Removed::Kept => return Ok(()),
        Removed::Metadata => (first.0..first.0 + count).for_each(|block| handle.forget(FsBlock(block))),
        Removed::Data => {}
    }
    handle.writer().allocator.free(handle, first, count)
}

/// How many of `len` blocks from `first` on lie in no more groups than `groups`, which is lowered by those that they
/// lie in: freeing blocks changes so many bitmaps.
pub(super) fn in_groups(volume: &Volume, first: FsBlock, len: u64, groups: &mut u64) -> u64 {
    let geometry = volume.superblock().geometry();
    let per_group = u64::from(geometry.blocks_per_group());
    let into = first.0.saturating_sub(u64::from(geometry.first_data_block())) % per_group;
    let fit = len.min((*groups * per_group).saturating_sub(into));
    *groups -= (into + fit).div_ceil(per_group).min(*groups);
    fit
}

/// Counts blocks that the file has got.
pub(super) fn count(volume: &Volume, inode: &mut Inode, blocks: u64) {
    inode.sectors = inode.sectors.saturating_add(sectors(volume, blocks));
}

/// Where a file's first block is best.
pub(super) fn goal(handle: &Handle<'_>, inode: &Inode) -> FsBlock {
    handle.writer().allocator.goal_for(handle.volume(), inode.number, inode.kind)
}

/// How much blocks count for.
pub(super) fn sectors(volume: &Volume, blocks: u64) -> u64 {
    blocks << (volume.superblock().geometry().block_bits() - 9)
}
