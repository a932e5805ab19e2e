//! What `diff` means.

use std::ffi::{OsStr, OsString};

use super::{Format, ImageSpec};
use crate::args::diff::{Aspect, DiffArgs};
use crate::failure::Failure;
use crate::pattern::Exclude;

/// A comparison to be made.
#[derive(Debug)]
pub(crate) struct DiffPlan {
    pub(crate) image: ImageSpec,
    /// An image, a directory or an archive.
    pub(crate) other: OsString,
    pub(crate) ignore: Vec<Aspect>,
    pub(crate) exclude: Exclude,
    /// Directories on other filesystems are not entered, as by `tar` and `cp -x`; they count as empty.
    pub(crate) one_file_system: bool,
}

impl DiffPlan {
    pub(super) fn from_typed(typed: DiffArgs) -> Result<(Self, Format), Failure> {
        let DiffArgs { image, other, ignore, exclude, one_file_system, json } = typed;
        let image = ImageSpec::from_typed(&image)?;
        let exclude = Exclude::parse(exclude.iter().map(OsString::as_os_str))?;
        Ok((Self { image, other, ignore, exclude, one_file_system }, Format::of(json.json)))
    }

    /// Another image, opened as the first one is.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::exit::Kind::Usage).
    pub(crate) fn image_like(&self, typed: &OsStr) -> Result<ImageSpec, Failure> {
        Ok(self.image.member(&ImageSpec::parse(typed)?))
    }
}
