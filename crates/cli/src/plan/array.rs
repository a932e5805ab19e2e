//! Which array is meant: `md:MEMBER,MEMBER,...`, or `md:DIR` for the members that lie in a directory.
//!
//! What follows a `?` behind the last member is about the array: `uuid=UUID`, `array-part=N`, `degraded`, `force`,
//! `member_timeout=SECONDS`, and of the filesystem on it `sb=BLOCK` and `gpt=backup`; several with `&` between them. `?part=N` belongs to the member that it stands behind, since members on partitions
//! are common and partitions on arrays are not; behind a directory it can only mean the array.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use super::hints::{Hints, given_twice};
use super::image::ImageSpec;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Stands before the members of an array. A file of such a name is `./md:...`.
const PREFIX: &[u8] = b"md:";

/// An array, and what may be done to have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArraySpec {
    pub(crate) members: ArrayMembers,
    /// Which of the arrays in a directory.
    pub(crate) uuid: Option<Uuid>,
    /// Also without members that the others list as active.
    pub(crate) degraded: bool,
    /// Also against caution.
    pub(crate) force: bool,
    /// How long a member that does not answer is waited for, if not as long as usual; zero: for ever.
    pub(crate) member_timeout: Option<Duration>,
}

/// Where the members are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArrayMembers {
    Listed(Vec<ImageSpec>),
    /// In this directory.
    In(PathBuf),
}

impl ArraySpec {
    /// The array that was typed, if it was one, and what is said of its content.
    pub(super) fn parse(typed: &OsStr) -> Result<Option<(Self, Hints)>, Failure> {
        let Some(mut rest) = typed.as_bytes().strip_prefix(PREFIX) else { return Ok(None) };
        let mut array = Self {
            members: ArrayMembers::Listed(Vec::new()),
            uuid: None,
            degraded: false,
            force: false,
            member_timeout: None,
        };
        let mut hints = Hints::default();
        while let Some(at) = rest.iter().rposition(|&byte| byte == b'?') {
            let (before, options) = (&rest[..at], &rest[at + 1..]);
            let Ok(options) = std::str::from_utf8(options) else { break };
            if !array.apply(typed, options, &mut hints)? {
                break;
            }
            rest = before;
        }
        if !rest.contains(&b',') {
            let (dir, of_dir) = Hints::split(OsStr::from_bytes(rest))?;
            if dir.is_dir() {
                array.members = ArrayMembers::In(dir);
                if hints.names_partition() && of_dir.names_partition() {
                    return Err(given_twice(typed, "part"));
                }
                hints.partition = hints.partition.or(of_dir.partition);
                hints.partition_name = hints.partition_name.or(of_dir.partition_name);
                return Ok(Some((array, hints)));
            }
        }
        let mut members = Vec::new();
        for member in rest.split(|&byte| byte == b',') {
            if member.is_empty() {
                return Err(Failure::new(
                    Kind::Usage,
                    format!("{}: a member of the array has no name", safe(typed.as_bytes())),
                )
                .advise("write it as md:a.img,b.img,c.img, or as md:DIR for the members in a directory"));
            }
            if member.starts_with(PREFIX) {
                return Err(Failure::new(
                    Kind::Usage,
                    format!("{}: an array cannot be typed as a member of another", safe(typed.as_bytes())),
                ));
            }
            members.push(ImageSpec::parse_one(OsStr::from_bytes(member))?);
        }
        array.members = ArrayMembers::Listed(members);
        Ok(Some((array, hints)))
    }

    /// The array with paths that do not depend on the working directory, and the `partition` of it, safe to show.
    pub(crate) fn shown_absolute(&self, partition: Option<u32>) -> String {
        let absolute = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let members = match &self.members {
            ArrayMembers::In(dir) => safe(absolute(dir).as_os_str().as_bytes()),
            ArrayMembers::Listed(members) => {
                let typed =
                    |member: &ImageSpec| ImageSpec { path: absolute(&member.path), ..member.clone() }.typed();
                members.iter().map(|member| safe(typed(member).as_bytes())).collect::<Vec<_>>().join(",")
            }
        };
        let partition = partition.map_or_else(String::new, |number| format!("?array-part={number}"));
        format!("md:{members}{partition}")
    }

