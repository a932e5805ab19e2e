//! How small the filesystem becomes, and what its superblock says then.
//!
//! What files have is counted, and what groups keep for themselves. The estimates leave [some room](SLACK) for maps of
//! files that get more pieces where they move to, unless that room takes a whole group more. Reserved descriptors are counted
//! as resize2fs 1.47 counts them.

use std::ops::Range;

use undercroft_vfs::{Error, Result};

use crate::error::corrupt;
use crate::features::{Compat, Incompat};
use crate::group::GroupDetails;
use crate::grow::size::{counted, seal, too_few_for_a_group};
use crate::mkfs;
use crate::numbers::Group;
use crate::superblock::{Geometry, Superblock};
use crate::volume::Volume;

/// One block of room for so many in use, and some more: one for [fewer](SLACK_OF_FEW) within bounds.
const SLACK: u64 = 512;
const SLACK_OF_FEW: u64 = 64;
const SLACK_MORE: std::ops::RangeInclusive<u64> = 6..=24;
/// As in a filesystem that grows.
const LAST_GROUP_MIN_BLOCKS: u64 = 50;

/// The fewest blocks that a filesystem can have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    /// Those to try first: with as much room for maps as there is in the last group.
    pub(super) blocks: u64,
    /// With room for maps, which may be needed: the same, or more by a good part of a group.
    pub(super) with_room: u64,
}

/// What is in use.
#[derive(Clone)]
pub(super) struct Usage {
    /// Blocks of files, the journal among them, and blocks that must stay free for their maps.
    content: u64,
    slack: u64,
    /// Inodes, reserved ones among them.
    inodes: u32,
    /// Where groups keep their structures, by group.
    structures: Vec<[Range<u64>; 4]>,
}

impl Usage {
    /// Counts what is in use.
    ///
    /// # Errors
    /// Corruption of the descriptors; I/O failure.
    pub(super) fn read(volume: &Volume) -> Result<Self> {
        let geometry = volume.superblock().geometry();
        let table = u64::from(geometry.inode_table_blocks());
        let (mut used, mut inodes, mut own) = (0, 0, 0);
        let mut structures = Vec::with_capacity(geometry.groups() as usize);
        for group in (0..geometry.groups()).map(Group) {
            let details = GroupDetails::read_on_disk(volume, group)?;
            let (start, table_start) = (geometry.group_start(group).0, details.descriptor.inode_table.0);
            let free = u64::from(details.descriptor.free_clusters);
            used += u64::from(geometry.blocks_in(group)).saturating_sub(free);
            inodes += geometry.inodes_per_group().saturating_sub(details.descriptor.free_inodes);
            own += own_blocks(geometry, group);
            structures.push([
                start..start + mkfs::base_blocks(geometry, group),
                details.block_bitmap.0..details.block_bitmap.0 + 1,
                details.inode_bitmap.0..details.inode_bitmap.0 + 1,
                table_start..table_start + table,
            ]);
        }
        let content = used.checked_sub(own).ok_or_else(|| {
            corrupt(
                "group descriptors",
                format!("{used} blocks are in use, and the groups keep {own} themselves"),
            )
        })?;
        let more = (content / SLACK_OF_FEW).clamp(*SLACK_MORE.start(), *SLACK_MORE.end());
        Ok(Self { content, slack: content / SLACK + more, inodes, structures })
    }

    /// The same without room for maps.
    pub(super) fn without_room(self) -> Self {
        Self { slack: 0, ..self }
    }

    /// The fewest blocks that the filesystem can have, after as many passes as it takes.
    ///
    /// # Errors
    /// Corruption.
    pub(super) fn minimum(&self, old: &Superblock) -> Result<Least> {
        let with_room = self.fewest(old)?;
        let without = self.clone().without_room().fewest(old)?;
        if without + 2 * self.slack >= with_room {
            return Ok(Least { blocks: with_room, with_room });
        }
        let geometry = old.geometry();
        let (first, per_group) =
            (u64::from(geometry.first_data_block()), u64::from(geometry.blocks_per_group()));
        let group_end = first + (without - first).next_multiple_of(per_group);
        Ok(Least { blocks: group_end.min(without + self.slack), with_room })
    }

    fn fewest(&self, old: &Superblock) -> Result<u64> {
        let first = u64::from(old.geometry().first_data_block());
        let ideal = self.least(old, |geometry| {
            let own: u64 = (0..geometry.groups()).map(|group| own_blocks(geometry, Group(group))).sum();
            first + own + self.content + self.slack
        })?;
        let mut blocks = old.geometry().blocks();
        while blocks > ideal {
            let groups = smaller(old, blocks)?.geometry().groups();
            let next = self.reachable_from(old, ideal, groups)?;
            if next >= blocks {
                break;
            }
            blocks = next;
        }
        Ok(blocks)
    }

