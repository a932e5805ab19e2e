//! What is not in the log: the superblock's counters, and the lists of unlinked inodes.
//!
//! With lazy counters the superblock is right after an unmount only; otherwise free space and inodes are counted from
//! the headers of the allocation groups, as Linux does it.

use undercroft_block::Device;
use undercroft_vfs::{Ino, Result};

use super::buffer::{INODE_MAGIC, NEXT_UNLINKED};
use super::format::{be16, be32};
use super::settled::GivenBack;
use crate::error::{corrupt, corrupt_inode};
use crate::format::{AgIno, AgNumber, Superblock, crc};

/// `XAGF` and `XAGI`.
const AGF_MAGIC: u32 = 0x5841_4746;
const AGI_MAGIC: u32 = 0x5841_4749;

/// Sectors of the headers within a group.
const AGF_SECTOR: u64 = 1;
const AGI_SECTOR: u64 = 2;

/// Lists of unlinked inodes in a group, and where they begin in its inode header.
const BUCKETS: usize = 64;
const UNLINKED: usize = 40;

/// Where the superblock has its counters: inodes, free inodes, free blocks.
const COUNTERS: usize = 128;

fn header(
    device: &Device,
    superblock: &Superblock,
    ag: AgNumber,
    sector: u64,
    magic: u32,
) -> Result<Vec<u8>> {
    let geometry = superblock.geometry();
    let sector_bytes = geometry.sector_bytes();
    let group = (u64::from(ag.0) * u64::from(geometry.ag_blocks())) << geometry.block_log();
    let mut bytes = vec![0; sector_bytes as usize];
    device.read_at(group + sector * u64::from(sector_bytes), &mut bytes)?;
    if be32(&bytes, 0) != magic {
        return Err(corrupt(
            "header of an allocation group",
            format!(
                "sector {sector} of group {ag} has the magic number {:#010x} after the log's replay",
                be32(&bytes, 0)
            ),
        ));
    }
    Ok(bytes)
}

/// All inodes that have no name and were in use.
///
/// # Errors
/// `Corrupt` when a list leads to something else than an inode, or does not end; `Io`.
pub(super) fn unlinked(device: &Device, superblock: &Superblock) -> Result<Vec<Ino>> {
    let geometry = superblock.geometry();
    let mut found = Vec::new();
    for ag in geometry.ags() {
        let agi = header(device, superblock, ag, AGI_SECTOR, AGI_MAGIC)?;
        let inodes = be32(&agi, 16);
        let mut left = inodes;
        for bucket in 0..BUCKETS {
            let mut next = be32(&agi, UNLINKED + bucket * 4);
            while AgIno(next) != AgIno::NULL {
                let ino = geometry.join_ino(ag, AgIno(next));
                left = left.checked_sub(1).ok_or_else(|| {
                    corrupt_inode(
                        "list of unlinked inodes",
                        ino,
                        None,
                        format!("is in bucket {bucket} of group {ag}, which hold more than the group's {inodes} inodes"),
                    )
                })?;
                found.push(ino);
                next = next_unlinked(device, superblock, ino)?;
            }
        }
    }
    Ok(found)
}

fn next_unlinked(device: &Device, superblock: &Superblock, ino: Ino) -> Result<u32> {
    let geometry = superblock.geometry();
    let wrong = |what: &'static str| corrupt_inode("list of unlinked inodes", ino, None, what);
    let place = geometry.inode_place(ino).and_then(|(block, at)| Some(geometry.byte(block)? + at as u64));
    let mut core = [0; NEXT_UNLINKED + 4];
    device.read_at(place.ok_or_else(|| wrong("cannot exist"))?, &mut core)?;
    if be16(&core, 0) != INODE_MAGIC {
        return Err(wrong("is none"));
    }
    Ok(be32(&core, NEXT_UNLINKED))
}

/// Counts free space and inodes anew, where the superblock's counters are lazy, adds what is `given` back, and stores
/// both in it.
///
/// # Errors
/// `Corrupt` when the sums cannot be; `Io`.
pub(super) fn count(device: &Device, superblock: &Superblock, given: GivenBack) -> Result<Superblock> {
    let geometry = superblock.geometry();
    let mut counters = [superblock.inodes(), superblock.free_inodes(), superblock.free_blocks()];
    if superblock.features().has_lazy_counters() {
        counters = [0; 3];
        for ag in geometry.ags() {
            let agf = header(device, superblock, ag, AGF_SECTOR, AGF_MAGIC)?;
            let agi = header(device, superblock, ag, AGI_SECTOR, AGI_MAGIC)?;
            counters[0] += u64::from(be32(&agi, 16));
            counters[1] += u64::from(be32(&agi, 28));
            // Blocks of the list of free blocks and of the trees count as free, for they are taken from it.
            counters[2] += [48, 52, 60].map(|at| u64::from(be32(&agf, at))).iter().sum::<u64>();
        }
    }
    let [inodes, free_inodes, free_blocks] = [
        counters[0].saturating_sub(given.chunk_inodes),
        counters[1].saturating_add(given.inodes).saturating_sub(given.chunk_inodes),
        counters[2].saturating_add(given.blocks),
    ];
    if free_blocks > geometry.blocks() || free_inodes > inodes {
        return Err(corrupt(
            "header of an allocation group",
            format!(
                "all of them have {free_blocks} free blocks of {} and {free_inodes} free inodes of {inodes}",
                geometry.blocks()
            ),
        ));
    }
    let mut sector = vec![0; geometry.sector_bytes() as usize];
    device.read_at(0, &mut sector)?;
    for (index, counter) in [inodes, free_inodes, free_blocks].into_iter().enumerate() {
        sector[COUNTERS + index * 8..][..8].copy_from_slice(&counter.to_be_bytes());
    }
    if superblock.features().has_crc() {
        crc::seal(&mut sector, crate::format::superblock::CRC_OFFSET);
    }
    device.write_at(0, &sector)?;
    Superblock::from_sector(&sector)
}
