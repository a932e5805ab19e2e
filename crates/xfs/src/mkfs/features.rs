//! Which features a new filesystem has: those that were asked for, made consistent or refused.

use undercroft_diskfs::mkfs::{MkfsError, refuse};

use super::options::MkfsOptions;
use crate::format::features::VersionBits;
use crate::format::{Features, Incompat, RoCompat};

/// `sb_features2` of version 5, which repeats what the version implies.
pub(super) const FEATURES2: u32 = 0x18a;

/// Features that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) finobt: bool,
    pub(super) inobtcount: bool,
    pub(super) rmapbt: bool,
    pub(super) reflink: bool,
    pub(super) bigtime: bool,
    pub(super) sparse: bool,
    pub(super) nrext64: bool,
}

impl Chosen {
    pub(super) fn decide(options: &MkfsOptions) -> Result<Self, MkfsError> {
        let &MkfsOptions { finobt, inobtcount, rmapbt, reflink, bigtime, sparse, nrext64, .. } = options;
        if inobtcount == Some(true) && !finobt {
            return refuse(
                "counters of the inodes' B+trees (inobtcount) need a B+tree of free inodes (finobt)",
            );
        }
        let inobtcount = inobtcount.unwrap_or(finobt);
        Ok(Self { finobt, inobtcount, rmapbt, reflink, bigtime, sparse, nrext64 })
    }

    /// Those of a filesystem of version 5.
    pub(super) const fn of(features: &Features) -> Self {
        let incompat = features.incompat();
        Self {
            finobt: features.has_finobt(),
            inobtcount: features.has_inode_tree_counts(),
            rmapbt: features.has_rmapbt(),
            reflink: features.has_reflink(),
            bigtime: incompat.contains(Incompat::BIGTIME),
            sparse: features.has_sparse_inodes(),
            nrext64: incompat.contains(Incompat::NREXT64),
        }
    }

    /// `sb_features_ro_compat`.
    pub(super) fn ro_compat(self) -> RoCompat {
        [
            (self.finobt, RoCompat::FINOBT),
            (self.rmapbt, RoCompat::RMAPBT),
            (self.reflink, RoCompat::REFLINK),
            (self.inobtcount, RoCompat::INOBTCOUNT),
        ]
        .into_iter()
        .filter_map(|(is, bit)| is.then_some(bit))
        .fold(RoCompat::empty(), RoCompat::union)
    }

    /// `sb_features_incompat`.
    pub(super) fn incompat(self) -> Incompat {
        [
            (self.sparse, Incompat::SPARSE_INODES),
            (self.bigtime, Incompat::BIGTIME),
            (self.nrext64, Incompat::NREXT64),
        ]
        .into_iter()
        .filter_map(|(is, bit)| is.then_some(bit))
        .fold(Incompat::FTYPE, Incompat::union)
    }

    /// `sb_versionnum`.
    pub(super) fn version(has_stripe: bool, has_sectors: bool) -> u16 {
        let mut bits = VersionBits::NLINK
            | VersionBits::ALIGN
            | VersionBits::LOGV2
            | VersionBits::EXTFLG
            | VersionBits::DIRV2
            | VersionBits::MOREBITS;
        bits.set(VersionBits::DALIGN, has_stripe);
        bits.set(VersionBits::SECTOR, has_sectors);
        bits.bits() | 5
    }
}
