//! What is decided where nothing was asked for: by a mke2fs.conf, or as mke2fs has it without one.
//!
//! A filesystem has a list of types: its family, and then its usage, `floppy` to `huge` by its size unless others are
//! named (`mke2fs -T`). Each may have a subsection of `fs_types`. The last type that has a value for a tag decides, then
//! the section `defaults`. The changes of features of all types count, one after the other.
//!
//! Tags that say how mke2fs asks and warns have no meaning here. Of the others those that are not made are refused by
//! name, where they ask for something. Source: mke2fs.conf(5), and what mke2fs 1.47 makes of such files.

mod parse;
mod usual;

use std::collections::BTreeMap;
use std::fmt;

use parse::{Section, Values};
pub(super) use usual::Usual;

use super::number::c_number;
use super::options::Family;

const MIB: u64 = 1 << 20;
/// So many of the names that a configuration has are told of.
const NAMES_TOLD: usize = 20;
/// The usage of a filesystem that is neither small nor big. It needs no subsection.
const DEFAULT_USAGE: &str = "default";

/// What a mke2fs.conf says.
#[derive(Clone, Debug)]
pub struct Mke2fsConf {
    /// As messages call it.
    name: String,
    sections: BTreeMap<String, Section>,
}

/// Why a text is no mke2fs.conf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ConfError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Mke2fsConf {
    /// Reads a text; `name` is what messages call it.
    ///
    /// # Errors
    /// What is wrong with which line.
    pub fn parse(name: impl Into<String>, text: &str) -> Result<Self, ConfError> {
        Ok(Self { name: name.into(), sections: parse::sections(text)? })
    }

    /// Takes what another one has besides.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (name, section) in other.sections {
            let own = self.sections.entry(name).or_default();
            for (tag, value) in section.values {
                own.values.entry(tag).or_insert(value);
            }
            for (name, values) in section.subsections {
                let own = own.subsections.entry(name).or_default();
                for (tag, value) in values {
                    own.entry(tag).or_insert(value);
                }
            }
        }
        self
    }

    /// What upstream's e2fsprogs 1.47 has without a file. Debian's 1.47.0 has neither `orphan_file` nor
    /// `metadata_csum_seed` then.
    #[must_use]
    pub fn built_in() -> Self {
        let values = |pairs: &[(&str, &str)]| -> Values {
            pairs.iter().map(|&(tag, value)| (tag.to_owned(), value.to_owned())).collect()
        };
        let defaults = values(&[
            ("base_features", "sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr"),
            ("default_mntopts", "acl,user_xattr"),
            ("blocksize", "4096"),
            ("inode_size", "256"),
            ("inode_ratio", "16384"),
        ]);
        let ext4 = "has_journal,extent,huge_file,flex_bg,metadata_csum,metadata_csum_seed,64bit,dir_nlink,extra_isize,\
                    orphan_file";
        let types: [(&str, &[(&str, &str)]); 12] = [
            ("ext2", &[]),
            ("ext3", &[("features", "has_journal")]),
            ("ext4", &[("features", ext4)]),
            ("small", &[("blocksize", "1024"), ("inode_ratio", "4096")]),
            ("floppy", &[("blocksize", "1024"), ("inode_ratio", "8192")]),
            ("big", &[("inode_ratio", "32768")]),
            ("huge", &[("inode_ratio", "65536")]),
            ("news", &[("inode_ratio", "4096")]),
            ("largefile", &[("inode_ratio", "1048576"), ("blocksize", "-1")]),
            ("largefile4", &[("inode_ratio", "4194304"), ("blocksize", "-1")]),
            ("default", &[]),
            ("hurd", &[("blocksize", "4096"), ("inode_size", "128")]),
        ];
        let subsections = types.iter().map(|(name, pairs)| ((*name).to_owned(), values(pairs))).collect();
        let sections = [
            ("defaults".to_owned(), Section { values: defaults, subsections: BTreeMap::new() }),
            ("fs_types".to_owned(), Section { values: Values::new(), subsections }),
        ];
        Self { name: "mke2fs's own defaults".to_owned(), sections: sections.into() }
    }

    /// What counts for a filesystem of this family, usage and size; why not, in one sentence.
    pub(super) fn of(&self, family: Family, usage: &[String], size_bytes: u64) -> Result<View<'_>, String> {
        let by_size = match size_bytes / MIB {
            0..3 => "floppy",
            3..512 => "small",
            512..0x40_0000 => DEFAULT_USAGE,
            0x40_0000..0x100_0000 => "big",
            _ => "huge",
        };
        let types = self.sections.get("fs_types").map(|section| &section.subsections);
        let named = |name: &str| types.and_then(|types| types.get(name));
        let family = family.name();
        // ext2 is what remains without any features of a type.
        let own = named(family);
        if own.is_none() && family != "ext2" {
            return Err(format!("{} does not define {family}; take what is built in (--no-conf)", self.name));
        }
        let mut views: Vec<&Values> = own.into_iter().collect();
        if usage.is_empty() {
            views.extend(named(by_size));
        }
        for usage in usage.iter().filter(|usage| !usage.is_empty()) {
            match named(usage) {
                Some(values) => views.push(values),
                None if usage == DEFAULT_USAGE => {}
                None => {
                    let mut known =
                        types.into_iter().flatten().map(|(name, _)| name.escape_debug().to_string());
                    let told: Vec<String> = known.by_ref().take(NAMES_TOLD).collect();
                    let (name, told, more) = (&self.name, told.join(", "), known.count());
                    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                    return Err(format!("{name} does not define the usage {usage:?}; it has {told}{more}"));
                }
            }
        }
        let defaults = self.sections.get("defaults").map(|section| &section.values);
        Ok(View { name: &self.name, types: views, defaults })
    }
}

