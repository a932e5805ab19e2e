//! How large the filesystem becomes, and what its superblock says then.
//!
//! Decided as Linux decides it: groups stay as long as they are, and a last one that would be too short is left out.
//! Source: what xfs_growfs makes of images.

use std::mem::offset_of;

use undercroft_vfs::{Error, Result};

use crate::alloc::GROUPS_MAX;
use crate::format::geometry::AG_MIN_BLOCKS;
use crate::format::superblock::RawSuperblock;
use crate::format::{Geometry, Superblock};
use crate::mkfs::{Form, Group};
use crate::superblocks;
use crate::volume::Volume;

fn refuse<T>(message: String) -> Result<T> {
    Err(Error::Unsupported(message.into()))
}

/// The blocks of the larger filesystem; `None` when there is nothing to do.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) for a size that it cannot have; I/O failure.
pub(super) fn decide(volume: &Volume, size_bytes: Option<u64>) -> Result<Option<u64>> {
    let device_bytes = volume.device().refresh_size()?;
    let geometry = volume.geometry();
    let wanted = size_bytes.unwrap_or(device_bytes) >> geometry.block_log();
    if wanted > device_bytes >> geometry.block_log() {
        return refuse(format!(
            "{} has {device_bytes} bytes, too few for a filesystem of {}; make it larger first",
            volume.device().name(),
            wanted << geometry.block_log()
        ));
    }
    if wanted < geometry.blocks() {
        return refuse(format!(
            "the filesystem has {} bytes, and XFS cannot be made smaller",
            geometry.data_bytes()
        ));
    }
    let blocks = without_short_group(geometry, wanted);
    if blocks <= geometry.blocks() {
        return Ok(None);
    }
    let groups = groups_of(geometry, blocks);
    if groups > GROUPS_MAX.into() {
        return refuse(format!(
            "a filesystem of {} bytes would have {groups} allocation groups, and {GROUPS_MAX} are possible here",
            blocks << geometry.block_log()
        ));
    }
    Ok(Some(blocks))
}

/// Without a last group of fewer blocks than a group has at least.
fn without_short_group(geometry: &Geometry, blocks: u64) -> u64 {
    match blocks % u64::from(geometry.ag_blocks()) {
        rest if rest < AG_MIN_BLOCKS.into() => blocks - rest,
        _ => blocks,
    }
}

fn groups_of(geometry: &Geometry, blocks: u64) -> u64 {
    blocks.div_ceil(geometry.ag_blocks().into())
}

/// A filesystem as it is going to be: its superblock, and the sector of that.
pub(super) struct Larger {
    pub(super) superblock: Superblock,
    pub(super) sector: Vec<u8>,
}

impl Larger {
    /// The filesystem with `blocks`, which are more than it has.
    ///
    /// # Errors
    /// Corruption of the superblock; I/O failure.
    pub(super) fn of(volume: &Volume, blocks: u64) -> Result<Self> {
        let old = volume.superblock();
        let geometry = old.geometry();
        let groups = groups_of(geometry, blocks) as u32;
        let form = Form::of(old);
        let len = |group: u32| {
            let start = u64::from(group) * u64::from(geometry.ag_blocks());
            (blocks - start).min(geometry.ag_blocks().into()) as u32
        };
        let last = geometry.ag_count() - 1;
        let longer =
            u64::from(len(last)) - (geometry.blocks() - u64::from(last) * u64::from(geometry.ag_blocks()));
        let free = |group| u64::from(Group::unused(&form, group, len(group)).free_blocks());
        let free = longer + (last + 1..groups).map(free).sum::<u64>();
        let mut sector = superblocks::sector(volume)?;
        let counted = old.free_blocks().min(geometry.blocks()) + free;
        put(&mut sector, offset_of!(RawSuperblock, sb_dblocks), &blocks.to_be_bytes());
        put(&mut sector, offset_of!(RawSuperblock, sb_agcount), &groups.to_be_bytes());
        put(&mut sector, offset_of!(RawSuperblock, sb_fdblocks), &counted.to_be_bytes());
        superblocks::seal(&mut sector);
        Ok(Self { superblock: Superblock::from_sector(&sector)?, sector })
    }
}

fn put(sector: &mut [u8], at: usize, value: &[u8]) {
    sector[at..at + value.len()].copy_from_slice(value);
}
