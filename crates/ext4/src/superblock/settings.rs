//! Settings of a superblock that mke2fs and tune2fs name by words.
//!
//! Source: mke2fs(8), tune2fs(8), mke2fs.conf(5), and the fields that dumpe2fs shows.

/// What the kernel does when it finds damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It goes on.
    Continue = 1,
    /// It takes no changes any more.
    RemountReadOnly = 2,
    /// It stops the machine.
    Panic = 3,
}

impl OnError {
    /// By the word of Linux's tools.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "continue" => Some(Self::Continue),
            "remount-ro" => Some(Self::RemountReadOnly),
            "panic" => Some(Self::Panic),
            _ => None,
        }
    }

    /// The word of Linux's tools.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::RemountReadOnly => "remount-ro",
            Self::Panic => "panic",
        }
    }

    pub(super) const fn by_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Continue),
            2 => Some(Self::RemountReadOnly),
            3 => Some(Self::Panic),
            _ => None,
        }
    }
}

/// How names are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// `legacy`
    Legacy = 0,
    /// `half_md4`
    HalfMd4 = 1,
    /// `tea`
    Tea = 2,
}

impl HashAlgorithm {
    /// By the word of Linux's tools.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match &*name.to_ascii_lowercase() {
            "legacy" => Some(Self::Legacy),
            "half_md4" => Some(Self::HalfMd4),
            "tea" => Some(Self::Tea),
            _ => None,
        }
    }

    /// The word of Linux's tools.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::HalfMd4 => "half_md4",
            Self::Tea => "tea",
        }
    }

    pub(super) const fn by_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Legacy),
            1 => Some(Self::HalfMd4),
            2 => Some(Self::Tea),
            _ => None,
        }
    }
}

/// A mount option that a filesystem has by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountDefault {
    bits: u32,
    /// The bits that it stands in.
    mask: u32,
}

/// The modes of a journal stand in two bits.
const JOURNAL_MODES: u32 = 0x60;
/// Names, and bits with their mask.
const MOUNT_DEFAULTS: [(&str, u32, u32); 12] = [
    ("debug", 0x1, 0x1),
    ("bsdgroups", 0x2, 0x2),
    ("user_xattr", 0x4, 0x4),
    ("acl", 0x8, 0x8),
    ("uid16", 0x10, 0x10),
    ("journal_data", 0x20, JOURNAL_MODES),
    ("journal_data_ordered", 0x40, JOURNAL_MODES),
    ("journal_data_writeback", 0x60, JOURNAL_MODES),
    ("nobarrier", 0x100, 0x100),
    ("block_validity", 0x200, 0x200),
    ("discard", 0x400, 0x400),
    ("nodelalloc", 0x800, 0x800),
];

impl MountDefault {
    /// By the name that tune2fs gives it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let mut all = MOUNT_DEFAULTS.iter();
        let found = all.find(|(known, ..)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, bits, mask)| Self { bits, mask })
    }

    /// The option that a word of tune2fs's list switches, and whether on: `name` or `+name`, `^name` or `-name` for off.
    #[must_use]
    pub fn switched_by(word: &str) -> Option<(Self, bool)> {
        let (name, is_on) = switch(word);
        Some((Self::by_name(name)?, is_on))
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MOUNT_DEFAULTS.iter().map(|(name, ..)| *name)
    }

    /// The names of those that the superblock's bits have.
    pub(super) fn names_in(bits: u32) -> Vec<&'static str> {
        let has = |&&(_, own, mask): &&(&str, u32, u32)| bits & mask == own;
        MOUNT_DEFAULTS.iter().filter(has).map(|(name, ..)| *name).collect()
    }

    /// The superblock's bits, with this option on or off. Any mode of the journal goes where one is switched off.
    pub(crate) fn switch(self, now: u32, on: bool) -> u32 {
        let Self { bits, mask } = self;
        now & !mask | if on { bits } else { 0 }
    }
}

/// A word of a list as mke2fs and tune2fs take it: the name, and whether it is switched on.
pub(crate) fn switch(word: &str) -> (&str, bool) {
    match word.strip_prefix(['^', '-']) {
        Some(name) => (name, false),
        None => (word.strip_prefix('+').unwrap_or(word), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_of_the_journal_that_is_switched_off_leaves_none() {
        for mode in ["journal_data", "journal_data_ordered", "journal_data_writeback"] {
            for (word, on) in [("^journal_data", false), ("-Journal_Data_Writeback", false)] {
                let (option, is_on) = MountDefault::switched_by(word).unwrap();
                assert_eq!(is_on, on);
                let now = MountDefault::by_name(mode).unwrap().switch(0xC, true);
                assert_eq!(option.switch(now, is_on), 0xC, "{mode} {word}");
            }
        }
        assert_eq!(MountDefault::switched_by("^^acl"), None);
    }
}
