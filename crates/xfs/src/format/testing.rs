//! Structures for unit tests, made in memory as mkfs.xfs makes them.

use undercroft_vfs::Ino;
use zerocopy::{FromZeros, IntoBytes};

use super::dinode::{DiFlags2, RawDinode};
use super::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, Superblock};
use super::{Incompat, crc, dinode};

/// How inode chunks and their parts are aligned with blocks of 4 KiB and inodes of 512 bytes.
const ALIGNMENTS: (u32, u32) = (8, 4);

/// The sector of a superblock of 512 MiB in four groups, changed as a test likes and with its checksum right. Inode chunks
/// are aligned as the sizes need it, unless the test says how.
pub(crate) fn superblock_sector(change: impl FnOnce(&mut RawSuperblock)) -> Vec<u8> {
    let mut raw = RawSuperblock::new_zeroed();
    raw.sb_magicnum.set(MAGIC);
    raw.sb_blocksize.set(4096);
    raw.sb_dblocks.set(131_072);
    raw.sb_uuid = *b"sixteen bytes...";
    raw.sb_logstart.set(65_542);
    raw.sb_rootino.set(128);
    raw.sb_rbmino.set(129);
    raw.sb_rsumino.set(130);
    raw.sb_rextsize.set(1);
    raw.sb_agblocks.set(32_768);
    raw.sb_agcount.set(4);
    raw.sb_logblocks.set(16_384);
    raw.sb_versionnum.set(0xb4a5);
    raw.sb_sectsize.set(512);
    raw.sb_inodesize.set(512);
    raw.sb_inopblock.set(8);
    raw.sb_fname = *b"undercroft\0\0";
    raw.sb_blocklog = 12;
    raw.sb_sectlog = 9;
    raw.sb_inodelog = 9;
    raw.sb_inopblog = 3;
    raw.sb_agblklog = 15;
    raw.sb_imax_pct = 25;
    raw.sb_icount.set(64);
    raw.sb_ifree.set(61);
    raw.sb_fdblocks.set(114_656);
    raw.sb_inoalignmt.set(ALIGNMENTS.0);
    raw.sb_logsunit.set(1);
    raw.sb_features2.set(0x18a);
    raw.sb_bad_features2.set(0x18a);
    raw.sb_features_ro_compat.set(0xd);
    raw.sb_features_incompat.set(0xb);
    raw.sb_spino_align.set(ALIGNMENTS.1);
    change(&mut raw);
    if (raw.sb_inoalignmt.get(), raw.sb_spino_align.get()) == ALIGNMENTS {
        let is_sparse = raw.sb_features_incompat.get() & Incompat::SPARSE_INODES.bits() != 0;
        let chunk = 64_u32
            .checked_shl(raw.sb_inodelog.into())
            .and_then(|bytes| bytes.checked_shr(raw.sb_blocklog.into()));
        let chunk = chunk.unwrap_or_default();
        raw.sb_inoalignmt.set(if is_sparse { chunk } else { chunk / 2 });
        raw.sb_spino_align.set(if is_sparse { chunk / 2 } else { 0 });
    }
    let mut sector = raw.as_bytes().to_vec();
    sector.resize(512, 0);
    crc::seal(&mut sector, CRC_OFFSET);
    sector
}

/// The 512 bytes of a regular file without content, changed as a test likes and with its checksum right.
pub(crate) fn dinode(superblock: &Superblock, ino: Ino, change: impl FnOnce(&mut RawDinode)) -> Vec<u8> {
    let mut raw = RawDinode::new_zeroed();
    raw.di_magic.set(dinode::MAGIC);
    raw.di_mode.set(0o100_640);
    raw.di_version = 3;
    raw.di_format = 2;
    raw.di_nlink.set(1);
    raw.di_projid_lo.set(1);
    raw.di_projid_hi.set(2);
    raw.di_mtime.set(((1 << 31) + 5) * 1_000_000_000 + 6);
    raw.di_forkoff = 35;
    raw.di_aformat = 2;
    raw.di_next_unlinked.set(u32::MAX);
    raw.di_flags2.set(DiFlags2::BIGTIME.bits());
    raw.di_ino.set(ino.0);
    raw.di_uuid = *superblock.meta_uuid().as_bytes();
    change(&mut raw);
    let mut bytes = raw.as_bytes().to_vec();
    bytes.resize(512, 0);
    crc::seal(&mut bytes, dinode::CRC_OFFSET);
    bytes
}
