//! What a new filesystem is filled with, from what was typed.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undercroft_populate::{LeftOut, NoPlatform, Platform, Rules};
use undercroft_vfs::Timestamp;
use uuid::{Builder, Uuid};

use super::mkfs::size;
use crate::args::FromArgs;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::pattern::Exclude;
use crate::text::names::safe;
use crate::text::note::note;

/// Most bytes that come out of a compressed source, unless more are allowed.
pub(crate) const MOST_BYTES: u64 = 1 << 40;

/// What a new filesystem is filled with.
#[derive(Clone, Debug)]
pub(crate) struct FillPlan {
    /// Directories and archives, in order; `-` is standard input.
    pub(crate) sources: Vec<PathBuf>,
    /// What is changed of them.
    pub(crate) rules: Arc<Rules>,
    /// Directories on other filesystems are not entered, as by `tar` and `cp -x`; they stay, empty.
    pub(crate) one_file_system: bool,
    /// Space beside what they need, where they decide the size.
    pub(crate) free: Free,
    /// They decide it also where there is an image.
    pub(crate) auto_size: bool,
    /// Most bytes that come out of a compressed source.
    pub(crate) most_bytes: u64,
    /// Which of an image's platforms.
    pub(crate) platform: Option<Platform>,
    /// Reading and writing on one thread.
    pub(crate) single_thread: bool,
    /// The time at which the filesystem is made.
    pub(crate) time: Option<Timestamp>,
}

/// Space that is left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Free {
    /// None.
    #[default]
    Nothing,
    /// This part of the filesystem, in percent.
    Percent(f64),
    /// So many bytes.
    Bytes(u64),
}

/// A text that stands for what is random otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) String);

impl Seed {
    /// A number for one purpose.
    pub(crate) fn bytes(&self, purpose: &str) -> [u8; 16] {
        digest(&[self.0.as_bytes(), purpose.as_bytes()])
    }

    /// A UUID for one purpose.
    pub(crate) fn uuid(&self, purpose: &str) -> Uuid {
        Builder::from_random_bytes(self.bytes(purpose)).into_uuid()
    }
}

/// A number that depends on all bytes of all parts, and on where parts end.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut sum = Sha256::new();
    for part in parts {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    let mut first = [0; 16];
    first.copy_from_slice(&sum.finalize()[..16]);
    first
}

impl FillPlan {
    /// `None` if nothing is to be filled in. `seed` counts all the same.
    pub(super) fn of(
        typed: &FromArgs,
        directory: Option<&OsStr>,
        size_typed: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        let sources: Vec<PathBuf> =
            directory.into_iter().map(PathBuf::from).chain(typed.from.iter().map(PathBuf::from)).collect();
        if sources.is_empty() {
            return Ok(None);
        }
        if sources.iter().filter(|source| **source == Path::new("-")).count() > 1 {
            return Err(Failure::new(Kind::Usage, "standard input is given twice as a source"));
        }
        let epoch = source_date_epoch()?;
        let free = typed.free.as_deref().map(free).transpose()?.unwrap_or_default();
        let max = typed.max_size.as_deref().map(size).transpose()?;
        Ok(Some(Self {
            sources,
            rules: Arc::new(rules(typed, epoch)?),
            one_file_system: typed.one_file_system,
            free,
            auto_size: size_typed == Some("auto") || free != Free::Nothing,
            most_bytes: max.unwrap_or(MOST_BYTES),
            platform: typed.platform.as_deref().map(platform).transpose()?,
            single_thread: typed.threads == Some(1),
            time: epoch,
        }))
    }

    /// Gives the root an owner and a group, whatever the sources say.
    pub(super) fn set_root_owner(&mut self, owner: (u32, u32)) {
        Arc::make_mut(&mut self.rules).root_owner = Some(owner);
    }
}

pub(super) fn seed(typed: &FromArgs) -> Option<Seed> {
    typed.seed.clone().map(Seed)
}

/// The time that <https://reproducible-builds.org/specs/source-date-epoch/> asks for.
pub(super) fn source_date_epoch() -> Result<Option<Timestamp>, Failure> {
    let Some(text) = env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| {
        Failure::new(Kind::Usage, "SOURCE_DATE_EPOCH is no number of seconds")
            .advise("unset it, or set it to one")
    })?;
    Ok(Some(Timestamp { seconds, nanoseconds: 0 }))
}

fn rules(typed: &FromArgs, epoch: Option<Timestamp>) -> Result<Rules, Failure> {
    let (mut owner, mut group) = (None, None);
    if let Some(both) = &typed.owner {
        let (user, of_user) = pair("--owner", both)?;
        (owner, group) = (Some(user), of_user);
    }
    if let Some(typed) = &typed.group {
        group = Some(id("--group", typed)?);
    }
    let (users, mut groups) = typed.owner_map.as_deref().map(owner_map).transpose()?.unwrap_or_default();
    if let Some(path) = typed.group_map.as_deref() {
        groups.extend(owner_map(path)?.0);
    }
    let mode = typed.mode.as_deref().map(|mode| {
        mode.parse().map_err(|error: undercroft_populate::NoMode| {
            Failure::new(Kind::Usage, format!("--mode {mode}")).because(&error)
        })
    });
    let modified = match &typed.mtime {
        Some(date) => Some(time(date)?),
        None if typed.clamp_mtime => Some(epoch.ok_or_else(|| {
            Failure::new(Kind::Usage, "--clamp-mtime needs a time")
                .advise("give --mtime, or set SOURCE_DATE_EPOCH")
        })?),
        None => None,
    };
    let exclude = Exclude::parse(typed.exclude.iter().map(OsStr::new))?;
    for rooted in typed.exclude.iter().filter(|pattern| pattern.as_bytes().starts_with(b"/")) {
        let shown = safe(rooted.as_bytes());
        let without = shown.trim_start_matches('/');
        note(format_args!(
            "--exclude {shown} matches nothing, as paths of a source begin without a slash: write {without}"
        ));
    }
    let left_out: Option<LeftOut> = (!typed.exclude.is_empty())
        .then(|| Arc::new(move |path: &[u8]| exclude.has_or_is_below(path)) as LeftOut);
    Ok(Rules {
        left_out,
        users,
        groups,
        owner,
        group,
        root_owner: None,
        mode: mode.transpose()?,
        modified,
        only_later: typed.clamp_mtime,
    })
}

