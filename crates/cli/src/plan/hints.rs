//! Hints behind an image's name: `IMAGE?part=2`, several as `IMAGE?part=2&sb=32768` or `IMAGE?part=2?sb=32768`.
//!
//! A file whose name really ends like that is meant when it exists. What looks like a hint and is none is refused, so that
//! a mistyped one neither names a file that is not there nor makes one.

use std::ffi::OsStr;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;
use crate::text::nearest::nearest;

/// Which part of a disk is meant, and by which of its copies it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    /// `part=N`: the number of a partition.
    pub(super) partition: Option<NonZeroU32>,
    /// `part=NAME`: its name in the partition table.
    pub(super) partition_name: Option<String>,
    /// `sb=BLOCK`: where a copy of the superblock lies.
    pub(super) superblock: Option<NonZeroU64>,
    /// `gpt=backup`: the partition table, though the first sector does not say that there is one.
    pub(super) lost_gpt: bool,
    /// `log=PATH`: the device that an XFS has its log on.
    pub(super) log: Option<PathBuf>,
}

/// How the hints are written.
const HINTS: [(&str, &str); 4] =
    [("part", "?part=N"), ("sb", "?sb=BLOCK"), ("gpt", "?gpt=backup"), ("log", "?log=PATH")];

/// Those that are about an array, and stand behind its last member only.
const OF_ARRAYS: [(&str, &str); 5] = [
    ("uuid", "?uuid=UUID"),
    ("array-part", "?array-part=N"),
    ("degraded", "?degraded"),
    ("force", "?force"),
    ("member_timeout", "?member_timeout=SECONDS"),
];

impl Hints {
    /// Splits what was typed into a path and hints.
    ///
    /// # Errors
    /// A hint that is not known, has no fitting value, or is given twice.
    pub(super) fn split(typed: &OsStr) -> Result<(PathBuf, Self), Failure> {
        let mut rest = typed.as_bytes();
        let mut hints = Self::default();
        while !Path::new(OsStr::from_bytes(rest)).exists()
            && let Some(at) = rest.iter().rposition(|&byte| byte == b'?')
            && let Ok(list) = std::str::from_utf8(&rest[at + 1..])
            && looks_like_hints(list)
        {
            for hint in list.split('&') {
                hints.add(typed, hint)?;
            }
            rest = &rest[..at];
        }
        Ok((PathBuf::from(OsStr::from_bytes(rest)), hints))
    }

    /// Whether a partition is named, in either way.
    pub(super) fn names_partition(&self) -> bool {
        self.partition.is_some() || self.partition_name.is_some()
    }

    /// Takes a number or a name; returns whether it can be one.
    pub(super) fn name_partition(&mut self, value: &str) -> bool {
        match value.parse() {
            Ok(number) => self.partition = Some(number),
            Err(_) if value.bytes().all(|byte| byte.is_ascii_digit()) => return false,
            Err(_) => self.partition_name = Some(value.to_owned()),
        }
        true
    }

    pub(super) fn add(&mut self, typed: &OsStr, hint: &str) -> Result<(), Failure> {
        let shown = safe(typed.as_bytes());
        let wrong = |what: &str| Failure::new(Kind::Usage, format!("{shown}: {what}"));
        let (name, value) = hint.split_once('=').map_or((hint, ""), |(name, value)| (name, value));
        let is_new = match name {
            "part" => {
                let is_new = !self.names_partition();
                if !self.name_partition(value) {
                    return Err(wrong("what follows `?part=` is no number or name of a partition")
                        .advise("partitions are counted from 1"));
                }
                is_new
            }
            "sb" => {
                let block = value.parse().map_err(|_| {
                    wrong("what follows `?sb=` is no block number")
                        .advise("`undercroft info` names the copies of the superblock that are good")
                })?;
                self.superblock.replace(block).is_none()
            }
            "gpt" if value == "backup" => !std::mem::replace(&mut self.lost_gpt, true),
            "log" if !value.is_empty() => self.log.replace(PathBuf::from(value)).is_none(),
            "log" => return Err(wrong("what follows `?log=` is no path")),
            "gpt" => return Err(wrong("the only hint about a GPT is `?gpt=backup`")),
            _ => {
                let failure = wrong(&format!("there is no hint `?{}`", safe(hint.as_bytes())));
                return Err(match nearest(name, known().map(|(name, _)| name)) {
                    Some(meant) => failure.advise(format!("did you mean `{}`", form(meant))),
                    None => failure.advise(
                        "behind an image there may be `?part=N`, `?sb=BLOCK`, `?gpt=backup` and `?log=PATH`"
                            .to_owned(),
                    ),
                });
            }
        };
        if is_new { Ok(()) } else { Err(given_twice(typed, name)) }
    }
}

