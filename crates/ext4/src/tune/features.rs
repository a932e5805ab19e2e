//! Which features are switched, and which are refused by name.

use undercroft_vfs::{Error, Result};

use super::fields::HashSeed;
use super::{Tuning, refuse};
use crate::checksum::crc32c;
use crate::features::{Compat, FeatureChange, Features, Incompat, RoCompat};
use crate::superblock::{RawSuperblock, State, Superblock};

/// The system that a filesystem was made for, by its number in the superblock.
const CREATOR_HURD: u32 = 1;

/// Features that change.
pub(super) struct Switches {
    pub(super) on: Features,
    pub(super) off: Features,
}

/// What can be switched on.
const ON: Features = Features {
    compat: Compat::DIR_INDEX.union(Compat::HAS_JOURNAL).union(Compat::ORPHAN_FILE),
    incompat: Incompat::EXTENTS.union(Incompat::LARGE_DIR).union(Incompat::CSUM_SEED),
    ro_compat: RoCompat::LARGE_FILE
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM),
};

/// What can be switched off.
const OFF: Features = Features {
    compat: Compat::HAS_JOURNAL.union(Compat::ORPHAN_FILE),
    incompat: Incompat::empty(),
    ro_compat: RoCompat::METADATA_CSUM,
};

/// What says how the filesystem was left.
const STATES: Features =
    Features { compat: Compat::empty(), incompat: Incompat::RECOVER, ro_compat: RoCompat::ORPHAN_PRESENT };

impl Switches {
    /// The features of a list that are not as it says.
    ///
    /// # Errors
    /// [`Unsupported`](undercroft_vfs::Error::Unsupported) naming what is unknown, or cannot be switched here.
    pub(super) fn decide(superblock: &Superblock, list: &str) -> Result<Self> {
        let found = *superblock.features();
        let mut wanted = found;
        let mut without_uninit = false;
        for change in FeatureChange::list(list).or_else(refuse)? {
            match change {
                FeatureChange::Clear => {
                    without_uninit = true;
                    wanted = found.without(found.without(STATES));
                }
                FeatureChange::On(feature) => {
                    without_uninit &= feature != RoCompat::GDT_CSUM.into();
                    wanted = wanted.with(feature);
                }
                FeatureChange::Off(feature) => {
                    without_uninit |= feature == RoCompat::GDT_CSUM.into();
                    wanted = wanted.without(feature);
                }
            }
        }
        let switches = Self { on: wanted.without(found), off: found.without(wanted) };
        for (switched, possible, verb) in [(switches.on, ON, "on"), (switches.off, OFF, "off")] {
            if let Some(name) = switched.without(possible).names().first() {
                return refuse(format!(
                    "the feature {name} is not switched {verb} here: {}",
                    what_does_it(name)
                ));
            }
        }
        if without_uninit && switches.checksums() == Some(false) {
            return refuse(
                "descriptors keep checksums without metadata_csum, those of uninit_bg: use tune2fs to have none",
            );
        }
        Ok(switches)
    }

    /// Whether all metadata gets checksums, or loses them.
    pub(super) fn checksums(&self) -> Option<bool> {
        let is_switched = |features: &Features| features.ro_compat.contains(RoCompat::METADATA_CSUM);
        is_switched(&self.on).then_some(true).or(is_switched(&self.off).then_some(false))
    }

