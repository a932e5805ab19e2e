//! The superblock of a new filesystem and its copies.

use uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use super::features::{Chosen, FEATURES2};
use super::groups::INODES_IN_USE;
use super::shape::Shape;
use crate::format::crc;
use crate::format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock};

/// Blocks of the real-time section, which there is none of, would be allocated in runs of so many bytes.
const REALTIME_EXTENT_BYTES: u32 = 4096;
const NO_INODE: u64 = u64::MAX;

/// The primary superblock; `root` is the root directory's number, in the first group.
pub(super) fn primary(shape: &Shape, uuid: Uuid, label: &[u8], root: u32) -> RawSuperblock {
    let mut raw = copy(shape, uuid, label);
    raw.sb_rootino.set(root.into());
    raw.sb_rbmino.set(u64::from(root) + 1);
    raw.sb_rsumino.set(u64::from(root) + 2);
    raw.sb_inprogress = 0;
    raw.sb_icount.set(shape.first_inodes().into());
    raw.sb_ifree.set((shape.first_inodes() - INODES_IN_USE).into());
    raw.sb_fdblocks.set(raw.sb_fdblocks.get() - u64::from(shape.first_inode_blocks()));
    raw
}

/// The copy that a group has: as before there were inodes, and as if the filesystem were not finished, which nothing
/// but the primary superblock says.
fn copy(shape: &Shape, uuid: Uuid, label: &[u8]) -> RawSuperblock {
    let mut raw = RawSuperblock::new_zeroed();
    let block_bytes = 1_u32 << shape.block_log;
    let inodes_log = shape.block_log - shape.inode_log;
    let has_sectors = shape.sector_log > 9;
    raw.sb_magicnum.set(MAGIC);
    raw.sb_blocksize.set(block_bytes);
    raw.sb_dblocks.set(shape.blocks);
    raw.sb_uuid = uuid.into_bytes();
    raw.sb_logstart.set(u64::from(shape.log_group) << shape.group_block_log() | u64::from(shape.log_start));
    raw.sb_rootino.set(NO_INODE);
    raw.sb_rbmino.set(NO_INODE);
    raw.sb_rsumino.set(NO_INODE);
    raw.sb_rextsize.set((REALTIME_EXTENT_BYTES >> shape.block_log).max(1));
    raw.sb_agblocks.set(shape.group_blocks);
    raw.sb_agcount.set(shape.groups);
    raw.sb_logblocks.set(shape.log_blocks);
    raw.sb_versionnum.set(Chosen::version(shape.stripe_unit > 0, has_sectors));
    raw.sb_sectsize.set(1 << shape.sector_log);
    raw.sb_inodesize.set(1 << shape.inode_log);
    raw.sb_inopblock.set(1 << inodes_log);
    raw.sb_fname[..label.len()].copy_from_slice(label);
    raw.sb_blocklog = shape.block_log;
    raw.sb_sectlog = shape.sector_log;
    raw.sb_inodelog = shape.inode_log;
    raw.sb_inopblog = inodes_log;
    raw.sb_agblklog = shape.group_block_log();
    raw.sb_inprogress = 1;
    raw.sb_imax_pct = shape.inode_percent;
    let taken = u64::from(shape.groups) * u64::from(shape.taken_blocks()) + u64::from(shape.log_blocks);
    raw.sb_fdblocks.set(shape.blocks - taken);
    raw.sb_inoalignmt.set(shape.inode_alignment);
    raw.sb_unit.set(shape.stripe_unit);
    raw.sb_width.set(shape.stripe_width);
    raw.sb_dirblklog = shape.dir_block_log - shape.block_log;
    if has_sectors {
        raw.sb_logsectlog = shape.sector_log;
        raw.sb_logsectsize.set(1 << shape.sector_log);
    }
    raw.sb_logsunit.set(shape.log_stripe_bytes.max(1));
    raw.sb_features2.set(FEATURES2);
    raw.sb_bad_features2.set(FEATURES2);
    raw.sb_features_ro_compat.set(shape.chosen.ro_compat().bits());
    raw.sb_features_incompat.set(shape.chosen.incompat().bits());
    raw.sb_spino_align.set(shape.sparse_alignment);
    raw
}

/// The copy of one group. Two of them, the last and one in the middle, know the root directory.
pub(super) fn secondary(shape: &Shape, primary: &RawSuperblock, group: u32) -> RawSuperblock {
    let mut raw = copy(shape, Uuid::from_bytes(primary.sb_uuid), &primary.sb_fname);
    let last = shape.groups - 1;
    if group == last || shape.groups > 2 && group == last / 2 {
        raw.sb_rootino = primary.sb_rootino;
    }
    raw
}

/// The whole sector, with its checksum.
pub(super) fn sector(shape: &Shape, raw: &RawSuperblock) -> Vec<u8> {
    let mut bytes = raw.as_bytes().to_vec();
    bytes.resize(1 << shape.sector_log, 0);
    crc::seal(&mut bytes, CRC_OFFSET);
    bytes
}
