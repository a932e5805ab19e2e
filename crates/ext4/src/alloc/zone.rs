//! Where the filesystem keeps itself: superblocks, descriptors, bitmaps, inode tables and the journal. Such a
//! block is never given out and never freed, whatever a damaged map or bitmap says. Each group keeps its part of the
//! zone.

use std::ops::Range;

use undercroft_vfs::Result;

use crate::group::GroupDetails;
use crate::inode::{Inode, NamedBy};
use crate::map;
use crate::numbers::Group;
use crate::superblock::Geometry;
use crate::volume::Volume;

/// The blocks that are never given out: ranges that rise and do not touch.
#[derive(Debug, Default)]
pub(super) struct Zone(Box<[Range<u64>]>);

impl Zone {
    /// What the descriptors of all groups and the journal's map say.
    pub(super) fn new(volume: &Volume, descriptors: &[GroupDetails]) -> Result<Self> {
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let mut ranges = Self::of_groups(geometry, Group(0), descriptors);
        if let Some(journal) = superblock.journal_inode() {
            let inode = Inode::read_own(volume, journal, NamedBy::SuperblockAsJournal)?;
            let blocks = inode.size_bytes >> geometry.block_bits();
            let pieces = map::collect_whole(volume, &inode, blocks)?;
            ranges.extend(pieces.into_iter().map(|(_, first, count)| first.0..first.0 + count));
        }
        Ok(Self::of(ranges))
    }

    /// What the descriptors of groups from `first` on say, which hold no journal.
    pub(super) fn of_new(geometry: &Geometry, first: Group, descriptors: &[GroupDetails]) -> Self {
        Self::of(Self::of_groups(geometry, first, descriptors))
    }

    fn of_groups(geometry: &Geometry, first: Group, descriptors: &[GroupDetails]) -> Vec<Range<u64>> {
        let table = u64::from(geometry.inode_table_blocks());
        let mut ranges = Vec::new();
        for (group, details) in (first.0..).map(Group).zip(descriptors) {
            let start = geometry.group_start(group).0;
            let table_start = details.descriptor.inode_table.0;
            let fixed =
                u64::from(geometry.has_superblock(group)) + u64::from(geometry.descriptor_blocks_in(group));
            ranges.extend([
                start..start + fixed,
                details.block_bitmap.0..details.block_bitmap.0 + 1,
                details.inode_bitmap.0..details.inode_bitmap.0 + 1,
                table_start..table_start + table,
            ]);
        }
        ranges
    }

    fn of(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.retain(|range| range.start < range.end);
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self(merged.into())
    }

    /// The parts of `range` that are in the zone.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.0.partition_point(|known| known.end <= range.start);
        self.0[first..]
            .iter()
            .take_while(move |known| known.start < range.end)
            .map(move |known| known.start.max(range.start)..known.end.min(range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_and_cut_to_what_is_asked_for() {
        let zone = Zone::of(vec![40..50, 5..5, 10..12, 12..20, 45..47, 60..61]);
        assert_eq!(*zone.0, [10..20, 40..50, 60..61]);
        let within = |range| zone.within(range).collect::<Vec<_>>();
        assert_eq!(within(0..100), [10..20, 40..50, 60..61]);
        assert_eq!(within(15..45), [15..20, 40..45]);
        assert_eq!(within(20..40), []);
        assert_eq!([19..20, 60..70, 61..70].map(|range| within(range).len()), [1, 1, 0]);
    }
}
