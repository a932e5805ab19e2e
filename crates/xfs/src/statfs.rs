//! Free and used space, counted as Linux counts it.
//!
//! Linux holds back eight blocks in each group for the trees of free space. The blocks of those trees beyond their
//! roots are taken off too once it has looked into the groups. It does so after recovering a log, and where groups have
//! trees that space is reserved for: of free inodes, of reference counts, of the reverse map. Counters of the
//! superblock that cannot be are recounted, from the headers of the groups.
//!
//! A filesystem that is opened for reading does not change, so the groups are read once. One whose headers are damaged or
//! cannot be read, as behind the end of an image that is cut short, counts as empty. Behind many of them no other group is
//! read.
//!
//! In one that takes changes the allocator counts, and has set aside in each group what Linux reserves for the trees of
//! inodes, reference counts and reverse mappings: as many blocks. For the trees of free space the two hold back
//! differently, which is made up for. And Linux keeps a pool from users when it mounts for writing, for changes
//! that free space; the allocator needs none, and still gives these blocks out when no others are left.

use undercroft_vfs::{Error, Result, StatFs};

use crate::ag::{Agf, Agi};
use crate::alloc::{Allocator, all_list_blocks};
use crate::format::{AgNumber, Superblock};
use crate::volume::Volume;

/// Blocks that Linux holds back in each group.
const SET_ASIDE_BLOCKS: u64 = 8;

/// The pool is this part of all blocks, and no more than so many.
const POOL_PART: u64 = 20;
const POOL_MAX_BLOCKS: u64 = 8192;

/// Groups behind so many that are damaged or cannot be read are not tried: a damaged superblock may claim billions.
const UNREAD_MAX: u32 = 100;

/// The largest inode number that Linux gives out.
const INO_MAX: u64 = (1 << 56) - 1;

/// The longest name in bytes.
pub(crate) const NAME_MAX_BYTES: u32 = 255;

/// What all groups have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    inodes: u64,
    free_inodes: u64,
    free_blocks: u64,
    /// Of the free blocks, those that no file can get.
    held_back: u64,
}

