//! How large the filesystem becomes, and what its superblock says then.
//!
//! Decided as resize2fs 1.47 decides it. Source: what dumpe2fs shows of what it makes.

use undercroft_vfs::{Error, Result};

use crate::error::corrupt;
use crate::features::{Compat, Incompat};
use crate::mkfs;
use crate::numbers::Group;
use crate::superblock::{self, Geometry, RawSuperblock, State, Superblock};
use crate::volume::Volume;

/// A last group with fewer blocks to spare is left out of the filesystem.
const LAST_GROUP_MIN_BLOCKS: u64 = 50;

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(message.into().into()))
}

/// The superblock of the larger filesystem; `None` when there is nothing to do.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) for a size that it cannot have; corruption.
pub(super) fn decide(
    volume: &Volume,
    old: &Superblock,
    size_bytes: Option<u64>,
) -> Result<Option<Superblock>> {
    if old.state().contains(State::ERRORS) {
        return refuse("the superblock says that the filesystem has errors; run e2fsck -f before it grows");
    }
    old.refuse_faults()?;
    let device_bytes = volume.device().refresh_size()?;
    let geometry = old.geometry();
    let block_bits = geometry.block_bits();
    let wanted = size_bytes.unwrap_or(device_bytes) >> block_bits;
    if wanted > device_bytes >> block_bits {
        return refuse(format!(
            "{} has {device_bytes} bytes, too few for a filesystem of {}; make it larger first",
            volume.device().name(),
            wanted << block_bits
        ));
    }
    if wanted < geometry.blocks() {
        return refuse(format!(
            "the filesystem has {} bytes; `undercroft resize` makes it smaller, while it is not mounted",
            geometry.blocks() << block_bits
        ));
    }
    let most = most_blocks(old);
    if size_bytes.is_some() && wanted > most.blocks {
        return refuse(format!(
            "the filesystem can have {} bytes at most, because {}",
            most.blocks << block_bits,
            most.reason
        ));
    }
    let mut blocks = wanted.min(most.blocks);
    loop {
        if blocks <= geometry.blocks() {
            return Ok(None);
        }
        let new = resized(old, blocks, device_bytes)?;
        let left_over = too_few_for_a_group(new.geometry());
        if left_over == 0 {
            return Ok(Some(new));
        }
        blocks -= left_over;
    }
}

/// Why the filesystem cannot be as large as its device.
pub(super) fn bound(volume: &Volume, old: &Superblock) -> Result<Option<&'static str>> {
    let device_blocks = volume.device().refresh_size()? >> old.geometry().block_bits();
    let most = most_blocks(old);
    Ok((device_blocks > most.blocks).then_some(most.reason))
}

/// A bound, and why.
struct Most {
    blocks: u64,
    reason: &'static str,
}

fn most_blocks(old: &Superblock) -> Most {
    let (geometry, features) = (old.geometry(), old.features());
    let narrow = u64::from(u32::MAX);
    let groups = u64::from(u32::MAX / geometry.inodes_per_group());
    let by_inodes = Most {
        blocks: u64::from(geometry.first_data_block()) + groups * u64::from(geometry.blocks_per_group()),
        reason: "its groups' inodes are counted in 32 bits",
    };
    let by_numbers = if !features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
        Most { blocks: narrow, reason: "it counts blocks in 32 bits; `resize2fs -b` adds the feature 64bit" }
    } else if features.compat.contains(Compat::RESIZE_INODE) {
        Most { blocks: narrow, reason: "its resize inode names blocks by 32 bits" }
    } else {
        return by_inodes;
    };
    if by_numbers.blocks < by_inodes.blocks { by_numbers } else { by_inodes }
}

/// The blocks of the last group, if they are too few for one.
pub(crate) fn too_few_for_a_group(geometry: &Geometry) -> u64 {
    let last = Group(geometry.groups() - 1);
    let here = u64::from(geometry.blocks_in(last));
    if here == u64::from(geometry.blocks_per_group()) {
        return 0;
    }
    let mut kept = 2 + u64::from(geometry.inode_table_blocks());
    if geometry.has_superblock(last) {
        kept += u64::from(1 + geometry.descriptor_blocks() + geometry.reserved_descriptor_blocks());
    }
    if here < kept + LAST_GROUP_MIN_BLOCKS { here } else { 0 }
}

