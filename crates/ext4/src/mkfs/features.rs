//! Which features a new filesystem has: those of its types, changed as asked, made consistent or refused.
//!
//! A feature that came with the types and has lost what it depends on goes too; one that was asked for by name is
//! refused.

use super::conf::Usual;
use crate::features::{Compat, FeatureChange, Features, Incompat, RoCompat};
use undercroft_diskfs::mkfs::{MkfsError, refuse};

/// Features that can be made.
const MAKEABLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::SIXTY_FOUR_BIT)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// Features as they were chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) features: Features,
    /// Those that were asked for by name.
    asked: Features,
}

impl Chosen {
    /// The usual features, changed by a list as `mke2fs -O` takes it, and then by what other options imply.
    pub(super) fn new(usual: &Usual, list: &str, implied: &str) -> Result<Self, MkfsError> {
        let mut chosen = Self { features: Features::NONE, asked: Features::NONE };
        for changes in &usual.features {
            chosen.change(changes)?;
        }
        if list.is_empty() {
            chosen.change(usual.default_features.as_deref().unwrap_or_default())?;
        }
        chosen.asked = Features::NONE;
        chosen.change(list)?;
        chosen.change(implied)?;
        let beyond = chosen.features.without(MAKEABLE);
        if beyond != Features::NONE {
            let names = beyond.names().join(", ");
            return refuse(format!(
                "feature {names} cannot be made; leave it out: `-O ^{}`",
                names.replace(", ", ",^")
            ));
        }
        chosen.drop_unmet()?;
        Ok(chosen)
    }

    fn change(&mut self, list: &str) -> Result<(), MkfsError> {
        let changes = FeatureChange::list(list)
            .or_else(|what| refuse(format!("{what}; `mke2fs -O` in mke2fs(8) lists them")))?;
        for change in changes {
            match change {
                FeatureChange::Clear => *self = Self { features: Features::NONE, asked: Features::NONE },
                FeatureChange::On(feature) => {
                    self.features = self.features.with(feature);
                    self.asked = self.asked.with(feature);
                }
                FeatureChange::Off(feature) => {
                    self.drop(feature);
                    self.asked = self.asked.without(feature);
                }
            }
        }
        Ok(())
    }

    pub(super) fn compat(&self, flag: Compat) -> bool {
        self.features.compat.contains(flag)
    }

    pub(super) fn incompat(&self, flag: Incompat) -> bool {
        self.features.incompat.contains(flag)
    }

    pub(super) fn ro_compat(&self, flag: RoCompat) -> bool {
        self.features.ro_compat.contains(flag)
    }

    /// Whether group descriptors say what of their group was never used.
    pub(super) fn has_group_checksums(&self) -> bool {
        self.features.ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
    }

    pub(super) fn add(&mut self, feature: Features) {
        self.features = self.features.with(feature);
    }

    fn drop(&mut self, feature: Features) {
        self.features = self.features.without(feature);
    }

    /// Leaves out a feature that came with the family, for the reason given; refuses one that was asked for.
    pub(super) fn give_up(&mut self, feature: Features, reason: &str) -> Result<(), MkfsError> {
        if self.asked.contains(feature) {
            let name = feature.names().join(", ");
            return refuse(format!("feature {name} cannot be made: {reason}"));
        }
        self.drop(feature);
        Ok(())
    }

    /// Gives up features that lack what they depend on.
    fn drop_unmet(&mut self) -> Result<(), MkfsError> {
        if self.ro_compat(RoCompat::METADATA_CSUM) {
            // The newer checksum takes the older one's place in the group descriptors.
            self.drop(Features::from(RoCompat::GDT_CSUM));
        } else {
            self.give_up_if_set(Incompat::CSUM_SEED.into(), "it takes metadata_csum")?;
        }
        if !self.compat(Compat::HAS_JOURNAL) {
            self.give_up_without_journal("it takes a journal")?;
        }
        if !self.ro_compat(RoCompat::SPARSE_SUPER) && !self.compat(Compat::SPARSE_SUPER2) {
            self.give_up_if_set(Compat::RESIZE_INODE.into(), "it takes sparse_super or sparse_super2")?;
        }
        if self.incompat(Incompat::META_BG) {
            self.give_up_if_set(
                Compat::RESIZE_INODE.into(),
                "meta_bg grows without it; leave one of them out",
            )?;
        }
        if !self.incompat(Incompat::EXTENTS) {
            self.give_up_if_set(RoCompat::BIGALLOC.into(), "it takes extent")?;
            self.give_up_if_set(Incompat::SIXTY_FOUR_BIT.into(), "it takes extent")?;
        }
        if !self.compat(Compat::EXT_ATTR) {
            self.give_up_if_set(Incompat::INLINE_DATA.into(), "it takes ext_attr")?;
        }
        Ok(())
    }