impl Counts {
    /// `recovered` says that the log held changes.
    ///
    /// # Errors
    /// What keeps a group from being read beside damage and I/O failure.
    pub(crate) fn new(volume: &Volume, recovered: bool) -> Result<Self> {
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let mut counts = Self {
            inodes: superblock.inodes(),
            free_inodes: superblock.free_inodes(),
            free_blocks: superblock.free_blocks(),
            held_back: u64::from(geometry.ag_count()) * SET_ASIDE_BLOCKS,
        };
        let can_be = counts.can_be(superblock);
        if !can_be {
            (counts.inodes, counts.free_inodes, counts.free_blocks) = (0, 0, 0);
        }
        let features = superblock.features();
        let reserves = features.has_finobt() || features.has_reflink() || features.has_rmapbt();
        if recovered || reserves || !can_be {
            let mut unread = 0;
            for ag in geometry.ags() {
                match counts.add(volume, ag, !can_be) {
                    Ok(()) => {}
                    Err(Error::Corrupt(_) | Error::Io(_)) if unread < UNREAD_MAX => unread += 1,
                    Err(Error::Corrupt(_) | Error::Io(_)) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(counts)
    }

    /// As the groups have them now, in a writable filesystem. What waits for a commit counts as free: the next
    /// caller that needs it commits.
    pub(crate) fn of_groups(volume: &Volume, allocator: &Allocator) -> Self {
        let (inodes, free_inodes) = allocator.inode_counts();
        let free_blocks = allocator.free_blocks() + allocator.busy_blocks() + all_list_blocks(volume);
        let geometry = volume.geometry();
        // Of a reverse map Linux reserves the root, too.
        let in_group = SET_ASIDE_BLOCKS + u64::from(volume.superblock().features().has_rmapbt());
        let pool = (geometry.blocks() / POOL_PART).min(POOL_MAX_BLOCKS);
        let held_back = u64::from(geometry.ag_count()) * in_group + pool;
        Self { inodes, free_inodes, free_blocks, held_back }
    }

    fn can_be(&self, superblock: &Superblock) -> bool {
        let geometry = superblock.geometry();
        let most_inodes = u128::from(geometry.blocks()) << geometry.inodes_per_block_log();
        self.free_blocks <= geometry.blocks()
            && self.free_inodes <= self.inodes
            && u128::from(self.inodes) <= most_inodes
    }

    /// Adds the blocks that the trees of free space of a group have beyond their roots, and with `anew` what the group
    /// counts.
    fn add(&mut self, volume: &Volume, ag: AgNumber, anew: bool) -> Result<()> {
        let agf = Agf::read(volume, ag)?;
        let agi = if anew { Some(Agi::read(volume, ag)?) } else { None };
        let has_rmap = volume.superblock().features().has_rmapbt();
        let rmap = if has_rmap { agf.raw().agf_rmap_blocks.get().saturating_sub(1) } else { 0 };
        let trees = u64::from(agf.btree_blocks().saturating_sub(rmap));
        self.held_back = self.held_back.saturating_add(trees);
        if let Some(agi) = agi {
            self.free_blocks = self.free_blocks.saturating_add(agf.counted_free_blocks());
            self.inodes = self.inodes.saturating_add(u64::from(agi.inodes()));
            self.free_inodes = self.free_inodes.saturating_add(u64::from(agi.free_inodes()));
        }
        Ok(())
    }
}

pub(crate) fn statfs(volume: &Volume, counts: &Counts) -> StatFs {
    let superblock = volume.superblock();
    let geometry = superblock.geometry();
    let log_blocks = if superblock.has_external_log() { 0 } else { u64::from(superblock.log_blocks()) };
    let blocks = geometry.blocks().saturating_sub(log_blocks);
    let free = counts.free_blocks.saturating_sub(counts.held_back).min(blocks);
    let per_block = u64::from(geometry.inodes_per_block());
    let mut inodes = counts.inodes.saturating_add(free.saturating_mul(per_block)).min(INO_MAX);
    if let Some(most) = most_inodes(volume) {
        inodes = inodes.min(most);
    }
    let inodes = inodes.max(counts.inodes);
    let (high, low) = superblock.uuid().as_u64_pair();
    StatFs {
        block_bytes: geometry.block_bytes(),
        blocks,
        blocks_free: free,
        blocks_available: free,
        inodes,
        inodes_free: inodes - counts.inodes.saturating_sub(counts.free_inodes).min(inodes),
        fsid: high.swap_bytes() ^ low.swap_bytes(),
        name_max_bytes: NAME_MAX_BYTES,
    }
}

/// As many inodes as the part of the space that inodes may take holds, in whole chunks; `None` without such a bound.
pub(crate) fn most_inodes(volume: &Volume) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{BlockDevice, MemoryDevice};

    use super::*;
    use crate::format::superblock::RawSuperblock;
    use crate::format::{crc, testing};

    /// A volume of four groups, of which the third has no headers. The others count 1000 free blocks, 4 on the list and 2
    /// in the trees beyond their roots, and 64 inodes, of which 60 are free.
    fn volume(change: impl FnOnce(&mut RawSuperblock)) -> Volume {
        volume_with_headers(4, &[0, 1, 3], change)
    }

    /// The same of `count` groups, of which these have headers.
    fn volume_with_headers(count: u32, groups: &[u32], change: impl FnOnce(&mut RawSuperblock)) -> Volume {
        let device = Arc::new(MemoryDevice::new(u64::from(count) * (128 << 20)));
        device.write_at(0, &testing::superblock_sector(change)).unwrap();
        let superblock = Superblock::read(&*device).unwrap();
        let sealed = |words: &[(usize, u32)], uuid: usize, crc: usize| {
            let mut bytes = vec![0; 512];
            for &(at, word) in words {
                bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
            }
            bytes[uuid..uuid + 16].copy_from_slice(superblock.meta_uuid().as_bytes());
            crc::seal(&mut bytes, crc);
            bytes
        };
        for &ag in groups {
            let group = u64::from(ag) * 32_768 * 4096;
            let agf = [
                (0, 0x5841_4746),
                (4, 1),
                (8, ag),
                (12, 32_768),
                (44, 3),
                (48, 4),
                (52, 1000),
                (56, 900),
                (60, 2),
            ];
            device.write_at(group + 512, &sealed(&agf, 64, 216)).unwrap();
            let agi = [(0, 0x5841_4749), (4, 1), (8, ag), (12, 32_768), (16, 64), (28, 60)];
            device.write_at(group + 1024, &sealed(&agi, 296, 312)).unwrap();
        }
        Volume::new(device, superblock, 1 << 20)
    }

    #[test]
    fn a_group_that_cannot_be_read_holds_nothing_back() {
        let volume = |ro_compat| self::volume(|raw| raw.sb_features_ro_compat.set(ro_compat));
        let counts = Counts { inodes: 64, free_inodes: 61, free_blocks: 114_656, held_back: 4 * 8 };
        assert_eq!(Counts::new(&volume(0), false).unwrap(), counts);
        let looked = Counts { held_back: 4 * 8 + 3 * 2, ..counts };
        assert_eq!(Counts::new(&volume(0), true).unwrap(), looked);
        assert_eq!(Counts::new(&volume(0xd), false).unwrap(), looked);
        assert_eq!(statfs(&volume(0), &counts).blocks_free, 114_656 - 32);
    }

    /// Of a device that is not cut short zeroes are read where the headers of billions of groups should be.
    #[test]
    fn groups_behind_many_damaged_ones_are_not_read() {
        let counted = |count: u32, groups: &[u32]| {
            let volume = volume_with_headers(count, groups, |raw| {
                raw.sb_agcount.set(count);
                raw.sb_dblocks.set(u64::from(count) * 32_768);
            });
            Counts::new(&volume, true).unwrap().held_back - u64::from(count) * 8
        };
        assert_eq!(counted(300, &[0, 1, 90, 299]), 3 * 2);
        assert_eq!(counted(90, &[0, 1, 89]), 3 * 2);
        assert_eq!(counted(1 << 27, &[0, 1, 3]), 3 * 2);
    }

    #[test]
    fn counters_that_cannot_be_are_counted_anew() {
        let counted =
            Counts { inodes: 3 * 64, free_inodes: 3 * 60, free_blocks: 3 * 1006, held_back: 4 * 8 + 3 * 2 };
        let damage: [fn(&mut RawSuperblock); 3] = [
            |raw| raw.sb_fdblocks.set(131_073),
            |raw| raw.sb_ifree.set(65),
            |raw| raw.sb_icount.set(u64::MAX),
        ];
        for change in damage {
            assert_eq!(Counts::new(&volume(change), false).unwrap(), counted);
        }
    }
}
