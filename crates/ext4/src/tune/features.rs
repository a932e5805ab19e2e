//! Which features are switched, and which are refused by name.

use undercroft_vfs::{Error, Result};

use super::fields::HashSeed;
use super::{Tuning, refuse};
use crate::checksum::crc32c;
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::superblock::{RawSuperblock, State, Superblock};

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
        .union(RoCompat::EXTRA_ISIZE),
};

/// What can be switched off.
const OFF: Features = Features {
    compat: Compat::HAS_JOURNAL.union(Compat::ORPHAN_FILE),
    incompat: Incompat::empty(),
    ro_compat: RoCompat::empty(),
};

impl Switches {
    /// The features of a list that are not as it says.
    ///
    /// # Errors
    /// [`Unsupported`](undercroft_vfs::Error::Unsupported) naming what is unknown, or cannot be switched here.
    pub(super) fn decide(superblock: &Superblock, list: &str) -> Result<Self> {
        let mut switches = Self { on: Features::NONE, off: Features::NONE };
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, is_on) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word.strip_prefix('+').unwrap_or(word), true),
            };
            let Some(feature) = Features::by_name(name) else {
                return refuse(format!("there is no feature {name}"));
            };
            if superblock.features().contains(feature) == is_on {
                continue;
            }
            let (possible, verb) = if is_on { (ON, "on") } else { (OFF, "off") };
            if !possible.contains(feature) {
                return refuse(format!(
                    "the feature {name} is not switched {verb} here: {}",
                    what_does_it(name)
                ));
            }
            let switched = if is_on { &mut switches.on } else { &mut switches.off };
            *switched = switched.with(feature);
        }
        Ok(switches)
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
        let has_journal = features.compat.contains(Compat::HAS_JOURNAL) || adds_journal;
        if self.on.compat.contains(Compat::ORPHAN_FILE) && !has_journal {
            return Err(Error::InvalidArgument(
                "an orphan file means nothing without a journal: switch on has_journal too",
            ));
        }
        if self.on.incompat.contains(Incompat::CSUM_SEED) && !superblock.has_metadata_checksums() {
            return Err(Error::InvalidArgument(
                "the feature metadata_csum_seed means nothing without metadata_csum",
            ));
        }
        if self.on.ro_compat.contains(RoCompat::EXTRA_ISIZE) && superblock.geometry().inode_bytes() <= 128 {
            return refuse("inodes of 128 bytes have no room for the feature extra_isize");
        }
        Ok(())
    }

    /// Puts them into the superblock, and what goes with them. What leads to a journal comes from elsewhere, and a journal
    /// that goes is forgotten later.
    pub(super) fn put(&self, old: &Superblock, seed: &HashSeed, raw: &mut RawSuperblock) {
        let off = self.off.without(Compat::HAS_JOURNAL.into());
        let on = self.on.without(Compat::HAS_JOURNAL.into());
        if on == Features::NONE && off == Features::NONE {
            return;
        }
        let now = old.features().with(on).without(off);
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
        "metadata_csum" | "uninit_bg" | "quota" | "project" | "mmp" | "ea_inode" | "encrypt" | "casefold"
        | "verity" | "fast_commit" | "stable_inodes" | "huge_file" | "dir_nlink" | "extra_isize"
        | "large_file" | "sparse_super" | "flex_bg" | "filetype" | "resize_inode" | "metadata_csum_seed" => {
            "`tune2fs -O` does it"
        }
        _ => "it is decided when the filesystem is made",
    }
}
