//! The transaction that makes the filesystem larger.

use std::ops::Range;

use undercroft_vfs::Result;

use super::resize_inode::ResizeInode;
use crate::alloc::ALLOCATE_CREDITS;
use crate::group::GroupDetails;
use crate::mkfs;
use crate::numbers::{FsBlock, Group};
use crate::superblock::{self, RawSuperblock, Superblock};
use crate::transaction::{Block, Handle, Seal};
use crate::volume::Volume;
use crate::writer::Mounted;

/// Blocks of descriptors that the transaction changes or makes: the one that the last old descriptor leaves room in,
/// and those that become descriptors behind the primary superblock.
fn descriptor_blocks(old: &Superblock, new: &Superblock) -> Range<u32> {
    let (before, now) = (old.geometry(), new.geometry());
    let first = before.groups() / before.descriptors_per_block();
    let end = now.descriptor_blocks_before_meta_groups().max(before.descriptor_blocks());
    first..end.min(now.descriptor_blocks())
}

/// Blocks of descriptors that lie in new groups.
fn meta_blocks(old: &Superblock, new: &Superblock) -> Range<u32> {
    let (before, now) = (old.geometry(), new.geometry());
    before.descriptor_blocks().max(now.first_meta_group().min(now.descriptor_blocks()))
        ..now.descriptor_blocks()
}

/// Blocks that the transaction changes at most.
pub(super) fn credits(old: &Superblock, new: &Superblock, resize_inode: Option<&ResizeInode>) -> u32 {
    // The superblock, the last old group, and the descriptor of the last new one.
    let others = 1 + ALLOCATE_CREDITS + 1;
    descriptor_blocks(old, new).len() as u32 + others + resize_inode.map_or(0, ResizeInode::credits)
}

/// The bytes of the new descriptors in a block of descriptors, and where they begin there.
fn new_in_block(
    old: &Superblock,
    new: &Superblock,
    details: &[GroupDetails],
    index: u32,
) -> (usize, Vec<u8>) {
    let (first_new, geometry) = (old.geometry().groups(), new.geometry());
    let per_block = geometry.descriptors_per_block();
    let first = (index * per_block).max(first_new);
    let end = ((index + 1) * per_block).min(geometry.groups());
    let details = &details[(first - first_new) as usize..(end - first_new) as usize];
    let (_, byte) = geometry.descriptor_location(Group(first));
    (byte, mkfs::encode(new, Group(first), details))
}

/// Writes blocks of descriptors that lie in new groups, where nothing leads yet.
///
/// # Errors
/// I/O failure.
pub(super) fn write_meta_groups(
    volume: &Volume,
    old: &Superblock,
    new: &Superblock,
    details: &[GroupDetails],
) -> Result<()> {
    let geometry = new.geometry();
    let block_bytes = geometry.block_bytes();
    for index in meta_blocks(old, new) {
        let (_, mut bytes) = new_in_block(old, new, details, index);
        bytes.resize(block_bytes as usize, 0);
        let (home, _) = geometry.descriptor_location(Group(index * geometry.descriptors_per_block()));
        volume.device().write_at(home.0 * u64::from(block_bytes), &bytes)?;
    }
    Ok(())
}

/// Changes everything that leads to the new blocks, and lets them be used.
///
/// # Errors
/// Corruption; I/O failure. If something had changed by then, the changes have ended.
pub(super) fn switch(
    volume: &Mounted,
    old: &Superblock,
    new: &Superblock,
    details: &[GroupDetails],
    resize_inode: Option<ResizeInode>,
    credits: u32,
) -> Result<()> {
    let handle = volume.start(credits)?;
    // What must be read is read, and stays, before the first change.
    let _held = read_first(&handle, old, new)?;
    let changed = change_all(&handle, old, new, details, resize_inode);
    handle.or_abort("growing the filesystem failed half way", changed)
}

fn read_first(handle: &Handle<'_>, old: &Superblock, new: &Superblock) -> Result<Vec<Block>> {
    let volume = handle.volume();
    handle.writer().allocator.check_last_group(volume)?;
    let geometry = old.geometry();
    let first_in = |index: u32| Group(index * geometry.descriptors_per_block());
    let mut homes = vec![superblock::home(volume)];
    homes.extend(
        descriptor_blocks(old, new)
            .filter(|&index| index < geometry.descriptor_blocks())
            .map(|index| geometry.descriptor_location(first_in(index)).0),
    );
    homes.into_iter().map(|home| volume.block(home)).collect()
}

fn change_all(
    handle: &Handle<'_>,
    old: &Superblock,
    new: &Superblock,
    details: &[GroupDetails],
    resize_inode: Option<ResizeInode>,
) -> Result<()> {
    let volume = handle.volume();
    let allocator = &handle.writer().allocator;
    let (before, now) = (old.geometry(), new.geometry());
    superblock::change(handle, |raw| put_sizes(raw, new.raw()))?;
    if let Some(resize_inode) = resize_inode {
        resize_inode.change(handle, old, new)?;
    }
    if !details.is_empty() {
        for index in descriptor_blocks(old, new) {
            let (byte, bytes) = new_in_block(old, new, details, index);
            let (home, _) = now.descriptor_location(Group(index * now.descriptors_per_block()));
            let put = |block: &mut [u8]| block[byte..byte + bytes.len()].copy_from_slice(&bytes);
            if index < before.descriptor_blocks() {
                handle.change(home, Seal::Plain, put)?;
            } else {
                handle.make(home, Seal::Plain, put)?;
            }
        }
        allocator.add_closed(new, details);
    }
    volume.grow(new.clone(), details.iter().map(|details| details.descriptor.inode_table));
    if !details.is_empty() {
        allocator.open_groups(handle, Group(before.groups()), details)?;
    }
    allocator.lengthen_group(handle, Group(before.groups() - 1))?;
    allocator.hold_back(volume);
    Ok(())
}

/// Takes over what the superblock of another size says otherwise, but for what is free.
pub(crate) fn put_sizes(raw: &mut RawSuperblock, new: &RawSuperblock) {
    raw.s_blocks_count_lo = new.s_blocks_count_lo;
    raw.s_blocks_count_hi = new.s_blocks_count_hi;
    raw.s_r_blocks_count_lo = new.s_r_blocks_count_lo;
    raw.s_r_blocks_count_hi = new.s_r_blocks_count_hi;
    raw.s_inodes_count = new.s_inodes_count;
    raw.s_reserved_gdt_blocks = new.s_reserved_gdt_blocks;
    raw.s_first_meta_bg = new.s_first_meta_bg;
    raw.s_overhead_clusters = new.s_overhead_clusters;
    raw.s_feature_compat = new.s_feature_compat;
    raw.s_feature_incompat = new.s_feature_incompat;
}

/// The block that holds the descriptors numbered `index` of their blocks.
pub(crate) fn home_of(superblock: &Superblock, index: u32) -> FsBlock {
    let geometry = superblock.geometry();
    geometry.descriptor_location(Group(index * geometry.descriptors_per_block())).0
}
