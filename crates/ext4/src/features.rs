//! Feature words: what a filesystem uses, by the names that mke2fs and tune2fs give.
//!
//! Source: kernel documentation, "Super Block", and the feature names of `tune2fs -O`.

use undercroft_vfs::Error;

use crate::superblock;

bitflags::bitflags! {
    /// Features that a program which does not know them may ignore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// `dir_prealloc`: directories are preallocated.
        const DIR_PREALLOC = 0x0001;
        /// `imagic_inodes`: AFS server inodes.
        const IMAGIC_INODES = 0x0002;
        /// `has_journal`: there is a journal.
        const HAS_JOURNAL = 0x0004;
        /// `ext_attr`: extended attributes.
        const EXT_ATTR = 0x0008;
        /// `resize_inode`: blocks are reserved for more group descriptors.
        const RESIZE_INODE = 0x0010;
        /// `dir_index`: hashed directories.
        const DIR_INDEX = 0x0020;
        /// `lazy_bg`: never came into use.
        const LAZY_BG = 0x0040;
        /// `exclude_inode`: for snapshots, never came into use.
        const EXCLUDE_INODE = 0x0080;
        /// `exclude_bitmap`: for snapshots, never came into use.
        const EXCLUDE_BITMAP = 0x0100;
        /// `sparse_super2`: at most two backup superblocks, in named groups.
        const SPARSE_SUPER2 = 0x0200;
        /// `fast_commit`: the journal may end in fast commits.
        const FAST_COMMIT = 0x0400;
        /// `stable_inodes`: inode numbers and the UUID never change.
        const STABLE_INODES = 0x0800;
        /// `orphan_file`: orphans are kept in a file.
        const ORPHAN_FILE = 0x1000;
        /// Bits without a name here.
        const _ = !0;
    }

    /// Features without which the filesystem cannot even be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// `compression`: compressed files (never merged into Linux).
        const COMPRESSION = 0x0001;
        /// `filetype`: directory entries carry the kind of file.
        const FILETYPE = 0x0002;
        /// `needs_recovery`: the journal holds changes.
        const RECOVER = 0x0004;
        /// `journal_dev`: this device is a journal for another one.
        const JOURNAL_DEV = 0x0008;
        /// `meta_bg`: group descriptors lie in the groups that they describe.
        const META_BG = 0x0010;
        /// `extent`: files may be mapped by extents.
        const EXTENTS = 0x0040;
        /// `64bit`: block numbers have 64 bits.
        const SIXTY_FOUR_BIT = 0x0080;
        /// `mmp`: protection against being mounted twice.
        const MMP = 0x0100;
        /// `flex_bg`: bitmaps and inode tables may lie in other groups.
        const FLEX_BG = 0x0200;
        /// `ea_inode`: large attribute values have inodes of their own.
        const EA_INODE = 0x0400;
        /// `dirdata`: data in directory entries (Lustre).
        const DIRDATA = 0x1000;
        /// `metadata_csum_seed`: the checksum seed is stored.
        const CSUM_SEED = 0x2000;
        /// `large_dir`: directories over 2 GiB and hash trees three levels deep.
        const LARGE_DIR = 0x4000;
        /// `inline_data`: small files and directories live in the inode.
        const INLINE_DATA = 0x8000;
        /// `encrypt`: files may be encrypted.
        const ENCRYPT = 0x1_0000;
        /// `casefold`: directories may ignore case.
        const CASEFOLD = 0x2_0000;
        /// Bits without a name here.
        const _ = !0;
    }

    /// Features without which the filesystem can be read, but not written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// `sparse_super`: backup superblocks in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x0001;
        /// `large_file`: a file is larger than 2 GiB.
        const LARGE_FILE = 0x0002;
        /// `btree_dir`: never came into use.
        const BTREE_DIR = 0x0004;
        /// `huge_file`: block counts in units of filesystem blocks.
        const HUGE_FILE = 0x0008;
        /// `uninit_bg`: group descriptors carry a CRC-16.
        const GDT_CSUM = 0x0010;
        /// `dir_nlink`: directories may have more than 65,000 subdirectories.
        const DIR_NLINK = 0x0020;
        /// `extra_isize`: inodes reserve room for more fields.
        const EXTRA_ISIZE = 0x0040;
        /// `has_snapshot`: never came into use.
        const HAS_SNAPSHOT = 0x0080;
        /// `quota`: quota files are part of the filesystem.
        const QUOTA = 0x0100;
        /// `bigalloc`: space is allocated in clusters of blocks.
        const BIGALLOC = 0x0200;
        /// `metadata_csum`: all metadata carries CRC-32C.
        const METADATA_CSUM = 0x0400;
        /// `replica`: never came into use.
        const REPLICA = 0x0800;
        /// `read-only`: must not be written.
        const READONLY = 0x1000;
        /// `project`: project ids and quotas.
        const PROJECT = 0x2000;
        /// `shared_blocks`: files share blocks; must not be written.
        const SHARED_BLOCKS = 0x4000;
        /// `verity`: files may be protected by fs-verity.
        const VERITY = 0x8000;
        /// `orphan_present`: the orphan file is not empty.
        const ORPHAN_PRESENT = 0x1_0000;
        /// Bits without a name here.
        const _ = !0;
    }
}

