//! Free and used space, counted as Linux counts it.

use undercroft_vfs::{Error, Result, StatFs};

use crate::dir;
use crate::group::GroupDescriptor;
use crate::inode::{Inode, NamedBy};
use crate::numbers::Group;
use crate::volume::Volume;
use crate::writer::Mounted;

/// Above this many groups (128 TiB with blocks of 4 KiB) the superblock's counts must do: they may be a
/// little old, but a hostile superblock cannot make us read descriptors for hours.
const GROUPS_COUNTED_ONE_BY_ONE: u32 = 1 << 20;

pub(crate) fn statfs(volume: &Mounted) -> Result<StatFs> {
    let superblock = volume.superblock();
    let geometry = superblock.geometry();
    let per_cluster = u64::from(geometry.blocks_per_cluster());
    let (free_clusters, free_inodes) = match volume.writer() {
        Ok(writer) => (writer.allocator.free_blocks(), writer.allocator.free_inodes()),
        Err(_) => free_on_disk(volume)?,
    };
    let blocks = geometry.blocks().saturating_sub(overhead_blocks(volume)?);
    let blocks_free = free_clusters.saturating_mul(per_cluster).min(blocks);
    let kept = geometry.reserved_blocks() + superblock.kept_for_maps() * per_cluster;
    let (high, low) = superblock.uuid().as_u64_pair();
    Ok(StatFs {
        block_bytes: geometry.block_bytes(),
        blocks,
        blocks_free,
        blocks_available: blocks_free.saturating_sub(kept),
        inodes: u64::from(geometry.inodes()),
        inodes_free: free_inodes.min(u64::from(geometry.inodes())),
        fsid: high.swap_bytes() ^ low.swap_bytes(),
        name_max_bytes: dir::NAME_MAX_BYTES as u32,
    })
}

/// Free clusters and inodes.
fn free_on_disk(volume: &Volume) -> Result<(u64, u64)> {
    let geometry = volume.superblock().geometry();
    let as_noted = || {
        let raw = volume.superblock().raw();
        let high = u64::from(raw.s_free_blocks_count_hi.get()) << 32;
        (u64::from(raw.s_free_blocks_count_lo.get()) | high, u64::from(raw.s_free_inodes_count.get()))
    };
    if geometry.groups() > GROUPS_COUNTED_ONE_BY_ONE {
        return Ok(as_noted());
    }
    let (mut free_clusters, mut free_inodes) = (0, 0);
    for group in (0..geometry.groups()).map(Group) {
        let descriptor = match GroupDescriptor::read(volume, group) {
            Ok(descriptor) => descriptor,
            // It may lie past the end of a device that is cut short.
            Err(Error::Io(_)) => return Ok(as_noted()),
            Err(error) => return Err(error),
        };
        free_clusters += u64::from(descriptor.free_clusters);
        free_inodes += u64::from(descriptor.free_inodes);
    }
    Ok((free_clusters, free_inodes))
}

/// Blocks that hold the filesystem itself: superblocks, descriptors, bitmaps, inode tables, the journal.
fn overhead_blocks(volume: &Volume) -> Result<u64> {
    let superblock = volume.superblock();
    let geometry = superblock.geometry();
    let stored = u64::from(superblock.raw().s_overhead_clusters.get());
    if stored != 0 {
        return Ok(stored * u64::from(geometry.blocks_per_cluster()));
    }
    let bitmaps_and_table = 2 + u64::from(geometry.inode_table_blocks());
    let mut overhead = u64::from(geometry.first_data_block());
    for group in (0..geometry.groups().min(GROUPS_COUNTED_ONE_BY_ONE)).map(Group) {
        overhead += bitmaps_and_table
            + u64::from(geometry.has_superblock(group))
            + u64::from(geometry.descriptor_blocks_in(group));
    }
    if let Some(journal) = superblock.journal_inode() {
        overhead += Inode::read_own(volume, journal, NamedBy::SuperblockAsJournal)?.size_bytes
            >> geometry.block_bits();
    }
    Ok(overhead)
}
