//! Where each group keeps its bitmaps and its inode table.
//!
//! Every group that has one begins with its copy of the superblock and the group descriptors. With `flex_bg` the
//! block bitmaps of a set of groups lie together in its first group, then their inode bitmaps, then their inode
//! tables; without, each group has its own. What finds no room where it belongs goes wherever there is some.

use super::space::Space;
use crate::features::Incompat;
use crate::numbers::Group;
use crate::superblock::{Geometry, Superblock};
use undercroft_diskfs::mkfs::{MkfsError, refuse};

/// The first block of each structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inode_table: u64,
}

/// Blocks at the start of a group that hold superblock and descriptors.
pub(crate) fn base_blocks(geometry: &Geometry, group: Group) -> u64 {
    // With clusters, group 0 may begin at block 0 though blocks are 1 KiB: the boot block is in it then.
    let boot_block = geometry.block_bits() == 10 && geometry.first_data_block() == 0 && group == Group(0);
    u64::from(boot_block)
        + u64::from(geometry.has_superblock(group))
        + u64::from(geometry.descriptor_blocks_in(group))
}

/// Takes the room for the superblocks, descriptors, bitmaps and inode tables of the groups from `first` on. What lies
/// before these is taken.
pub(crate) fn place(
    superblock: &Superblock,
    space: &mut Space,
    first: Group,
) -> Result<Vec<Tables>, MkfsError> {
    let geometry = superblock.geometry();
    let groups = geometry.groups();
    space.take(0, geometry.group_start(first).0);
    for group in (first.0..groups).map(Group) {
        space.take(geometry.group_start(group).0, base_blocks(geometry, group));
    }
    let flexible = superblock.features().incompat.contains(Incompat::FLEX_BG);
    let together = superblock.groups_per_flex() as usize;
    let table_blocks = u64::from(geometry.inode_table_blocks());
    let mut tables =
        vec![Tables { block_bitmap: 0, inode_bitmap: 0, inode_table: 0 }; (groups - first.0) as usize];
    let mut left = &mut tables[..];
    while !left.is_empty() {
        // What is new of a set of groups that lie together.
        let number = groups - left.len() as u32;
        let in_set = (together - number as usize % together).min(left.len());
        let (set, rest) = left.split_at_mut(in_set);
        left = rest;
        let start = geometry.group_start(Group(number)).0;
        let limit = if flexible {
            geometry.blocks()
        } else {
            geometry.blocks().min(start + u64::from(geometry.blocks_per_group()))
        };
        let mut at = start;
        let mut next = |count: u64| {
            let first = space.find(at, limit, count).or_else(|| {
                let anywhere = if flexible { 0 } else { start };
                space.find(anywhere, limit, count)
            });
            let Some(first) = first else {
                return refuse(format!(
                    "{} inodes in a group leave no room for anything else; take fewer or make it larger",
                    geometry.inodes_per_group()
                ));
            };
            space.take(first, count);
            at = first + count;
            Ok(first)
        };
        for group in &mut *set {
            group.block_bitmap = next(1)?;
        }
        for group in &mut *set {
            group.inode_bitmap = next(1)?;
        }
        for group in set {
            group.inode_table = next(table_blocks)?;
        }
    }
    Ok(tables)
}
