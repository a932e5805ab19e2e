//! Names without regard to case, as casefolded directories compare them.
//!
//! Linux compares by Unicode 12.1: canonical decomposition with full case folding, default-ignorable code
//! points left out ("NFDICF"). Names that are not UTF-8 are bytes like any other. The tables here come from
//! libraries that know newer versions of Unicode; what those changed for code points that did not exist in
//! 12.1 is undone, since such code points stand for themselves there. The result was compared with
//! `debugfs dx_hash -c` for every code point; see the tests.

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

use crate::features::Incompat;
use crate::superblock::Superblock;

/// How the casefolded directories of a filesystem compare names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Casefold {
    /// Whether a name that the index does not lead to may still be there, under a hash that another version of
    /// Unicode gave it.
    pub(super) may_be_misplaced: bool,
}

impl Casefold {
    /// `None` without the feature, and for an encoding other than UTF-8.
    pub(super) fn of(superblock: &Superblock) -> Option<Self> {
        const UTF8_12_1: u16 = 1;
        const NO_COMPAT_FALLBACK: u16 = 0x2;
        let raw = superblock.raw();
        let is_known =
            superblock.features().incompat.contains(Incompat::CASEFOLD) && raw.s_encoding.get() == UTF8_12_1;
        is_known.then(|| Self { may_be_misplaced: raw.s_encoding_flags.get() & NO_COMPAT_FALLBACK == 0 })
    }
}

/// What two names have in common that differ only in case. `None` for what is not UTF-8, and for a name of
/// nothing but ignorable code points: those are compared byte by byte.
pub(crate) fn fold(name: &[u8]) -> Option<String> {
    let text = str::from_utf8(name).ok()?;
    if text.is_ascii() {
        return Some(text.to_ascii_lowercase());
    }
    let mut folded = String::with_capacity(2 * text.len());
    // Decomposition reorders marks, but never across a code point that is no mark.
    for part in text.split_inclusive(is_newer) {
        let end = part.char_indices().next_back().filter(|&(_, last)| is_newer(last));
        let known = end.map_or(part, |(at, _)| &part[..at]);
        folded.extend(known.chars().default_case_fold().nfd().filter(|&c| !is_ignorable(c)));
        folded.extend(end.map(|(_, newer)| newer));
    }
    (!folded.is_empty()).then_some(folded)
}

fn is_ignorable(c: char) -> bool {
    contains(IGNORABLE, c)
}

fn is_newer(c: char) -> bool {
    contains(NEWER, c)
}

fn contains(ranges: &[(u32, u32)], c: char) -> bool {
    let c = u32::from(c);
    let after = ranges.partition_point(|&(first, _)| first <= c);
    after.checked_sub(1).is_some_and(|i| c <= ranges[i].1)
}

