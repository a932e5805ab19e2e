//! How sources of files are read and what is changed of them, from what was typed.

use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_populate::{FileId, LeftOut, ModeChange, NoMode, NoPlatform, OpenSource, Platform, Rules};
use undercroft_vfs::Timestamp;

use super::mkfs::size;
use crate::args::SourceArgs;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::pattern::Exclude;
use crate::text::names::safe;
use crate::text::note::note;

/// Most bytes that come out of a compressed source, unless more are allowed.
const MOST_BYTES: u64 = 1 << 40;

/// How sources are read.
#[derive(Clone, Debug)]
pub(crate) struct SourcePlan {
    /// What is changed of them.
    pub(crate) rules: Arc<Rules>,
    /// Directories on other filesystems are not entered, as by `tar` and `cp -x`; they stay, empty.
    pub(crate) one_file_system: bool,
    /// Most bytes that come out of a compressed source.
    most_bytes: u64,
    /// Which of an image's platforms.
    platform: Option<Platform>,
}

impl SourcePlan {
    pub(super) fn of(typed: &SourceArgs) -> Result<Self, Failure> {
        Ok(Self {
            rules: Arc::new(rules(typed, source_date_epoch()?)?),
            one_file_system: typed.one_file_system,
            most_bytes: typed.max_size.as_deref().map(size).transpose()?.unwrap_or(MOST_BYTES),
            platform: typed.platform.as_deref().map(platform).transpose()?,
        })
    }

    /// What is changed of what none of its patterns leaves out.
    pub(crate) fn changes(&self) -> Arc<Rules> {
        Arc::new(Rules { left_out: None, ..Rules::clone(&self.rules) })
    }

    /// How a source is opened. The files `not_these` are no part of it; a stream that can be read only once is kept in
    /// `keep_in`.
    pub(crate) fn opening(&self, not_these: Vec<FileId>, keep_in: PathBuf) -> OpenSource {
        OpenSource {
            not_these,
            left_out: self.rules.left_out.clone(),
            one_file_system: self.one_file_system,
            keep_in,
            most_bytes: self.most_bytes,
            platform: self.platform.clone(),
            is_read_once: false,
        }
    }
}

/// An option that was typed, if any was.
pub(super) fn given(typed: &SourceArgs) -> Option<&'static str> {
    let SourceArgs {
        exclude,
        one_file_system,
        owner,
        group,
        owner_map,
        group_map,
        mode,
        mtime,
        clamp_mtime,
        max_size,
        platform,
    } = typed;
    let options = [
        ("--exclude", !exclude.is_empty()),
        ("--one-file-system", *one_file_system),
        ("--owner", owner.is_some()),
        ("--group", group.is_some()),
        ("--owner-map", owner_map.is_some()),
        ("--group-map", group_map.is_some()),
        ("--mode", mode.is_some()),
        ("--mtime", mtime.is_some()),
        ("--clamp-mtime", *clamp_mtime),
        ("--max-size", max_size.is_some()),
        ("--platform", platform.is_some()),
    ];
    options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
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

fn rules(typed: &SourceArgs, epoch: Option<Timestamp>) -> Result<Rules, Failure> {
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
    let modified = match &typed.mtime {
        Some(date) => Some(time(date)?),
        None if typed.clamp_mtime => Some(epoch.ok_or_else(|| {
            Failure::new(Kind::Usage, "--clamp-mtime needs a time")
                .advise("give --mtime, or set SOURCE_DATE_EPOCH")
        })?),
        None => None,
    };
    Ok(Rules {
        left_out: left_out(&typed.exclude)?,
        users,
        groups,
        owner,
        group,
        root_owner: None,
        mode: typed.mode.as_deref().map(|changes| mode("--mode", changes)).transpose()?,
        modified,
        only_later: typed.clamp_mtime,
    })
}

/// What is left out by patterns as tar takes them.
pub(super) fn left_out(patterns: &[OsString]) -> Result<Option<LeftOut>, Failure> {
    let exclude = Exclude::parse(patterns.iter().map(OsString::as_os_str))?;
    let left_out = move |path: &[u8]| exclude.has_or_is_below(path);
    Ok((!patterns.is_empty()).then(|| Arc::new(left_out) as LeftOut))
}

/// Tells of patterns that a slash in front keeps from matching.
pub(super) fn note_rooted(typed: &SourceArgs) {
    for rooted in typed.exclude.iter().filter(|pattern| pattern.as_bytes().starts_with(b"/")) {
        let shown = safe(rooted.as_bytes());
        let without = shown.trim_start_matches('/');
        note(format_args!(
            "--exclude {shown} matches nothing, as paths of a source begin without a slash: write {without}"
        ));
    }
}

/// How permissions are changed.
pub(super) fn mode(option: &str, changes: &str) -> Result<ModeChange, Failure> {
    changes
        .parse()
        .map_err(|error: NoMode| Failure::new(Kind::Usage, format!("{option} {changes}")).because(&error))
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

pub(super) fn pair(option: &str, typed: &str) -> Result<(u32, Option<u32>), Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_owners_are_read() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert_eq!(time("@-5").unwrap(), at(-5, 0));
        assert_eq!(time("1970-01-02").unwrap(), at(86400, 0));
        assert_eq!(time("1969-12-31T23:59:58.5Z").unwrap(), at(-2, 500_000_000));
        assert!(time("yesterday").is_err());
        assert_eq!(pair("--owner", "root:+5").unwrap(), (0, Some(5)));
        assert!(pair("--owner", "lisa").is_err());
    }
}