/// A hint that stands there a second time.
pub(super) fn given_twice(typed: &OsStr, name: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{}: `?{name}` is given twice", safe(typed.as_bytes())))
        .advise("leave one out")
}

fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    HINTS.into_iter().chain(OF_ARRAYS)
}

fn form(name: &str) -> &'static str {
    known().find(|(known, _)| *known == name).map_or("?part=N", |(_, form)| form)
}

/// Whether something behind a `?` is meant as hints: words with values, or words that are nearly a hint's.
fn looks_like_hints(list: &str) -> bool {
    list.split('&').all(|hint| {
        let (name, has_value) = hint.split_once('=').map_or((hint, false), |(name, _)| (name, true));
        let is_word =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(&byte));
        is_word && (has_value || nearest(name, known().map(|(name, _)| name)).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(typed: &str) -> Result<(PathBuf, Hints), Failure> {
        Hints::split(OsStr::new(typed))
    }

    fn part(number: u32) -> Hints {
        Hints { partition: NonZeroU32::new(number), ..Hints::default() }
    }

    #[test]
    fn hints_are_split_off() {
        assert_eq!(split("a.img").unwrap(), ("a.img".into(), Hints::default()));
        assert_eq!(split("a?b.img?part=3").unwrap(), ("a?b.img".into(), part(3)));
        let all =
            Hints { superblock: NonZeroU64::new(32768), lost_gpt: true, log: Some("l/g".into()), ..part(2) };
        for typed in ["a?part=2&sb=32768&gpt=backup&log=l/g", "a?log=l/g?gpt=backup?sb=32768?part=2"] {
            assert_eq!(split(typed).unwrap(), ("a".into(), all.clone()), "{typed}");
        }
        let named = Hints { partition_name: Some("my root".into()), ..Hints::default() };
        assert_eq!(split("a?part=my root").unwrap(), ("a".into(), named));
        for plain in ["what?", "who?me", "a?b.img", "a?1", "?"] {
            assert_eq!(split(plain).unwrap(), (plain.into(), Hints::default()), "{plain}");
        }
    }

    #[test]
    fn what_is_no_hint_is_refused_with_what_is_near() {
        for (wrong, word) in [
            ("a.img?part=0", "counted from 1"),
            ("a.img?part=", "counted from 1"),
            ("a.img?part=00", "counted from 1"),
            ("a.img?part=1&part=root", "`?part` is given twice"),
            ("a.img?part=root&part=1", "`?part` is given twice"),
            ("a.img?part", "counted from 1"),
            ("a.img?sb", "no block number"),
            ("a.img?sb=0", "no block number"),
            ("a.img?gpt", "`?gpt=backup`"),
            ("a.img?prt=1", "did you mean `?part=N`"),
            ("a.img?sz=10M", "did you mean `?sb=BLOCK`"),
            ("a.img?something=1", "there may be `?part=N`"),
            ("a.img?degrade", "did you mean `?degraded`"),
            ("a.img?part=1&part=2", "`?part` is given twice"),
            ("a.img?part=1?part=1", "`?part` is given twice"),
            ("a.img?gpt=backup&gpt=backup", "`?gpt` is given twice"),
        ] {
            let failure = split(wrong).unwrap_err();
            assert_eq!(failure.kind(), Kind::Usage, "{wrong}");
            assert!(failure.to_string().contains(word), "{failure}");
        }
    }

    #[test]
    fn a_file_that_is_named_like_a_hint_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("odd?part=1");
        std::fs::write(&path, "").unwrap();
        assert_eq!(Hints::split(path.as_os_str()).unwrap(), (path.clone(), Hints::default()));
        let typed = format!("{}?part=2", path.display());
        assert_eq!(split(&typed).unwrap(), (path, part(2)));
    }
}