    /// The fewest blocks, `wanted` at least, that what is in use fits into as long as the structures of all groups are
    /// where they are now.
    ///
    /// # Errors
    /// Corruption.
    pub(super) fn reachable(&self, old: &Superblock, wanted: u64) -> Result<u64> {
        self.reachable_from(old, wanted, old.geometry().groups())
    }

    /// The same when there are only so many groups any more.
    fn reachable_from(&self, old: &Superblock, wanted: u64, groups: u32) -> Result<u64> {
        let first = u64::from(old.geometry().first_data_block());
        let structures = &self.structures[..groups as usize];
        let is_enough = |blocks: u64| {
            let within = |range: &Range<u64>| blocks.min(range.end).saturating_sub(range.start);
            let own: u64 = structures.iter().flatten().map(within).sum();
            (blocks - first).saturating_sub(own) >= self.content + self.slack
        };
        let (mut low, mut high) = (first, old.geometry().blocks());
        while low < high {
            let middle = low.midpoint(high);
            if is_enough(middle) { high = middle } else { low = middle + 1 }
        }
        self.least(old, |_| low.max(wanted))
    }

    /// The least number of blocks with room for what is in use, of which `needed` says how many blocks it takes with so
    /// many groups; as many as there are if no smaller number is possible. A group that stays keeps its structures before
    /// the end, and the last is not too small.
    fn least(&self, old: &Superblock, needed: impl Fn(&Geometry) -> u64) -> Result<u64> {
        let geometry = old.geometry();
        let per_group = u64::from(geometry.blocks_per_group());
        // Each group keeps its bitmaps and its table at least.
        let usable = per_group.saturating_sub(2 + u64::from(geometry.inode_table_blocks())).max(1);
        let for_content =
            u32::try_from((self.content / usable).min(u64::from(geometry.groups()))).unwrap_or(0);
        let for_inodes = self.inodes.div_ceil(geometry.inodes_per_group());
        let mut structures_end = 0;
        for group in 0..geometry.groups() {
            let start = geometry.group_start(Group(group)).0;
            let end = (start + per_group).min(geometry.blocks());
            structures_end =
                self.structures[group as usize].iter().map(|range| range.end).fold(structures_end, u64::max);
            if group + 1 < for_inodes.max(for_content) {
                continue;
            }
            let new = smaller(old, end)?;
            let last_full = (start + least_in_group(new.geometry(), Group(group))).min(start + per_group);
            let blocks = needed(new.geometry()).max(structures_end).max(last_full);
            if blocks <= end {
                return Ok(blocks);
            }
        }
        Ok(geometry.blocks())
    }

    /// Whether no group that stays has a structure past the end, and the inodes in use fit.
    pub(super) fn fits(&self, new: &Geometry) -> bool {
        let mut kept = self.structures[..new.groups() as usize].iter().flatten();
        new.inodes() >= self.inodes && kept.all(|range| range.end <= new.blocks())
    }
}

/// The least blocks of a last group that is not full.
fn least_in_group(geometry: &Geometry, group: Group) -> u64 {
    own_blocks(geometry, group) + LAST_GROUP_MIN_BLOCKS
}

/// Blocks that a group keeps for itself, wherever they lie.
fn own_blocks(geometry: &Geometry, group: Group) -> u64 {
    2 + u64::from(geometry.inode_table_blocks()) + mkfs::base_blocks(geometry, group)
}

/// The number of blocks for a filesystem that is to have `wanted`: fewer where the last group would have no room for more
/// than its own structures, as resize2fs has it.
///
/// # Errors
/// Corruption.
pub(super) fn rounded(old: &Superblock, wanted: u64) -> Result<u64> {
    let mut blocks = wanted;
    loop {
        if blocks <= u64::from(old.geometry().first_data_block()) + LAST_GROUP_MIN_BLOCKS {
            return Err(Error::NoSpace);
        }
        match too_few_for_a_group(smaller(old, blocks)?.geometry()) {
            0 => return Ok(blocks),
            left_over => blocks -= left_over,
        }
    }
}

/// The superblock with fewer blocks. Counts of what is free are left as they are.
///
/// # Errors
/// Corruption.
pub(super) fn smaller(old: &Superblock, blocks: u64) -> Result<Superblock> {
    let geometry = old.geometry();
    // Groups fit: there were more.
    let (mut raw, groups) = counted(old, blocks);
    let needed = groups.div_ceil(geometry.descriptors_per_block());
    if old.features().compat.contains(Compat::RESIZE_INODE) && groups != geometry.groups() {
        let all = geometry.descriptor_blocks() + geometry.reserved_descriptor_blocks();
        raw.s_reserved_gdt_blocks.set((all - needed).min(geometry.block_bytes() / 4) as u16);
    }
    if old.features().incompat.contains(Incompat::META_BG) {
        raw.s_first_meta_bg.set(geometry.first_meta_group().min(needed));
    }
    // Left for Linux to work out.
    raw.s_overhead_clusters.set(0);
    seal(old, &mut raw);
    Superblock::from_raw(raw, u64::MAX)
}