    /// Refuses what a filesystem cannot have or lose.
    ///
    /// # Errors
    /// [`Unsupported`](undercroft_vfs::Error::Unsupported) saying why.
    pub(super) fn check(&self, superblock: &Superblock, tuning: &Tuning) -> Result<()> {
        let features = superblock.features();
        let adds_journal = self.on.compat.contains(Compat::HAS_JOURNAL);
        if tuning.journal_bytes.is_some() && !adds_journal {
            return Err(Error::InvalidArgument(
                "a journal size means nothing unless a journal is added: with -O has_journal, where there is none yet",
            ));
        }
        if self.off.compat.contains(Compat::HAS_JOURNAL) {
            if features.compat.contains(Compat::ORPHAN_FILE) && !self.off.compat.contains(Compat::ORPHAN_FILE)
            {
                return Err(Error::InvalidArgument(
                    "a filesystem with an orphan file keeps its journal: switch off orphan_file too",
                ));
            }
            if superblock.external_journal().is_some() {
                return refuse("the journal is on another device: use tune2fs");
            }
            if superblock.journal_inode().is_some_and(|number| number >= superblock.geometry().first_inode())
            {
                return refuse("the journal is a file with a name: run e2fsck -f, which hides it, first");
            }
            if superblock.state().contains(State::ERRORS) {
                return refuse("the filesystem has errors: run e2fsck -f before its journal is removed");
            }
        }
        if self.off.compat.contains(Compat::ORPHAN_FILE) && superblock.state().contains(State::ERRORS) {
            return refuse("the filesystem has errors: run e2fsck -f before its orphan file is removed");
        }
        let has_journal = features.compat.contains(Compat::HAS_JOURNAL) || adds_journal;
        if self.on.compat.contains(Compat::ORPHAN_FILE) && !has_journal {
            return Err(Error::InvalidArgument(
                "an orphan file means nothing without a journal: switch on has_journal too",
            ));
        }
        let has_checksums = self.checksums().unwrap_or(superblock.has_metadata_checksums());
        if self.on.incompat.contains(Incompat::CSUM_SEED) && !has_checksums {
            return Err(Error::InvalidArgument(
                "the feature metadata_csum_seed means nothing without metadata_csum",
            ));
        }
        self.check_checksums(superblock)?;
        if self.on.ro_compat.contains(RoCompat::EXTRA_ISIZE) && superblock.geometry().inode_bytes() <= 128 {
            return refuse("inodes of 128 bytes have no room for the feature extra_isize");
        }
        Ok(())
    }

    fn check_checksums(&self, superblock: &Superblock) -> Result<()> {
        let (features, raw) = (superblock.features(), superblock.raw());
        match self.checksums() {
            Some(_) if raw.s_creator_os.get() == CREATOR_HURD => refuse(
                "the filesystem was made for the Hurd, which has something else where inodes have checksums",
            ),
            Some(true) if raw.s_rev_level.get() == 0 => {
                refuse("the filesystem is of the first revision, which has no features: use tune2fs")
            }
            // Values of attributes in inodes of their own have hashes that begin with it.
            Some(false)
                if features.incompat.contains(Incompat::EA_INODE | Incompat::CSUM_SEED)
                    && superblock.checksum_seed() != crc32c(!0, superblock.uuid().as_bytes()) =>
            {
                refuse(
                    "the UUID has changed, and ea_inode needs the feature metadata_csum_seed, which goes with metadata_csum",
                )
            }
            _ => Ok(()),
        }
    }

    /// Puts them into the superblock, and what goes with them. What leads to a journal comes from elsewhere, a journal
    /// that goes is forgotten later, and checksums are switched later.
    pub(super) fn put(&self, old: &Superblock, seed: &HashSeed, raw: &mut RawSuperblock) {
        let mut later = Features::from(Compat::HAS_JOURNAL).with(RoCompat::METADATA_CSUM.into());
        if self.checksums().is_some() {
            later = later.with(Incompat::CSUM_SEED.into());
        }
        let (off, on) = (self.off.without(later), self.on.without(later));
        if on == Features::NONE && off == Features::NONE {
            return;
        }
        let mut now = old.features().with(on).without(off);
        if off.compat.contains(Compat::ORPHAN_FILE) {
            // It says that the orphan file has entries.
            now = now.without(RoCompat::ORPHAN_PRESENT.into());
        }
        raw.s_feature_compat.set(now.compat.bits());
        raw.s_feature_incompat.set(now.incompat.bits());
        raw.s_feature_ro_compat.set(now.ro_compat.bits());
        if on.compat.contains(Compat::DIR_INDEX) {
            seed.put(raw);
        }
        if on.incompat.contains(Incompat::CSUM_SEED) {
            raw.s_checksum_seed.set(crc32c(!0, old.uuid().as_bytes()));
        }
        if on.ro_compat.contains(RoCompat::EXTRA_ISIZE) {
            raw.s_min_extra_isize.set(32);
            raw.s_want_extra_isize.set(32);
        }
    }
}

/// What switches a feature that is not switched here.
fn what_does_it(name: &str) -> &'static str {
    match name {
        "64bit" => "`resize2fs -b` or `-s` does it",
        "dir_index" => "`tune2fs -O` does it, and e2fsck then clears the indexes",
        "uninit_bg" | "quota" | "project" | "mmp" | "ea_inode" | "encrypt" | "casefold" | "verity"
        | "fast_commit" | "stable_inodes" | "huge_file" | "dir_nlink" | "extra_isize" | "large_file"
        | "sparse_super" | "flex_bg" | "filetype" | "resize_inode" | "metadata_csum_seed" => {
            "`tune2fs -O` does it"
        }
        _ => "it is decided when the filesystem is made",
    }
}