/// A user or a group by its number; `root` is 0 everywhere.
fn id(option: &str, typed: &str) -> Result<u32, Failure> {
    let number = match typed.strip_prefix('+').unwrap_or(typed) {
        "root" => Some(0),
        number => number.parse().ok().filter(|&id| id != u32::MAX),
    };
    number.ok_or_else(|| {
        Failure::new(Kind::Usage, format!("{option}: {typed:?} is no number"))
            .advise("give a number: what names stand for is decided by the system in the image")
    })
}

fn pair(option: &str, typed: &str) -> Result<(u32, Option<u32>), Failure> {
    match typed.split_once(':') {
        Some((user, group)) => Ok((id(option, user)?, Some(id(option, group)?))),
        None => Ok((id(option, typed)?, None)),
    }
}

type Map = HashMap<u32, u32>;

/// Users, and groups of the same old number, by a file of lines `OLD NEW[:NEWGROUP]`; `#` begins a comment.
fn owner_map(path: &OsStr) -> Result<(Map, Map), Failure> {
    let shown = Path::new(path).display();
    let text = fs::read_to_string(path).map_err(|error| Failure::host(shown.to_string(), &error))?;
    let (mut users, mut groups) = (Map::new(), Map::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let place = format!("{shown}, line {}", number + 1);
        let mut words = line.split_whitespace();
        let (Some(old), Some(new), None) = (words.next(), words.next(), words.next()) else {
            return Err(Failure::new(
                Kind::Usage,
                format!("{place}: it is not of the form OLD NEW[:NEWGROUP]"),
            ));
        };
        let (user, group) = pair(&place, new)?;
        let old = id(&place, old)?;
        if users.insert(old, user).is_some() {
            return Err(Failure::new(Kind::Usage, format!("{place}: {old} stands there a second time")));
        }
        if let Some(group) = group {
            groups.insert(old, group);
        }
    }
    Ok((users, groups))
}

/// A time as tar takes it, in the forms that mean the same everywhere.
fn time(typed: &str) -> Result<Timestamp, Failure> {
    let seconds = match typed.strip_prefix('@') {
        Some(seconds) => seconds.parse().ok().map(|seconds| Timestamp { seconds, nanoseconds: 0 }),
        None => {
            let moment = typed.parse::<jiff::Timestamp>().ok().or_else(|| {
                let day = typed.parse::<jiff::civil::Date>().ok()?;
                Some(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
            });
            moment.map(|moment| {
                let (seconds, nanoseconds) = (moment.as_second(), moment.subsec_nanosecond());
                let before = i64::from(nanoseconds < 0);
                Timestamp {
                    seconds: seconds - before,
                    nanoseconds: (nanoseconds + if before == 1 { 1_000_000_000 } else { 0 }).unsigned_abs(),
                }
            })
        }
    };
    seconds.ok_or_else(|| {
        Failure::new(Kind::Usage, format!("--mtime: {typed:?} is no time"))
            .advise("write it as 2026-11-28, 2026-11-28T10:00:00Z or @1795000000")
    })
}

fn platform(typed: &str) -> Result<Platform, Failure> {
    typed
        .parse()
        .map_err(|error: NoPlatform| Failure::new(Kind::Usage, format!("--platform {typed}")).because(&error))
}

fn free(typed: &str) -> Result<Free, Failure> {
    match typed.strip_suffix('%') {
        None if typed.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(Failure::new(Kind::Usage, format!("--free: {typed} of what?"))
                .advise("write it as 10% or 2G"))
        }
        None => size(typed).map(Free::Bytes),
        Some(percent) => {
            let percent = percent.parse().ok().filter(|percent| (0.0..=95.0).contains(percent));
            percent.map(Free::Percent).ok_or_else(|| {
                Failure::new(Kind::Usage, format!("--free: {typed:?} is no part of a filesystem"))
                    .advise("write it as 10% or 2G")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_space_are_read() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(time("@-5").unwrap(), at(-5, 0));
        assert_eq!(time("1970-01-02").unwrap(), at(86400, 0));
        assert_eq!(time("1969-12-31T23:59:58.5Z").unwrap(), at(-2, 500_000_000));
        assert!(time("yesterday").is_err());
        assert_eq!(free("10%").unwrap(), Free::Percent(10.0));
        assert_eq!(free("2G").unwrap(), Free::Bytes(2 << 30));
        assert!(free("100%").is_err() && free("x%").is_err());
        assert_eq!(pair("--owner", "root:+5").unwrap(), (0, Some(5)));
        assert!(pair("--owner", "lisa").is_err());
    }
}