    /// Takes options of an array; `false`: they are none.
    fn apply(&mut self, typed: &OsStr, options: &str, hints: &mut Hints) -> Result<bool, Failure> {
        let known = |option: &str| {
            let name = option.split_once('=').map_or(option, |(name, _)| name);
            matches!(option, "degraded" | "force")
                || matches!(name, "uuid" | "array-part" | "member_timeout" | "sb" | "gpt" | "log")
        };
        if !options.split('&').all(known) {
            return Ok(false);
        }
        for option in options.split('&') {
            let (name, value) = option.split_once('=').map_or((option, ""), |(name, value)| (name, value));
            let is_new = match name {
                "uuid" => self.uuid.replace(uuid(value)?).is_none(),
                "member_timeout" => {
                    let seconds: u32 = value.parse().map_err(|_| {
                        Failure::new(Kind::Usage, format!("{option:?} is no time"))
                            .advise("give whole seconds; with 0 members are waited for without end")
                    })?;
                    self.member_timeout.replace(Duration::from_secs(seconds.into())).is_none()
                }
                "array-part" => {
                    let is_new = !hints.names_partition();
                    if !hints.name_partition(value) {
                        return Err(Failure::new(Kind::Usage, format!("{option:?} names no partition"))
                            .advise("partitions are counted from 1"));
                    }
                    is_new
                }
                "force" => !std::mem::replace(&mut self.force, true),
                "degraded" => !std::mem::replace(&mut self.degraded, true),
                _ => {
                    hints.add(typed, option)?;
                    true
                }
            };
            if !is_new {
                return Err(given_twice(typed, name));
            }
        }
        Ok(true)
    }
}

/// A UUID with hyphens, or with colons as mdadm writes it.
fn uuid(typed: &str) -> Result<Uuid, Failure> {
    Uuid::parse_str(&typed.replace(':', ""))
        .map_err(|_| Failure::new(Kind::Usage, format!("{typed:?} is no UUID")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &str) -> (ArraySpec, Option<u32>) {
        let (array, hints) = ArraySpec::parse(OsStr::new(typed)).unwrap().expect("an array");
        (array, hints.partition.map(u32::from))
    }

    fn listed(array: &ArraySpec) -> Vec<(String, Option<u32>)> {
        let ArrayMembers::Listed(members) = &array.members else { panic!("a directory") };
        members.iter().map(|member| (member.shown(), member.partition.map(u32::from))).collect()
    }

    #[test]
    fn members_are_images() {
        let (array, partition) = parse("md:a.img,/dev/sdb?part=2,c?d");
        assert_eq!(
            listed(&array),
            [("a.img".to_owned(), None), ("/dev/sdb".to_owned(), Some(2)), ("c?d".to_owned(), None)]
        );
        assert_eq!((partition, array.uuid, array.degraded, array.force), (None, None, false, false));
        assert!(ArraySpec::parse(OsStr::new("./md:a")).unwrap().is_none());
    }

    #[test]
    fn options_follow_the_last_member() {
        let (array, partition) = parse("md:a,b?part=2?array-part=3&degraded?force?member_timeout=5");
        assert_eq!(listed(&array), [("a".to_owned(), None), ("b".to_owned(), Some(2))]);
        assert_eq!((partition, array.degraded, array.force), (Some(3), true, true));
        assert_eq!(array.member_timeout, Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_directory_stands_for_the_members_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        let (array, partition) = parse(&format!("md:{path}?uuid=01234567:89abcdef:01234567:89abcdef"));
        assert_eq!((&array.members, partition), (&ArrayMembers::In(dir.path().to_owned()), None));
        assert_eq!(array.uuid, Some(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)));
        assert_eq!(parse(&format!("md:{path}?part=1")).1, Some(1));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            "md:",
            "md:a,,b",
            "md:a,md:b",
            "md:a?uuid=x",
            "md:a?array-part=0",
            "md:a?part=0,b",
            "md:a?member_timeout=x",
            "md:a?degraded?degraded",
            "md:a?array-part=1&array-part=2",
            "md:a?degrade",
            "md:a?prt=1,b",
        ] {
            assert_eq!(ArraySpec::parse(OsStr::new(wrong)).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
    }
}