/// What counts for one filesystem.
#[derive(Clone, Debug)]
pub(super) struct View<'a> {
    name: &'a str,
    /// From the family to the last usage.
    types: Vec<&'a Values>,
    defaults: Option<&'a Values>,
}

impl<'a> View<'a> {
    /// As messages call where it comes from.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// What is said of a tag.
    fn text(&self, tag: &str) -> Option<&'a str> {
        let mut all = self.types.iter().rev().chain(&self.defaults);
        all.find_map(|values| values.get(tag)).map(String::as_str)
    }

    /// What each type says of a tag, in order.
    fn of_types(&self, tag: &'static str) -> impl Iterator<Item = &'a str> {
        self.types.iter().filter_map(move |values| values.get(tag)).map(String::as_str)
    }

    fn number<T: TryFrom<i64>>(&self, tag: &str) -> Result<Option<T>, String> {
        let Some(text) = self.text(tag) else { return Ok(None) };
        let number = c_number(text).and_then(|number| T::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.unfitting(tag, text))
    }

    fn real(&self, tag: &str) -> Result<Option<f64>, String> {
        let Some(text) = self.text(tag) else { return Ok(None) };
        let number = text.parse().ok().or_else(|| c_number(text).map(|number| number as f64));
        number.map(Some).ok_or_else(|| self.unfitting(tag, text))
    }

    fn boolean(&self, tag: &str) -> Result<Option<bool>, String> {
        let Some(text) = self.text(tag) else { return Ok(None) };
        match &*text.to_ascii_lowercase() {
            "y" | "yes" | "t" | "true" | "1" | "on" => Ok(Some(true)),
            "n" | "no" | "f" | "false" | "nil" | "0" | "off" => Ok(Some(false)),
            _ => Err(self.unfitting(tag, text)),
        }
    }

    fn unfitting(&self, tag: &str, text: impl fmt::Debug) -> String {
        format!(
            "{}: {tag} = {text:?} is not understood; correct it there, or leave the file out (--no-conf)",
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(text: &str, usage: &[&str]) -> Result<Usual, String> {
        let usage: Vec<String> = usage.iter().map(|&name| name.to_owned()).collect();
        let conf = Mke2fsConf::parse("the file", text).unwrap();
        conf.of(Family::Ext3, &usage, 1 << 30).and_then(|view| Usual::of(&view))
    }

    fn refusal(text: &str, usage: &[&str]) -> String {
        usual(text, usage).unwrap_err()
    }

    #[test]
    fn the_last_type_that_says_something_decides() {
        let text = "[defaults]\ninode_size = 128\ninode_ratio = 1024\n[fs_types]\next3 = {\nfeatures = a\ninode_size = 256\n}\n\
                    news = {\nfeatures = b\ninode_size = 512\n}\nbig = {\nfeatures = c\n}\n";
        let found = usual(text, &["news", "default", "big"]).unwrap();
        assert_eq!((found.inode_bytes, found.bytes_per_inode), (512, 1024));
        assert_eq!(found.features[1..], ["a", "b", "c"]);
        assert_eq!(usual(text, &[]).unwrap().inode_bytes, 256);
    }

    #[test]
    fn what_cannot_be_made_or_read_is_refused_by_name() {
        let of = |line: &str| refusal(&format!("[fs_types]\next3 = {{\n{line}\n}}\n"), &[]);
        for (line, words) in [
            ("inode_size = large", "inode_size = \"large\" is not understood"),
            ("blocksize = -4096", "blocksize = -4096"),
            ("errors = ignore", "errors = \"ignore\""),
            ("hash_alg = md5", "hash_alg"),
            ("default_mntopts = acl,nonesuch", "nonesuch"),
            ("discard = maybe", "discard"),
            ("make_hugefiles = maybe", "make_hugefiles = \"maybe\" is not understood"),
            ("inode_ratio = 8192x", "inode_ratio"),
            ("creator_os = hurd", "creator_os"),
            ("make_hugefiles = 1", "make_hugefiles = 1, which the file asks for, cannot be made"),
            ("options = test_fs", "options = test_fs"),
        ] {
            let refusal = of(line);
            assert!(refusal.contains(words) && refusal.contains("--no-conf"), "{line}: {refusal}");
        }
        assert!(refusal("[defaults]\n", &[]).contains("the file does not define ext3"));
        let unknown = refusal("[fs_types]\next3 = {\n}\nnews = {\n}\n", &["new"]);
        assert!(unknown.ends_with("usage \"new\"; it has ext3, news"), "{unknown}");
        let many: String = (0..50_000).map(|n| format!("t{n:05} = {{\n}}\n")).collect();
        let unknown = refusal(&format!("[fs_types]\next3 = {{\n}}\n\u{1b} = {{\n}}\n{many}"), &["new"]);
        assert!(
            unknown.contains("has \\u{1b}, ext3, t00000") && unknown.ends_with("and 49982 more"),
            "{unknown}"
        );
    }

    #[test]
    fn numbers_and_switches_are_read_as_mke2fs_reads_them() {
        let of = |lines: &str| usual(&format!("[fs_types]\next3 = {{\n{lines}\n}}\n"), &[]).unwrap();
        let found = of("inode_size = 0x200\ninode_ratio = 020000\nflex_bg_size = 24\nlazy_itable_init = OFF");
        assert_eq!((found.inode_bytes, found.bytes_per_inode, found.groups_per_flex), (512, 8192, 24));
        assert!(!found.lazy_inode_tables);
        let found =
            of("make_hugefiles = False\ncreator_os = LINUX\nnum_backup_sb = 1\ninode_ratio = 134217728");
        assert_eq!((found.copies, found.bytes_per_inode), (1, 1 << 27));
    }

    #[test]
    fn of_several_files_the_first_that_says_something_counts() {
        let one = Mke2fsConf::parse("a", "[fs_types]\next3 = {\ninode_size = 512\n}\n").unwrap();
        let other =
            "[defaults]\nblocksize = 1024\n[fs_types]\next3 = {\ninode_size = 256\ninode_ratio = 4096\n}\n";
        let both = one.and(Mke2fsConf::parse("b", other).unwrap());
        let found = both.of(Family::Ext3, &[], 1 << 30).and_then(|view| Usual::of(&view)).unwrap();
        assert_eq!((found.inode_bytes, found.block_bytes, found.bytes_per_inode), (512, 1024, 4096));
    }
}