/// `Default_Ignorable_Code_Point` of Unicode 12.1.
const IGNORABLE: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// Code points that came after Unicode 12.1 and fold, decompose or combine.
const NEWER: &[(u32, u32)] = &[
    (0x5c8, 0x5c9),
    (0x897, 0x89f),
    (0x8ca, 0x8d2),
    (0xc3c, 0xc3c),
    (0x1715, 0x1715),
    (0x1abf, 0x1af0),
    (0x1c89, 0x1c89),
    (0x1dfa, 0x1dfa),
    (0x2c2f, 0x2c2f),
    (0xa7c0, 0xa7c0),
    (0xa7c7, 0xa7c7),
    (0xa7c9, 0xa7c9),
    (0xa7cb, 0xa7cc),
    (0xa7d0, 0xa7d0),
    (0xa7d6, 0xa7d6),
    (0xa7d8, 0xa7d8),
    (0xa7da, 0xa7da),
    (0xa7dc, 0xa7dc),
    (0xa7f5, 0xa7f5),
    (0xa82c, 0xa82c),
    (0x10570, 0x1057a),
    (0x1057c, 0x1058a),
    (0x1058c, 0x10592),
    (0x10594, 0x10595),
    (0x105c9, 0x105c9),
    (0x105e4, 0x105e4),
    (0x10d50, 0x10d65),
    (0x10d69, 0x10d6d),
    (0x10eab, 0x10eac),
    (0x10ecb, 0x10ecf),
    (0x10ef0, 0x10efb),
    (0x10efd, 0x10eff),
    (0x10f82, 0x10f85),
    (0x11070, 0x11070),
    (0x11383, 0x11383),
    (0x11385, 0x11385),
    (0x1138e, 0x1138e),
    (0x11391, 0x11391),
    (0x113c5, 0x113c5),
    (0x113c7, 0x113c8),
    (0x113ce, 0x113d0),
    (0x11938, 0x11938),
    (0x1193d, 0x1193e),
    (0x11943, 0x11943),
    (0x11f41, 0x11f42),
    (0x16121, 0x16128),
    (0x1612f, 0x1612f),
    (0x16d68, 0x16d6a),
    (0x16ff0, 0x16ff1),
    (0x1d127, 0x1d128),
    (0x1d250, 0x1d252),
    (0x1d25b, 0x1d25c),
    (0x1d25f, 0x1d25f),
    (0x1d280, 0x1d281),
    (0x1e08f, 0x1e08f),
    (0x1e2ae, 0x1e2ae),
    (0x1e4ec, 0x1e4ef),
    (0x1e5ee, 0x1e5ef),
    (0x1e6e3, 0x1e6e3),
    (0x1e6e6, 0x1e6e6),
    (0x1e6ee, 0x1e6ef),
    (0x1e6f5, 0x1e6f5),
];

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn folded(name: &str) -> Option<String> {
        fold(name.as_bytes())
    }

    #[test]
    fn names_that_differ_in_case_or_composition_fold_alike() {
        for (a, b) in [
            ("README", "readme"),
            ("Straße", "STRASSE"),
            ("\u{e9}t\u{e9}", "E\u{301}TE\u{301}"),
            ("\u{212b}", "\u{e5}"),
            ("\u{17f}\u{212a}", "sk"),
            ("fi\u{200d}le", "FILE"),
            // A mark that is a letter when folded stands where it stood.
            ("\u{391}\u{345}\u{301}", "\u{3b1}\u{3b9}\u{301}"),
        ] {
            assert_eq!(folded(a), folded(b), "{a} {b}");
            assert!(folded(a).is_some());
        }
        assert_ne!(folded("\u{131}"), folded("i"), "the Turkish dotless i is a letter of its own");
    }

    #[test]
    fn what_cannot_be_folded_is_compared_as_bytes() {
        assert_eq!(fold(b"\xff"), None);
        assert_eq!(fold(b"\xed\xa0\x80"), None);
        assert_eq!(folded("\u{200d}"), None);
    }

    #[test]
    fn code_points_after_unicode_12_1_stand_for_themselves() {
        // Vithkuqi capital A, of Unicode 14; an upper-case letter before and after it still folds.
        assert_eq!(folded("A\u{10570}B").unwrap(), "a\u{10570}b");
        // A combining mark of Unicode 14 does not move.
        assert_eq!(folded("a\u{301}\u{1ac1}\u{316}").unwrap(), "a\u{301}\u{1ac1}\u{316}");
        assert_eq!(folded("\u{1ac1}").unwrap(), "\u{1ac1}");
    }

    #[test]
    fn tables_are_in_order() {
        for table in [IGNORABLE, NEWER] {
            assert!(table.is_sorted_by(|a, b| a.1 < b.0));
            assert!(table.iter().all(|(first, last)| first <= last));
        }
    }

    /// Folding leaves nothing to fold, so comparing folded names is enough.
    #[test]
    fn folding_twice_is_folding_once() {
        for c in '\u{1}'..=char::MAX {
            if let Some(once) = folded(&c.to_string()) {
                assert_eq!(folded(&once).as_ref(), Some(&once), "U+{:04X}", u32::from(c));
            }
        }
    }
}

#[cfg(all(test, feature = "oracle"))]
mod oracle_tests {
    use undercroft_oracle::{Scratch, Tool};

    use super::super::hash::NameHasher;
    use super::tests::folded;
    use super::*;
    use crate::superblock::HashDefaults;

    /// The hash of a folded name shows how e2fsprogs, which has Linux's tables, folds it.
    fn assert_folded_as_debugfs_does(names: &[String]) {
        let scratch = Scratch::new("casefold").unwrap();
        let script = scratch.path().join("commands");
        let commands: String =
            names.iter().map(|name| format!("dx_hash -c -e utf8 -h half_md4 {name}\n")).collect();
        std::fs::write(&script, commands).unwrap();
        let answers = Tool::new("debugfs").arg("-f").arg(script).run_text().unwrap();
        let answers: Vec<&str> = answers.lines().filter(|line| line.starts_with("Hash of ")).collect();
        assert_eq!(answers.len(), names.len());

        let defaults = HashDefaults { version: 1, seed: [0; 4], unsigned: false };
        let hasher = NameHasher::new(1, defaults).unwrap();
        let wrong = names.iter().zip(answers).filter(|(name, answer)| {
            let folded = folded(name).unwrap_or_else(|| (*name).clone());
            let hash = hasher.hash(folded.as_bytes());
            let ours = format!("is {:#x} (minor {:#x})", hash.major, hash.minor);
            !answer.ends_with(&ours)
        });
        let wrong: Vec<_> = wrong.map(|(name, _)| name.escape_unicode().to_string()).take(20).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn every_code_point_folds_as_debugfs_folds_it() {
        let names: Vec<_> = ('\u{80}'..=char::MAX).map(|c| format!("xA{c}")).collect();
        assert_folded_as_debugfs_does(&names);
    }

    /// Marks in every order, between letters that decompose, fold, vanish or came later.
    #[test]
    fn sequences_fold_as_debugfs_folds_them() {
        let interesting: Vec<char> = ('\u{c0}'..=char::MAX)
            .filter(|&c| {
                folded(&c.to_string()).is_none_or(|f| f != c.to_string()) || is_newer(c) || is_mark(c)
            })
            .collect();
        let mut random = undercroft_block::testing::Rng::new(0);
        let mut random = |below: usize| random.index(below);
        let names: Vec<String> = (0..50_000)
            .map(|_| {
                let tail = (0..1 + random(12)).map(|_| interesting[random(interesting.len())]);
                std::iter::once('n').chain(tail).collect()
            })
            .collect();
        assert_folded_as_debugfs_does(&names);
    }

    fn is_mark(c: char) -> bool {
        unicode_normalization::char::canonical_combining_class(c) != 0
    }
}