    /// Room for growth is asked for.
    pub(super) fn add_resize_inode(&mut self) -> Result<(), MkfsError> {
        if !self.ro_compat(RoCompat::SPARSE_SUPER) && !self.compat(Compat::SPARSE_SUPER2) {
            return refuse(
                "room for growth takes the feature sparse_super or sparse_super2; add one with -O",
            );
        }
        if self.incompat(Incompat::META_BG) {
            return refuse("room for growth means nothing with the feature meta_bg, which grows without it");
        }
        self.add(Compat::RESIZE_INODE.into());
        Ok(())
    }

    pub(super) fn give_up_without_journal(&mut self, reason: &str) -> Result<(), MkfsError> {
        self.give_up_if_set(Compat::HAS_JOURNAL.into(), reason)?;
        self.give_up_if_set(Compat::ORPHAN_FILE.into(), reason)?;
        self.give_up_if_set(Compat::FAST_COMMIT.into(), reason)
    }

    pub(super) fn give_up_if_set(&mut self, feature: Features, reason: &str) -> Result<(), MkfsError> {
        if self.features.contains(feature) { self.give_up(feature, reason) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::conf::Mke2fsConf;
    use crate::mkfs::options::Family;

    fn usual() -> Usual {
        Usual::of(&Mke2fsConf::built_in().of(Family::Ext4, &[], 1 << 30).unwrap()).unwrap()
    }

    fn names(list: &str) -> Vec<String> {
        Chosen::new(&usual(), list, "").unwrap().features.names()
    }

    fn refusal(list: &str) -> String {
        Chosen::new(&usual(), list, "").unwrap_err().to_string()
    }

    #[test]
    fn what_depends_on_a_feature_goes_with_it_unless_it_was_asked_for() {
        let left = names("^metadata_csum,^has_journal");
        for gone in ["metadata_csum", "metadata_csum_seed", "has_journal", "orphan_file"] {
            assert!(!left.iter().any(|name| name == gone), "{gone}: {left:?}");
        }
        assert!(refusal("^metadata_csum,metadata_csum_seed").contains("takes metadata_csum"));
        assert!(refusal("^has_journal,fast_commit").contains("fast_commit"));
        assert!(refusal("meta_bg,resize_inode").contains("meta_bg"));
        assert!(refusal("bigalloc,^extent").contains("extent"));
    }

    #[test]
    fn what_other_options_imply_leaves_default_features() {
        let usual = Usual { default_features: Some("large_dir".into()), ..usual() };
        let has = |list: &str, implied: &str, name: &str| {
            Chosen::new(&usual, list, implied).unwrap().features.names().contains(&name.to_owned())
        };
        assert!(has("", "casefold", "large_dir") && has("", "casefold", "casefold"));
        assert!(!has("dir_nlink", "casefold", "large_dir") && !has(" ", "", "large_dir"));
        assert!(has("none", "has_journal", "has_journal"));
    }

    #[test]
    fn the_older_checksum_yields_to_the_newer() {
        assert!(!names("uninit_bg").contains(&"uninit_bg".to_owned()));
        assert!(names("^metadata_csum,uninit_bg").contains(&"uninit_bg".to_owned()));
    }

    #[test]
    fn what_cannot_be_made_is_refused_by_name() {
        assert!(refusal("journal_dev").contains("feature journal_dev cannot be made"));
        assert!(refusal("quota").contains("feature quota cannot be made"));
        assert!(refusal("nonesuch").contains("no feature nonesuch"));
        assert_eq!(names("none,extent"), ["extent"]);
    }
}
