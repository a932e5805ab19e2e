//! How many blocks a group keeps for its own trees, and how many one change of them takes at most.

use crate::btree::{BySize, BySpace, Finobt, RefcountBt, RmapBt, most_blocks, usual_levels};
use crate::format::AgNumber;
use crate::format::geometry::CHUNK_INODES;
use crate::volume::Volume;

/// Blocks that are set aside in each group for trees of free space that grow while others are taken.
const SPARE_BLOCKS: u32 = 8;

/// What is set aside in a group.
#[derive(Debug)]
pub(super) struct SetAside {
    /// Blocks that the free list may have to have.
    pub(super) list: u32,
    /// Blocks that trees may have; zero for those that the filesystem lacks.
    pub(super) refcount: u32,
    pub(super) rmap: u32,
    pub(super) finobt: u32,
    /// Blocks of the trees of inodes. Counted here, because not each filesystem counts them in its headers; then from the
    /// fewest that they can be.
    pub(super) agi_iblocks: u32,
    pub(super) agi_fblocks: u32,
}

impl SetAside {
    pub(super) fn new(volume: &Volume, number: AgNumber, agi: &crate::ag::agi::RawAgi) -> Self {
        let (features, geometry) = (volume.superblock().features(), volume.geometry());
        let blocks = recorded_blocks(volume, number);
        let narrow = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX);
        let when = |has: bool, blocks: u64| if has { narrow(blocks) } else { 0 };
        let rmap = most_blocks::<RmapBt>(geometry, blocks).max(blocks / 100);
        let chunks = (blocks << geometry.inodes_per_block_log()) / u64::from(CHUNK_INODES);
        let counted = features.has_inode_tree_counts();
        Self {
            list: list_blocks(volume, number),
            refcount: when(features.has_reflink(), most_blocks::<RefcountBt>(geometry, blocks)),
            rmap: when(features.has_rmapbt(), rmap),
            finobt: when(features.has_finobt(), most_blocks::<Finobt>(geometry, chunks)),
            agi_iblocks: if counted { agi.agi_iblocks.get() } else { agi.agi_level.get() },
            agi_fblocks: if counted { agi.agi_fblocks.get() } else { agi.agi_free_level.get() },
        }
    }

    /// The same for a group whose trees have as many blocks as were counted before.
    pub(super) fn with_trees_of(self, before: &Self) -> Self {
        Self { agi_iblocks: before.agi_iblocks, agi_fblocks: before.agi_fblocks, ..self }
    }
}

/// Blocks of a group that its trees may have records of, as Linux counts them: all but those of the log, which stay the
/// log's.
fn recorded_blocks(volume: &Volume, number: AgNumber) -> u64 {
    let (superblock, geometry) = (volume.superblock(), volume.geometry());
    let has_log = superblock
        .log_start()
        .and_then(|start| geometry.split(start))
        .is_some_and(|(group, _)| group == number);
    let log = if has_log { superblock.log_blocks() } else { 0 };
    u64::from(geometry.ag_len(number).saturating_sub(log))
}

/// Blocks that the free list of a group may have to have, and some to spare.
fn list_blocks(volume: &Volume, number: AgNumber) -> u32 {
    let (features, geometry) = (volume.superblock().features(), volume.geometry());
    let blocks = u64::from(geometry.ag_len(number));
    let levels = |levels: u8| 2 * u32::from(levels);
    levels(usual_levels::<BySpace>(geometry, blocks))
        + levels(usual_levels::<BySize>(geometry, blocks))
        + if features.has_rmapbt() { levels(usual_levels::<RmapBt>(geometry, blocks)) } else { 0 }
        + SPARE_BLOCKS
}

/// Blocks that are set aside in all groups for their free lists.
pub(crate) fn all_list_blocks(volume: &Volume) -> u64 {
    let geometry = volume.geometry();
    let list = |number: u32| u64::from(list_blocks(volume, AgNumber(number)));
    // All groups but the last are alike.
    match geometry.ag_count() {
        0 => 0,
        count => list(0) * u64::from(count - 1) + list(count - 1),
    }
}

/// What [`Allocator::extent_credits`](super::Allocator::extent_credits) says for a volume: three headers, and for each
/// tree the way down, a block beside each one on it, and a new root.
pub(crate) fn extent_credits(volume: &Volume) -> u32 {
    let (features, geometry) = (volume.superblock().features(), volume.geometry());
    let blocks = u64::from(geometry.ag_blocks());
    let tree = |levels: u8| 2 * u32::from(levels) + 1;
    let when = |has: bool, levels: u8| if has { tree(levels) } else { 0 };
    3 + tree(usual_levels::<BySpace>(geometry, blocks))
        + tree(usual_levels::<BySize>(geometry, blocks))
        + when(features.has_rmapbt(), usual_levels::<RmapBt>(geometry, blocks))
        + when(features.has_reflink(), usual_levels::<RefcountBt>(geometry, blocks))
}
