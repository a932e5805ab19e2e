//! What is not in the log: the superblock's counters, and the lists of unlinked inodes.
//!
//! With lazy counters the superblock is right after an unmount only; otherwise free space and inodes are counted from
//! the headers of the allocation groups, as Linux does it.

use std::collections::HashSet;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_vfs::{Error, Ino, Result};

use super::buffer::{INODE_MAGIC, NEXT_UNLINKED};
use super::format::{be16, be32};
use super::freed_by_recovery::FreedByRecovery;
use crate::ag::{Agf, Agi};
use crate::format::{AgIno, AgNumber, Superblock, crc};
use crate::volume::Volume;

/// Unlinked inodes that are listed, at most; they take about 16 MiB.
const MAX_UNLINKED: usize = 1 << 20;

/// Where the superblock has its counters: inodes, free inodes, free blocks.
const COUNTERS: usize = 128;

/// Inodes that have no name and were in use, as far as their lists lead, and the number of lists that are broken: they
/// lead to something else than an inode of their group, or to an inode for the second time.
///
/// Linux empties a broken list and leaves the rest of it to xfs_repair. An inode header that cannot be validated counts
/// as one broken list.
///
/// # Errors
/// `Io`.
pub(super) fn unlinked(volume: &Volume) -> Result<(Vec<Ino>, u64)> {
    let geometry = volume.geometry();
    let (mut found, mut broken) = (Vec::new(), 0);
    for ag in geometry.ags() {
        let agi = match Agi::read(volume, ag) {
            Ok(agi) => agi,
            Err(Error::Corrupt(_)) => {
                broken += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut seen = HashSet::new();
        for (_, first) in agi.unlinked() {
            let mut next = first;
            while next != AgIno::NULL {
                let after = match found.len() < MAX_UNLINKED && seen.insert(next.0) {
                    true => next_unlinked(volume, ag, next)?,
                    false => None,
                };
                let Some(after) = after else {
                    broken += 1;
                    break;
                };
                found.extend(geometry.join_ino(ag, next));
                next = after;
            }
        }
    }
    Ok((found, broken))
}

/// The inode after an unlinked one; `None` where no inode is.
fn next_unlinked(volume: &Volume, ag: AgNumber, at: AgIno) -> Result<Option<AgIno>> {
    let geometry = volume.geometry();
    let place = geometry.join_ino(ag, at).and_then(|ino| geometry.inode_place(ino));
    let place = place.and_then(|(block, at)| Some(geometry.byte(block)? + at as u64));
    let Some(place) = place else { return Ok(None) };
    let mut core = [0; NEXT_UNLINKED + 4];
    volume.device().read_at(place, &mut core)?;
    Ok((be16(&core, 0) == INODE_MAGIC).then(|| AgIno(be32(&core, NEXT_UNLINKED))))
}

/// Counts free space and inodes anew, where the superblock's counters are lazy, adds what is `given` back, and stores both
/// in the superblock. Sums that cannot be are not taken; where a group's header is damaged, or all of them cannot be, the
/// counters stay as they are.
///
/// # Errors
/// `Io`.
pub(super) fn count(volume: &Volume, given: FreedByRecovery) -> Result<Superblock> {
    let (superblock, geometry) = (volume.superblock(), volume.geometry());
    let possible = |[inodes, free_inodes, free_blocks]: &[u64; 3]| {
        *free_blocks <= geometry.blocks() && free_inodes <= inodes
    };
    let stored = [superblock.inodes(), superblock.free_inodes(), superblock.free_blocks()];
    let counters = match counters_of_groups(volume) {
        Ok(counters) if superblock.features().has_lazy_counters() && possible(&counters) => counters,
        Ok(_) | Err(Error::Corrupt(_)) => stored,
        Err(error) => return Err(error),
    };
    let sums = [
        counters[0].saturating_sub(given.chunk_inodes),
        counters[1].saturating_add(given.inodes).saturating_sub(given.chunk_inodes),
        counters[2].saturating_add(given.blocks),
    ];
    // The freed space is an estimate: damaged inodes may claim more than there is.
    let counters = if possible(&sums) { sums } else { counters };
    store(volume, counters)
}

/// Counts free space and inodes anew, from the headers of groups as the device has them, and stores them in the
/// superblock: for a filesystem that is being closed. Not durable on return.
///
/// # Errors
/// Corruption of a group's header; I/O failure.
pub(crate) fn store_anew(device: &Device, superblock: &Superblock) -> Result<()> {
    // Blocks in the cache of the filesystem in use are not sealed.
    let volume = Volume::new(Arc::clone(device), superblock.clone(), super::CACHE_BYTES);
    store(&volume, counters_of_groups(&volume)?).map(drop)
}

fn store(volume: &Volume, counters: [u64; 3]) -> Result<Superblock> {
    let mut sector = vec![0; volume.geometry().sector_bytes() as usize];
    volume.device().read_at(0, &mut sector)?;
    for (index, counter) in counters.into_iter().enumerate() {
        sector[COUNTERS + index * 8..][..8].copy_from_slice(&counter.to_be_bytes());
    }
    if volume.superblock().features().has_crc() {
        crc::seal(&mut sector, crate::format::superblock::CRC_OFFSET);
    }
    volume.device().write_at(0, &sector)?;
    Superblock::from_sector(&sector)
}

/// Inodes, free inodes and free blocks, as the groups count them.
fn counters_of_groups(volume: &Volume) -> Result<[u64; 3]> {
    let mut counters = [0; 3];
    for ag in volume.geometry().ags() {
        let (agf, agi) = (Agf::read(volume, ag)?, Agi::read(volume, ag)?);
        let group = [agi.inodes().into(), agi.free_inodes().into(), agf.counted_free_blocks()];
        counters.iter_mut().zip(group).for_each(|(sum, count): (&mut u64, u64)| *sum += count);
    }
    Ok(counters)
}