/// What this crate can read. `RECOVER` is dealt with before anything else is read.
const READABLE: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
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
    .union(Incompat::CASEFOLD);

/// What this crate can write.
const WRITABLE: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::BTREE_DIR)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// The three feature words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// May be ignored when unknown.
    pub compat: Compat,
    /// Must be known to read.
    pub incompat: Incompat,
    /// Must be known to write.
    pub ro_compat: RoCompat,
}

impl Features {
    /// Refuses, by name, what cannot be read.
    pub(crate) fn check_readable(&self) -> Result<(), Error> {
        if self.incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(Error::Unsupported(
                "this is the external journal of another filesystem (feature journal_dev); open the \
                 filesystem's own device"
                    .into(),
            ));
        }
        let unknown = self.incompat.difference(READABLE);
        if unknown.is_empty() {
            return Ok(());
        }
        Err(Error::Unsupported(
            format!(
                "the filesystem uses {}, which this program cannot read",
                incompat_names(unknown).join(", ")
            )
            .into(),
        ))
    }

    /// Refuses, by name, what can be read and not be written.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        let unknown = Self {
            ro_compat: self.ro_compat.difference(WRITABLE),
            // Not supported: updating the number by which other hosts see that the filesystem is in use.
            incompat: self.incompat.intersection(Incompat::MMP),
            compat: Compat::empty(),
        };
        if unknown == Self::NONE {
            return Ok(());
        }
        Err(Error::Unsupported(
            format!(
                "the filesystem uses {}, with which this program can only read it",
                unknown.names().join(", ")
            )
            .into(),
        ))
    }

    /// No feature at all.
    pub(crate) const NONE: Self =
        Self { compat: Compat::empty(), incompat: Incompat::empty(), ro_compat: RoCompat::empty() };

    /// The one feature of this name, as [`names`](Self::names) gives it or as mke2fs has called it before. Case does not
    /// count.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let name = &*name.to_ascii_lowercase();
        if let Some(numbered) = name.strip_prefix("feature_") {
            return Self::by_number(numbered);
        }
        let name = match name {
            "extents" => "extent",
            "uninit_groups" | "gdt_csum" => "uninit_bg",
            name => name,
        };
        let bit = |names: &[Option<&str>]| names.iter().position(|known| *known == Some(name));
        if let Some(bit) = bit(&COMPAT_NAMES) {
            return Some(Compat::from_bits_retain(1 << bit).into());
        }
        if let Some(bit) = bit(&INCOMPAT_NAMES) {
            return Some(Incompat::from_bits_retain(1 << bit).into());
        }
        bit(&RO_COMPAT_NAMES).map(|bit| RoCompat::from_bits_retain(1 << bit).into())
    }

    /// By the letter of its word and its bit.
    fn by_number(numbered: &str) -> Option<Self> {
        let (letter, digits) = numbered.split_at_checked(1)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let bits = 1_u32.checked_shl(digits.parse().ok()?)?;
        match letter {
            "c" => Some(Compat::from_bits_retain(bits).into()),
            "i" => Some(Incompat::from_bits_retain(bits).into()),
            "r" => Some(RoCompat::from_bits_retain(bits).into()),
            _ => None,
        }
    }

    pub(crate) fn contains(&self, other: Self) -> bool {
        self.compat.contains(other.compat)
            && self.incompat.contains(other.incompat)
            && self.ro_compat.contains(other.ro_compat)
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            compat: self.compat | other.compat,
            incompat: self.incompat | other.incompat,
            ro_compat: self.ro_compat | other.ro_compat,
        }
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self {
            compat: self.compat.difference(other.compat),
            incompat: self.incompat.difference(other.incompat),
            ro_compat: self.ro_compat.difference(other.ro_compat),
        }
    }

    /// The names of all features in use, in the order of their bits, as `dumpe2fs` prints them; a bit that
    /// has no name is given as `FEATURE_C31` (`C`, `I`, `R` for the word, then the bit).
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let compat = names(self.compat.bits(), 'C', |bit| COMPAT_NAMES.get(bit).copied().flatten());
        let incompat = incompat_names(self.incompat);
        let ro = names(self.ro_compat.bits(), 'R', |bit| RO_COMPAT_NAMES.get(bit).copied().flatten());
        [compat, incompat, ro].concat()
    }
}

