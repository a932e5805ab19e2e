//! Fields of the superblock and of its copies that Linux takes as they are, and xfs_repair does not.

use undercroft_diskfs::At;

use super::Checker;
use crate::format::features::{Incompat, VersionBits};
use crate::format::geometry::CLUSTER_INODES;
use crate::format::{AgNumber, superblock};

/// Inodes are buffered in so many bytes, where their size does not make it more.
const CLUSTER_BYTES: u32 = 8192;

impl Checker<'_> {
    /// What is wrong with `sb_spino_align`, the alignment of parts of inode chunks.
    pub(super) fn wrong_sparse_alignment(&self) -> Option<String> {
        let features = self.superblock.features();
        let found = self.superblock.raw().sb_spino_align.get();
        let wanted = match features.has_sparse_inodes() {
            true => (CLUSTER_INODES * self.geometry.inode_bytes()) >> self.geometry.block_log(),
            false => 0,
        };
        // Version 4 ends before the field.
        (features.has_crc() && found != wanted)
            .then(|| format!("sb_spino_align is {found}, and should be {wanted}"))
    }

    /// What is wrong with `sb_inoalignmt`. With sparse inodes it was validated where the superblock was read.
    pub(super) fn wrong_inode_alignment(&self) -> Option<String> {
        let features = self.superblock.features();
        let found = self.superblock.raw().sb_inoalignmt.get();
        if features.has_sparse_inodes() {
            return None;
        }
        if !features.has_inode_alignment() {
            return (found != 0)
                .then(|| format!("sb_inoalignmt is {found}, and chunks of inodes are not aligned"));
        }
        let log = self.geometry.block_log();
        let least = CLUSTER_BYTES >> log;
        let scaled =
            if features.has_crc() { (CLUSTER_INODES * self.geometry.inode_bytes()) >> log } else { least };
        if found == scaled {
            return None;
        }
        if found != least {
            return Some(format!("sb_inoalignmt is {found}, and should be {scaled}"));
        }
        // Early filesystems of version 5 have the lower one; mkfs then put the first inodes where it allows them.
        let (root, expected) = (self.superblock.root().0, self.first_inode_expected(least)?);
        (root != expected).then(|| {
            format!(
                "sb_inoalignmt is {found}, with which the root directory is inode {expected} and not {root}"
            )
        })
    }

    /// The first inode that mkfs.xfs makes where chunks of inodes are aligned so, in blocks; `None` where a stripe
    /// decides. It lies behind all that the first group begins with.
    fn first_inode_expected(&self, alignment: u32) -> Option<u64> {
        let features = self.superblock.features();
        if features.version_bits().contains(VersionBits::DALIGN) {
            return None;
        }
        let has = |feature: bool| u32::from(feature);
        // The roots of the trees of free space and of inodes, and what the free list has with trees of one level.
        let roots = 3 + has(features.has_finobt()) + has(features.has_rmapbt()) + has(features.has_reflink());
        let free_list = 4 + 2 * has(features.has_rmapbt());
        let log = self.superblock.log_start().and_then(|start| self.geometry.split(start));
        let log = if log.is_some_and(|(ag, _)| ag == AgNumber(0)) { self.superblock.log_blocks() } else { 0 };
        let taken = self.geometry.ag_header_blocks() + roots + free_list;
        let first = taken.checked_add(log)?.checked_next_multiple_of(alignment)?;
        Some(u64::from(first) << self.geometry.inodes_per_block_log())
    }

    /// Whether a superblock's sector has anything behind its fields: those that the features of the first one have.
    pub(super) fn check_behind_fields(&self, number: u32, sector: &[u8]) {
        if sector[self.superblock_bytes()..].iter().all(|&byte| byte == 0) {
            return;
        }
        let (code, at, which) = match number {
            0 => ("superblock-field", At::filesystem(), "the superblock"),
            _ => ("superblock-copy", At::group(number), "the copy of the superblock"),
        };
        self.findings.add(code, at, format!("{which} has bytes behind its fields that are not zero"));
    }

    fn superblock_bytes(&self) -> usize {
        let features = self.superblock.features();
        let has = |bits| features.version_bits().contains(bits);
        if features.incompat().contains(Incompat::META_UUID) {
            264
        } else if features.has_crc() {
            superblock::LSN_OFFSET + 8
        } else if has(VersionBits::MOREBITS) {
            208
        } else if features.has_log_v2() {
            200
        } else if has(VersionBits::SECTOR) {
            196
        } else {
            193
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use crate::format::superblock::RawSuperblock;

    fn alignment(change: impl FnOnce(&mut RawSuperblock)) -> Option<String> {
        Bench::new(change).checker().wrong_inode_alignment()
    }

    #[test]
    fn chunks_are_aligned_to_their_clusters() {
        let whole = |inode_log: u8, found: u32, root: u64| {
            alignment(|raw| {
                raw.sb_features_incompat.set(1);
                raw.sb_spino_align.set(0);
                raw.sb_inodelog = inode_log;
                raw.sb_inodesize.set(1 << inode_log);
                raw.sb_inopblog = 12 - inode_log;
                raw.sb_inopblock.set(1 << (12 - inode_log));
                raw.sb_inoalignmt.set(found);
                raw.sb_rootino.set(root);
            })
        };
        assert_eq!(alignment(|_| {}), None);
        for (inode_log, scaled) in [(8, 2), (9, 4), (10, 8), (11, 16)] {
            for found in [0, 1, 2, 3, 4, 8, 16, 32, 1 << 30] {
                // Behind 10 blocks come the first inodes, at 16 only where the alignment is larger than 2.
                let wrong = whole(inode_log, found, 16 << (12 - inode_log));
                assert_eq!(wrong.is_none(), found == scaled, "{inode_log} {found}: {wrong:?}");
            }
        }
        assert_eq!(whole(9, 2, 10 << 3), None);
        assert!(whole(9, 2, 12 << 3).unwrap().contains("inode 80 and not 96"));
    }

    #[test]
    fn version_4_has_one_alignment_or_none() {
        for (found, bits, is_wrong) in
            [(2, 0xb4a4, false), (0, 0xb4a4, true), (4, 0xb4a4, true), (0, 0xb424, false), (2, 0xb424, true)]
        {
            let wrong = alignment(|raw| {
                raw.sb_versionnum.set(bits);
                raw.sb_features2.set(0x8a);
                raw.sb_bad_features2.set(0x8a);
                raw.sb_features_ro_compat.set(0);
                raw.sb_features_incompat.set(0);
                raw.sb_spino_align.set(0);
                raw.sb_inoalignmt.set(found);
            });
            assert_eq!(wrong.is_some(), is_wrong, "{found} {bits:#x}: {wrong:?}");
        }
    }
}
