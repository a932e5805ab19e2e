//! Which image is meant: a file or a device, a partition of it, or an array of several.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::array::ArraySpec;
use super::hints::Hints;
use super::named::number_of_partition;
use crate::args::ImageArgs;
use crate::failure::Failure;
use crate::file_id::FileId;
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
    /// Block of the copy of the superblock that stands in for the first.
    #[serde(default)]
    pub(crate) superblock: Option<NonZeroU64>,
    /// The partition table is a GPT, though the first sector does not say so.
    #[serde(default)]
    pub(crate) lost_gpt: bool,
    /// The device that the filesystem has its log on.
    #[serde(skip)]
    pub(crate) log: Option<PathBuf>,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// Respect and take locks.
    pub(crate) lock: bool,
    /// The command has `--no-lock`.
    #[serde(default)]
    pub(crate) may_skip_lock: bool,
    /// The command has `--allow-backing`.
    #[serde(default)]
    pub(crate) may_allow_backing: bool,
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
        Self::plain(PathBuf::new()).parse_as(typed)
    }

    /// What was typed for the image that gets the content of `from`. If it is another partition of the same disk, it may be
    /// found in the files that the disk's image names, as `from` may.
    pub(super) fn parse_beside(typed: &OsStr, from: &Self) -> Result<Self, Failure> {
        let may_be_disk = from.allow_backing && from.array.is_none() && !typed.as_bytes().starts_with(b"md:");
        if may_be_disk {
            let (path, hints) = Hints::split(typed)?;
            let found = FileId::of_path(&path);
            if hints.partition_name.is_some() && found.is_some() && found == FileId::of_path(&from.path) {
                return Self { allow_backing: true, ..Self::plain(path) }.hinted(hints);
            }
        }
        Self::parse(typed)
    }

    /// Which file or partition it is, and the user that it belongs to. `None` if there is no such file.
    pub(crate) fn file_id(&self) -> Option<(FileId, u32)> {
        let found = fs::metadata(&self.path).ok()?;
        Some((FileId::of_file(&found)?.part(self.partition), found.uid()))
    }

    /// What was typed, to be opened as this one is.
    fn parse_as(self, typed: &OsStr) -> Result<Self, Failure> {
        if let Some((array, hints)) = ArraySpec::parse(typed)? {
            return Self { array: Some(array), path: PathBuf::from(typed), ..self }.hinted(hints);
        }
        let (path, hints) = Hints::split(typed)?;
        Self { path, ..self }.hinted(hints)
    }

    /// The same of one file or device.
    pub(super) fn parse_one(typed: &OsStr) -> Result<Self, Failure> {
        let (path, hints) = Hints::split(typed)?;
        Self::plain(path).hinted(hints)
    }

    /// A partition that is named is looked up now: everything behind this knows it by its number.
    fn hinted(self, hints: Hints) -> Result<Self, Failure> {
        let Hints { partition, partition_name, superblock, lost_gpt, log } = hints;
        let mut spec = Self { partition, superblock, lost_gpt, log, ..self };
        if let Some(name) = partition_name {
            spec.partition = Some(number_of_partition(&spec, &name)?);
        }
        Ok(spec)
    }

    pub(crate) const fn plain(path: PathBuf) -> Self {
        Self {
            path,
            array: None,
            partition: None,
            superblock: None,
            lost_gpt: false,
            log: None,
            direct: false,
            lock: true,
            may_skip_lock: false,
            may_allow_backing: false,
            write_while_in_use: false,
            quiet: false,
            allow_backing: false,
        }
    }

    pub(super) fn from_typed(typed: &ImageArgs) -> Result<Self, Failure> {
        let plain = Self {
            direct: typed.direct,
            lock: !typed.no_lock,
            may_skip_lock: true,
            may_allow_backing: true,
            allow_backing: typed.allow_backing,
            ..Self::plain(PathBuf::new())
        };
        plain.parse_as(&typed.image)
    }

    /// What to do where it needs another file.
    pub(crate) fn advice_on_backing(&self) -> String {
        if self.may_allow_backing {
            return "`--allow-backing` allows it".to_owned();
        }
        let shown = self.shown();
        format!("`undercroft image copy --allow-backing {shown} NEW` makes an image that needs no other file")
    }

    /// The path, safe to show.
    pub(crate) fn shown(&self) -> String {
        safe(self.path.as_os_str().as_bytes())
    }

    /// How a partition of it is named, safe to show. Of an array all that was typed is its path.
    pub(crate) fn shown_with_part(&self, number: &str) -> String {
        let shown = self.shown();
        match (&self.array, self.lost_gpt) {
            (Some(_), _) => format!("{shown}?array-part={number}"),
            (None, true) => format!("{shown}?gpt=backup&part={number}"),
            (None, false) => format!("{shown}?part={number}"),
        }
    }

    /// The path, and the partition if one is named, safe to show.
    pub(crate) fn shown_as_typed(&self) -> String {
        match self.partition {
            Some(number) => self.shown_with_part(&number.to_string()),
            None => self.shown(),
        }
    }

    /// As it is typed for another process.
    pub(crate) fn typed(&self) -> OsString {
        let mut typed = self.path.clone().into_os_string();
        if self.array.is_some() {
            return typed;
        }
        if let Some(number) = self.partition {
            typed.push(format!("?part={number}"));
        }
        if let Some(block) = self.superblock {
            typed.push(format!("?sb={block}"));
        }
        if self.lost_gpt {
            typed.push("?gpt=backup");
        }
        if let Some(log) = &self.log {
            typed.push("?log=");
            typed.push(log);
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
            may_skip_lock: self.may_skip_lock,
            may_allow_backing: self.may_allow_backing,
            write_while_in_use: self.write_while_in_use,
            allow_backing: self.allow_backing,
            ..member.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_named_as_it_can_be_typed() {
        for (typed, shown) in [
            ("a.img", "a.img?part=3"),
            ("a.img?gpt=backup", "a.img?gpt=backup&part=3"),
            ("md:a,b", "md:a,b?array-part=3"),
            ("md:a,b?degraded&gpt=backup", "md:a,b?degraded&gpt=backup?array-part=3"),
        ] {
            let spec = ImageSpec::parse(OsStr::new(typed)).unwrap();
            assert_eq!(spec.shown_with_part("3"), shown);
            let named = ImageSpec::parse(OsStr::new(shown)).unwrap();
            assert_eq!((named.partition, named.lost_gpt), (NonZeroU32::new(3), spec.lost_gpt));
        }
    }

    #[test]
    fn what_was_typed_can_be_handed_on() {
        for typed in [
            "a.img",
            "a.img?part=2",
            "a.img?part=2?sb=8?gpt=backup?log=b",
            "md:a,b?part=2",
            "md:a,b?part=2?array-part=3&degraded",
        ] {
            assert_eq!(ImageSpec::parse(OsStr::new(typed)).unwrap().typed(), OsStr::new(typed));
        }
    }
}