/// A change of features: a word of a list as mke2fs and tune2fs take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureChange {
    /// `none` or `clear`: all go.
    Clear,
    /// `name` or `+name`.
    On(Features),
    /// `^name` or `-name`.
    Off(Features),
}

impl FeatureChange {
    /// The changes of a list, whose words stand between commas or blanks.
    ///
    /// # Errors
    /// What is no feature, in a part of a sentence.
    pub fn list(list: &str) -> Result<Vec<Self>, String> {
        let is_separator = |letter: char| letter == ',' || letter.is_whitespace();
        let mut changes = Vec::new();
        let mut rest = list.trim_start();
        while !rest.is_empty() {
            let (word, behind) = rest.split_once(is_separator).unwrap_or((rest, ""));
            rest = behind.trim_start();
            if word.is_empty() {
                return Err("there is a comma without a feature before it".to_owned());
            }
            if ["none", "clear"].iter().any(|all| word.eq_ignore_ascii_case(all)) {
                changes.push(Self::Clear);
                continue;
            }
            let (name, is_on) = superblock::switch(word);
            let Some(feature) = Features::by_name(name) else {
                return Err(format!("there is no feature {}", name.escape_debug()));
            };
            changes.push(if is_on { Self::On(feature) } else { Self::Off(feature) });
        }
        Ok(changes)
    }
}

impl From<Compat> for Features {
    fn from(compat: Compat) -> Self {
        Self { compat, ..Self::NONE }
    }
}

impl From<Incompat> for Features {
    fn from(incompat: Incompat) -> Self {
        Self { incompat, ..Self::NONE }
    }
}

impl From<RoCompat> for Features {
    fn from(ro_compat: RoCompat) -> Self {
        Self { ro_compat, ..Self::NONE }
    }
}

fn incompat_names(flags: Incompat) -> Vec<String> {
    names(flags.bits(), 'I', |bit| INCOMPAT_NAMES.get(bit).copied().flatten())
}

fn names(word: u32, letter: char, name: impl Fn(usize) -> Option<&'static str>) -> Vec<String> {
    (0..32)
        .filter(|bit| word >> bit & 1 == 1)
        .map(|bit| name(bit).map_or_else(|| format!("FEATURE_{letter}{bit}"), str::to_owned))
        .collect()
}

/// Indexed by bit.
const COMPAT_NAMES: [Option<&str>; 13] = [
    Some("dir_prealloc"),
    Some("imagic_inodes"),
    Some("has_journal"),
    Some("ext_attr"),
    Some("resize_inode"),
    Some("dir_index"),
    Some("lazy_bg"),
    Some("snapshot_inode"),
    Some("snapshot_bitmap"),
    Some("sparse_super2"),
    Some("fast_commit"),
    Some("stable_inodes"),
    Some("orphan_file"),
];

