//! Free and used space, counted as Linux counts it.
//!
//! Linux holds back eight blocks in each group for the trees of free space. The blocks of those trees beyond their
//! roots are taken off too once it has looked into the groups. It has after recovering a log, and where groups have trees
//! that space is reserved for: of free inodes, of reference counts, of the reverse map.

use undercroft_vfs::{Result, StatFs};

use crate::ag::Agf;
use crate::format::AgNumber;
use crate::volume::Volume;

/// Blocks that Linux holds back in each group.
const SET_ASIDE_BLOCKS: u64 = 8;

/// The largest inode number that Linux gives out.
const INO_MAX: u64 = (1 << 56) - 1;

/// The longest name in bytes.
pub(crate) const NAME_MAX_BYTES: u32 = 255;

/// `recovered` says that the log held changes.
pub(crate) fn statfs(volume: &Volume, recovered: bool) -> Result<StatFs> {
    let superblock = volume.superblock();
    let geometry = superblock.geometry();
    let log_blocks = if superblock.has_external_log() { 0 } else { u64::from(superblock.log_blocks()) };
    let mut unavailable = u64::from(geometry.ag_count()) * SET_ASIDE_BLOCKS;
    let features = superblock.features();
    if recovered || features.has_finobt() || features.has_reflink() || features.has_rmapbt() {
        for ag in geometry.ags() {
            // A damaged group does not keep the others from being counted.
            unavailable += free_space_tree_blocks(volume, ag).unwrap_or(0);
        }
    }
    let free = superblock.free_blocks().saturating_sub(unavailable);
    let (count, free_inodes) = (superblock.inodes(), superblock.free_inodes());
    let per_block = u64::from(geometry.inodes_per_block());
    let mut inodes = count.saturating_add(free.saturating_mul(per_block)).min(INO_MAX);
    if let Some(most) = most_inodes(volume) {
        inodes = inodes.min(most);
    }
    let inodes = inodes.max(count);
    let (high, low) = superblock.uuid().as_u64_pair();
    Ok(StatFs {
        block_bytes: geometry.block_bytes(),
        blocks: geometry.blocks().saturating_sub(log_blocks),
        blocks_free: free,
        blocks_available: free,
        inodes,
        inodes_free: inodes - count.saturating_sub(free_inodes).min(inodes),
        fsid: high.swap_bytes() ^ low.swap_bytes(),
        name_max_bytes: NAME_MAX_BYTES,
    })
}

/// Blocks of a group's trees of free space beyond their roots.
fn free_space_tree_blocks(volume: &Volume, ag: AgNumber) -> Result<u64> {
    let agf = Agf::read(volume, ag)?;
    let rmap = if volume.superblock().features().has_rmapbt() {
        agf.raw().agf_rmap_blocks.get().saturating_sub(1)
    } else {
        0
    };
    Ok(u64::from(agf.btree_blocks().saturating_sub(rmap)))
}

/// As many inodes as the part of the space that inodes may take holds, in whole chunks; `None` without such a bound.
fn most_inodes(volume: &Volume) -> Option<u64> {
    let geometry = volume.geometry();
    let percent = volume.superblock().raw().sb_imax_pct;
    if percent == 0 {
        return None;
    }
    let blocks = (u128::from(geometry.blocks()) * u128::from(percent) / 100) as u64;
    let chunk = u64::from(geometry.chunk_blocks());
    Some((blocks / chunk * chunk).saturating_mul(u64::from(geometry.inodes_per_block())))
}

/// The largest file in bytes: what Linux can count with its page cache's index.
pub(crate) const FILE_MAX_BYTES: u64 = i64::MAX as u64;