/// The superblock's bytes with the counts of a filesystem of so many blocks, and how many groups it has, which must fit 32 bits.
/// Counts of what is free are left as they are.
pub(crate) fn counted(old: &Superblock, blocks: u64) -> (RawSuperblock, u32) {
    let geometry = old.geometry();
    let in_groups = blocks - u64::from(geometry.first_data_block());
    let groups = in_groups.div_ceil(u64::from(geometry.blocks_per_group())) as u32;
    let mut raw = old.raw().clone();
    raw.s_blocks_count_lo.set(blocks as u32);
    raw.s_blocks_count_hi.set((blocks >> 32) as u32);
    raw.s_inodes_count.set(groups * geometry.inodes_per_group());
    // Exact as far as a double is, as in resize2fs, whose number this is to be.
    let percent = geometry.reserved_blocks() as f64 * 100.0 / geometry.blocks() as f64;
    let reserved = (percent * blocks as f64 / 100.0) as u64;
    raw.s_r_blocks_count_lo.set(reserved as u32);
    raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
    (raw, groups)
}

/// The superblock with another number of blocks. Counts of what is free are left as they are.
fn resized(old: &Superblock, blocks: u64, device_bytes: u64) -> Result<Superblock> {
    // Groups fit: they were bounded by the count of inodes.
    let (mut raw, groups) = counted(old, blocks);
    place_descriptors(old, groups, &mut raw)?;
    seal(old, &mut raw);
    let new = Superblock::from_raw(raw, device_bytes)?;
    with_overhead(old, new, device_bytes)
}

/// Descriptors go into the reserved blocks, then into groups of their own.
fn place_descriptors(old: &Superblock, groups: u32, raw: &mut RawSuperblock) -> Result<()> {
    let geometry = old.geometry();
    let has_resize_inode = old.features().compat.contains(Compat::RESIZE_INODE);
    let has_meta_groups = old.features().incompat.contains(Incompat::META_BG);
    if has_meta_groups && has_resize_inode {
        return refuse("the filesystem has both features meta_bg and resize_inode; run e2fsck -f");
    }
    let (now, needed) = (geometry.descriptor_blocks(), groups.div_ceil(geometry.descriptors_per_block()));
    let reserved = geometry.reserved_descriptor_blocks();
    if has_meta_groups || needed == now {
        return Ok(());
    }
    if reserved > 0 && !has_resize_inode {
        let detail = format!("{reserved} blocks are reserved for descriptors, but there is no resize inode");
        return Err(corrupt("superblock", detail));
    }
    match (now + reserved).checked_sub(needed) {
        Some(left) => raw.s_reserved_gdt_blocks.set(left as u16),
        None => {
            raw.s_reserved_gdt_blocks.set(0);
            raw.s_first_meta_bg.set(now + reserved);
            let (compat, incompat) = (old.features().compat, old.features().incompat);
            raw.s_feature_compat.set((compat - Compat::RESIZE_INODE).bits());
            raw.s_feature_incompat.set((incompat | Incompat::META_BG).bits());
        }
    }
    Ok(())
}

/// Adds what the new groups keep for themselves to what statfs does not count, where the superblock says how much
/// that is.
fn with_overhead(old: &Superblock, new: Superblock, device_bytes: u64) -> Result<Superblock> {
    let overhead = u64::from(old.raw().s_overhead_clusters.get());
    if overhead == 0 {
        return Ok(new);
    }
    let geometry = new.geometry();
    let of_each = 2 + u64::from(geometry.inode_table_blocks());
    let added: u64 = (old.geometry().groups()..geometry.groups())
        .map(|group| of_each + mkfs::base_blocks(geometry, Group(group)))
        .sum();
    let mut raw = new.raw().clone();
    // A count that does not fit its 32 bits is left for Linux to work out.
    raw.s_overhead_clusters.set(u32::try_from(overhead + added).unwrap_or(0));
    seal(old, &mut raw);
    Superblock::from_raw(raw, device_bytes)
}

/// Completes the checksum of a superblock in memory.
pub(crate) fn seal(superblock: &Superblock, raw: &mut RawSuperblock) {
    if superblock.has_metadata_checksums() {
        superblock::seal_raw(raw);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{Device, MemoryDevice};

    use super::*;
    use crate::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions};

    #[test]
    fn a_device_that_is_too_large_is_told_with_the_reason() {
        let reason = "its resize inode names blocks by 32 bits";
        for (size, told) in [((4 << 40) - 1024, None), (4 << 40, Some(reason)), (5 << 40, Some(reason))] {
            let device: Device = Arc::new(MemoryDevice::new(size));
            let options = MkfsOptions {
                size_bytes: Some(8 << 20),
                block_bytes: Some(1024),
                ..MkfsOptions::new(Family::Ext4)
            };
            mkfs::mkfs(&*device, &options).unwrap();
            let ext4 = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
            assert_eq!(bound(ext4.volume(), &ext4.superblock().clone()).unwrap(), told, "{size}");
            ext4.close().unwrap();
        }
    }
}