/// Indexed by bit.
const INCOMPAT_NAMES: [Option<&str>; 18] = [
    Some("compression"),
    Some("filetype"),
    Some("needs_recovery"),
    Some("journal_dev"),
    Some("meta_bg"),
    None,
    Some("extent"),
    Some("64bit"),
    Some("mmp"),
    Some("flex_bg"),
    Some("ea_inode"),
    None,
    Some("dirdata"),
    Some("metadata_csum_seed"),
    Some("large_dir"),
    Some("inline_data"),
    Some("encrypt"),
    Some("casefold"),
];

/// Indexed by bit.
const RO_COMPAT_NAMES: [Option<&str>; 17] = [
    Some("sparse_super"),
    Some("large_file"),
    Some("btree_dir"),
    Some("huge_file"),
    Some("uninit_bg"),
    Some("dir_nlink"),
    Some("extra_isize"),
    Some("snapshot"),
    Some("quota"),
    Some("bigalloc"),
    Some("metadata_csum"),
    Some("replica"),
    Some("read-only"),
    Some("project"),
    Some("shared_blocks"),
    Some("verity"),
    Some("orphan_present"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn with_incompat(bits: u32) -> Features {
        Features {
            compat: Compat::empty(),
            incompat: Incompat::from_bits_retain(bits),
            ro_compat: RoCompat::empty(),
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let refusal = with_incompat(0x1 | 0x40 | 1 << 20).check_readable().unwrap_err().to_string();
        assert!(refusal.contains("compression, FEATURE_I20"), "{refusal}");
        assert!(!refusal.contains("extent"), "{refusal}");
        assert!(with_incompat(0x8).check_readable().unwrap_err().to_string().contains("journal"));
        assert!(with_incompat(0x3_e7d6).check_readable().is_ok());
    }

    #[test]
    fn what_cannot_be_written_is_refused_by_name() {
        let with_ro_compat = |bits: u32| Features::from(RoCompat::from_bits_retain(bits));
        let refusal = with_ro_compat(0x1 | 0x200 | 1 << 25).check_writable().unwrap_err().to_string();
        assert!(refusal.contains("uses bigalloc, FEATURE_R25, with"), "{refusal}");
        assert!(with_incompat(0x140).check_writable().unwrap_err().to_string().contains("uses mmp, with"));
        assert!(with_ro_compat(0x1_a47b).check_writable().is_ok());
        assert!(with_incompat(0x3_c2d6).check_writable().is_ok());
    }

    #[test]
    fn lists_are_read_as_mke2fs_reads_them() {
        use FeatureChange::{Clear, Off, On};
        let (extent, journal) = (Incompat::EXTENTS.into(), Compat::HAS_JOURNAL.into());
        for (list, changes) in [
            ("", &[][..]),
            (" ", &[]),
            ("extents,", &[On(extent)]),
            ("+extent,-has_journal ^EXTENT", &[On(extent), Off(journal), Off(extent)]),
            (" none, Has_Journal\tCLEAR", &[Clear, On(journal), Clear]),
            ("FEATURE_I6 feature_c02", &[On(extent), On(journal)]),
        ] {
            assert_eq!(FeatureChange::list(list).unwrap(), changes, "{list:?}");
        }
        for wrong in
            [",", ",extent", "extent,,extent", "extent ,", "^ extent", "^^extent", "+none", "FEATURE_C32"]
        {
            assert!(FeatureChange::list(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["FEATURE_C", "FEATURE_C0x1", "FEATURE_X1", "FEATURE_", "FEATURE_\u{e4}1", "FEATURE_C+1"]
        {
            assert_eq!(Features::by_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_follow_the_bits() {
        let features = Features {
            compat: Compat::HAS_JOURNAL | Compat::ORPHAN_FILE,
            incompat: Incompat::CASEFOLD | Incompat::SIXTY_FOUR_BIT,
            ro_compat: RoCompat::ORPHAN_PRESENT | RoCompat::SPARSE_SUPER,
        };
        let names = ["has_journal", "orphan_file", "64bit", "casefold", "sparse_super", "orphan_present"];
        assert_eq!(features.names(), names);
    }
}
