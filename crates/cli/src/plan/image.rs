//! Which image is meant: a file or a device, a partition of it, or an array of several.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::array::ArraySpec;
use crate::args::ImageArgs;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Which image, and how to open it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageSpec {
    /// File or device; of an array, all that was typed.
    #[serde(with = "crate::control::protocol::path")]
    pub(crate) path: PathBuf,
    /// The array that is meant in place of a file.
    #[serde(skip)]
    pub(crate) array: Option<ArraySpec>,
    /// Number of a partition, as partitioning tools count.
    pub(crate) partition: Option<NonZeroU32>,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// Respect and take locks.
    pub(crate) lock: bool,
    /// Write to it although something else uses it.
    pub(crate) write_while_in_use: bool,
    /// Do not tell that something else uses it.
    pub(crate) quiet: bool,
    /// Open the other files that an image names.
    pub(crate) allow_backing: bool,
}

impl ImageSpec {
    /// What was typed, to be opened in the usual way.
    pub(crate) fn parse(typed: &OsStr) -> Result<Self, Failure> {
        if let Some((array, partition)) = ArraySpec::parse(typed)? {
            return Ok(Self { array: Some(array), partition, ..Self::plain(PathBuf::from(typed)) });
        }
        Self::parse_one(typed)
    }

    /// The same of one file or device.
    pub(super) fn parse_one(typed: &OsStr) -> Result<Self, Failure> {
        let (path, partition) = split_partition(typed)?;
        Ok(Self { partition, ..Self::plain(path) })
    }

    pub(crate) const fn plain(path: PathBuf) -> Self {
        Self {
            path,
            array: None,
            partition: None,
            direct: false,
            lock: true,
            write_while_in_use: false,
            quiet: false,
            allow_backing: false,
        }
    }

    pub(super) fn from_typed(typed: &ImageArgs) -> Result<Self, Failure> {
        Ok(Self {
            direct: typed.direct,
            lock: !typed.no_lock,
            allow_backing: typed.allow_backing,
            ..Self::parse(&typed.image)?
        })
    }

    /// The path, safe to show.
    pub(crate) fn shown(&self) -> String {
        safe(self.path.as_os_str().as_bytes())
    }

    /// As it is typed for another process.
    pub(crate) fn typed(&self) -> OsString {
        let mut typed = self.path.clone().into_os_string();
        if let (None, Some(number)) = (&self.array, self.partition) {
            typed.push(format!("?part={number}"));
        }
        typed
    }

    /// The same for a process with another working directory. A number of a member stays one.
    pub(crate) fn make_absolute(&mut self) {
        let is_number = self.path.to_str().is_some_and(|typed| typed.parse::<u32>().is_ok());
        if (!is_number || self.path.exists())
            && let Ok(path) = std::path::absolute(&self.path)
        {
            self.path = path;
        }
    }

    /// A file or device, opened as this array is.
    pub(crate) fn member(&self, member: &Self) -> Self {
        Self {
            direct: self.direct,
            lock: self.lock,
            write_while_in_use: self.write_while_in_use,
            allow_backing: self.allow_backing,
            ..member.clone()
        }
    }
}

/// Splits `IMAGE?part=N`. A file whose name really ends like that is meant when it exists.
pub(super) fn split_partition(typed: &OsStr) -> Result<(PathBuf, Option<NonZeroU32>), Failure> {
    const HINT: &[u8] = b"?part=";
    let bytes = typed.as_bytes();
    let Some(at) = bytes.windows(HINT.len()).rposition(|window| window == HINT) else {
        return Ok((PathBuf::from(typed), None));
    };
    if Path::new(typed).exists() {
        return Ok((PathBuf::from(typed), None));
    }
    let number = std::str::from_utf8(&bytes[at + HINT.len()..]).ok().and_then(|digits| digits.parse().ok());
    let Some(number) = number else {
        return Err(Failure::new(
            Kind::Usage,
            format!("{}: what follows `?part=` is not a partition number", safe(bytes)),
        )
        .advise("partitions are counted from 1"));
    };
    Ok((PathBuf::from(OsStr::from_bytes(&bytes[..at])), Some(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_hint_is_split_off() {
        let split =
            |typed: &str| split_partition(OsStr::new(typed)).map(|(path, part)| (path, part.map(u32::from)));
        assert_eq!(split("a.img").unwrap(), (PathBuf::from("a.img"), None));
        assert_eq!(split("a?b.img?part=3").unwrap(), (PathBuf::from("a?b.img"), Some(3)));
        for wrong in ["a.img?part=0", "a.img?part=", "a.img?part=x", "a.img?part=-1"] {
            assert_eq!(split(wrong).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
    }

    #[test]
    fn a_file_that_is_named_like_a_hint_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("odd?part=1");
        std::fs::write(&path, "").unwrap();
        assert_eq!(split_partition(path.as_os_str()).unwrap(), (path, None));
    }

    #[test]
    fn what_was_typed_can_be_handed_on() {
        for typed in ["a.img", "a.img?part=2", "md:a,b?part=2", "md:a,b?part=2?array-part=3&degraded"] {
            assert_eq!(ImageSpec::parse(OsStr::new(typed)).unwrap().typed(), OsStr::new(typed));
        }
    }
}
