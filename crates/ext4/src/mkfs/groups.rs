//! Group descriptors and bitmaps of the new filesystem.
//!
//! Source: kernel documentation, sections "Block Group Descriptors", "Block and inode Bitmaps" and "Checksums".
//! Where descriptors have checksums, a group that holds nothing but its own superblock, descriptors, bitmaps and inode
//! table says so, and its bitmaps are not written: Linux computes their content. The last group's is always written,
//! because it ends in blocks that do not exist.

use undercroft_vfs::FileType;

use super::inode::NewInode;
use super::space::Space;
use super::tables::{Tables, base_blocks};
use super::writer::Planned;
use crate::group::{GroupDescriptor, GroupDetails, GroupFlags, are_checked, bitmap_checksum};
use crate::numbers::{FsBlock, Group};
use crate::superblock::Superblock;

/// What all groups come to.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) free_clusters: u64,
    pub(super) free_inodes: u32,
    /// Their descriptors.
    pub(super) details: Vec<GroupDetails>,
}

/// How many inodes, from the first on, are in use; whether inode tables read as zeroes where nothing was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeUse {
    pub(super) used: u32,
    pub(super) tables_are_zeroed: bool,
}

/// Describes groups from `first` on, and plans the bitmaps that must be written.
pub(super) fn describe(
    superblock: &Superblock,
    space: &Space,
    first: Group,
    tables: &[Tables],
    inodes: &[NewInode],
    inode_use: InodeUse,
    planned: &mut Planned,
) -> Totals {
    let geometry = superblock.geometry();
    let checked = are_checked(superblock);
    let per_group = geometry.inodes_per_group();
    let mut totals = Totals::default();
    for (number, own) in tables.iter().enumerate() {
        let group = Group(first.0 + number as u32);
        let blocks = GroupBlocks::look(superblock, space, group, own);
        let first_inode = group.0 * per_group;
        let used = inode_use.used.saturating_sub(first_inode).min(per_group);
        let directories = inodes.iter().filter(|inode| {
            let is_here = (first_inode + 1..=first_inode + per_group).contains(&inode.number);
            inode.kind == FileType::Directory && is_here
        });
        let mut details = GroupDetails {
            descriptor: GroupDescriptor {
                inode_table: FsBlock(own.inode_table),
                free_clusters: blocks.free_clusters,
                free_inodes: per_group - used,
                unused_inodes: per_group - used,
            },
            block_bitmap: FsBlock(own.block_bitmap),
            inode_bitmap: FsBlock(own.inode_bitmap),
            used_directories: directories.count() as u32,
            flags: GroupFlags::empty(),
            block_bitmap_checksum: 0,
            inode_bitmap_checksum: 0,
        };
        let is_last = group.0 + 1 == geometry.groups();
        if checked && blocks.holds_own_only && !is_last {
            details.flags |= GroupFlags::BLOCK_UNINIT;
        } else {
            let bitmap = blocks.bitmap(superblock);
            details.block_bitmap_checksum =
                bitmap_checksum(superblock, &bitmap, geometry.clusters_per_group());
            planned.write(own.block_bitmap, bitmap);
        }
        if checked && used == 0 {
            details.flags |= GroupFlags::INODE_UNINIT;
        } else {
            let mut bitmap = vec![0; geometry.block_bytes() as usize];
            set_bits(&mut bitmap, 0..used as usize);
            let end = bitmap.len() * 8;
            set_bits(&mut bitmap, per_group as usize..end);
            details.inode_bitmap_checksum = bitmap_checksum(superblock, &bitmap, per_group);
            planned.write(own.inode_bitmap, bitmap);
        }
        if inode_use.tables_are_zeroed {
            details.flags |= GroupFlags::INODE_ZEROED;
        }
        totals.free_clusters += u64::from(details.descriptor.free_clusters);
        totals.free_inodes += details.descriptor.free_inodes;
        totals.details.push(details);
    }
    totals
}

/// Describes groups from `first` on, of a filesystem that grows: nothing in them is in use.
pub(crate) fn describe_unused(
    superblock: &Superblock,
    space: &Space,
    first: Group,
    tables: &[Tables],
    tables_are_zeroed: bool,
    planned: &mut Planned,
) -> Vec<GroupDetails> {
    let inode_use = InodeUse { used: 0, tables_are_zeroed };
    describe(superblock, space, first, tables, &[], inode_use, planned).details
}

/// The bytes of the descriptors of groups from `first` on, one after the other.
pub(crate) fn encode(superblock: &Superblock, first: Group, details: &[GroupDetails]) -> Vec<u8> {
    let bytes_each = usize::from(superblock.geometry().descriptor_bytes());
    let mut bytes = vec![0; details.len() * bytes_each];
    for ((group, details), bytes) in (first.0..).zip(details).zip(bytes.chunks_exact_mut(bytes_each)) {
        details.put_new(superblock, Group(group), bytes);
    }
    bytes
}

/// The part of the space that is one group.
struct GroupBlocks {
    /// Clusters that are taken, as ranges counted from the group's start.
    taken: Vec<std::ops::Range<usize>>,
    clusters: usize,
    free_clusters: u32,
    /// Whether nothing is taken but for the group's own structures.
    holds_own_only: bool,
}

impl GroupBlocks {
    fn look(superblock: &Superblock, space: &Space, group: Group, own: &Tables) -> Self {
        let geometry = superblock.geometry();
        let start = geometry.group_start(group).0;
        let end = geometry.blocks().min(start + u64::from(geometry.blocks_per_group()));
        let per_cluster = u64::from(geometry.blocks_per_cluster());
        let (mut taken, mut taken_blocks, mut taken_clusters) = (Vec::new(), 0, 0);
        let mut next = 0;
        for run in space.taken_in(start..end) {
            taken_blocks += run.end - run.start;
            let first = ((run.start - start) / per_cluster).max(next);
            next = (run.end - start).div_ceil(per_cluster);
            taken_clusters += next - first;
            taken.push(first as usize..next as usize);
        }
        let table_blocks = u64::from(geometry.inode_table_blocks());
        let own_blocks: u64 = [(own.block_bitmap, 1), (own.inode_bitmap, 1), (own.inode_table, table_blocks)]
            .into_iter()
            .map(|(first, count)| (first + count).min(end).saturating_sub(first.max(start)))
            .sum();
        let clusters = (end - start).div_ceil(per_cluster);
        Self {
            taken,
            clusters: clusters as usize,
            free_clusters: (clusters - taken_clusters) as u32,
            holds_own_only: taken_blocks == base_blocks(geometry, group) + own_blocks,
        }
    }

    fn bitmap(&self, superblock: &Superblock) -> Vec<u8> {
        let mut bitmap = vec![0; superblock.geometry().block_bytes() as usize];
        for run in &self.taken {
            set_bits(&mut bitmap, run.clone());
        }
        let end = bitmap.len() * 8;
        set_bits(&mut bitmap, self.clusters..end);
        bitmap
    }
}

fn set_bits(bitmap: &mut [u8], range: std::ops::Range<usize>) {
    let mut bit = range.start;
    while bit < range.end {
        if bit.is_multiple_of(8) && range.end - bit >= 8 {
            let whole = (range.end - bit) / 8;
            bitmap[bit / 8..bit / 8 + whole].fill(0xFF);
            bit += whole * 8;
        } else {
            bitmap[bit / 8] |= 1 << (bit % 8);
            bit += 1;
        }
    }
}
