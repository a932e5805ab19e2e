//! A new image file, whole or not there. What it replaces stays open, with its lock, until then.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use undercroft_block::{Device, ImageFormat};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::unfinished::UnfinishedFile;
use crate::image::{self, ToOverwrite, new_file};
use crate::plan::ImageSpec;
use crate::text::names::safe;

/// Bytes in a block of a file, as the system counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// A file that is being made.
pub(super) struct NewImage {
    file: UnfinishedFile,
    replaced: Option<ToOverwrite>,
}

impl NewImage {
    /// Makes an image that will be at `path`, where nothing is unless it is to be replaced.
    pub(super) fn make(
        path: &Path,
        size_bytes: u64,
        format: Option<ImageFormat>,
        replace: bool,
    ) -> Result<Self, Failure> {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let shown = safe(path.as_os_str().as_bytes());
        if image::is_for_devices(&place) && fs::symlink_metadata(&place).is_err() {
            return Err(Failure::new(Kind::CannotOpen, format!("{shown} does not exist"))
                .advise(image::no_such_device(&place)));
        }
        if let Ok(link) = fs::read_link(&place) {
            let what = format!(
                "{shown} is a symbolic link to {}, which is not there",
                safe(link.as_os_str().as_bytes())
            );
            return Err(Failure::new(Kind::CannotOpen, what).advise("remove the link, or give another name"));
        }
        let (mut found, mut replaced) = (None, None);
        if fs::symlink_metadata(&place).is_ok() {
            if !replace {
                return Err(Failure::new(Kind::Host, format!("{shown} is there already"))
                    .advise("`--force` replaces it"));
            }
            // Looked at first: another file that comes to its place is not replaced, whichever of them is locked.
            found = fs::metadata(&place).ok();
            replaced = Some(image::open_to_overwrite(&ImageSpec::plain(place.clone()))?);
        }
        let file = Self::beside(place, size_bytes, format, found)?;
        Ok(Self { file, replaced })
    }

    /// Makes an image that takes the place of one that this process has open.
    pub(super) fn replacing(
        path: &Path,
        size_bytes: u64,
        format: Option<ImageFormat>,
    ) -> Result<Self, Failure> {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let found = fs::metadata(&place).ok();
        Ok(Self { file: Self::beside(place, size_bytes, format, found)?, replaced: None })
    }

    fn beside(
        place: PathBuf,
        size_bytes: u64,
        format: Option<ImageFormat>,
        replaced: Option<fs::Metadata>,
    ) -> Result<UnfinishedFile, Failure> {
        let format = new_file::format_of(&place, format)?;
        let shown = safe(place.as_os_str().as_bytes());
        let new = UnfinishedFile::beside(place, replaced)?;
        match format {
            ImageFormat::Raw => {
                let sized = new.file().set_len(size_bytes);
                sized.map_err(|error| new_file::not_so_large(&shown, size_bytes, &error))?;
            }
            ImageFormat::Qcow2 => {
                new_file::fill(&ImageSpec::plain(new.path().to_owned()), size_bytes, format)?;
            }
        }
        Ok(new)
    }

    /// Lets go of the image that is replaced: this process reads it by other descriptors.
    pub(super) fn release_replaced(&mut self) {
        self.replaced = None;
    }

    /// Its name for now.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    fn spec(&self) -> ImageSpec {
        ImageSpec::plain(self.path().to_owned())
    }

    /// To be filled; all of it reads as zeroes.
    pub(super) fn open(&self) -> Result<Device, Failure> {
        image::open_member(&self.spec(), true)
    }

    /// What it takes on its filesystem. Its device must be closed.
    pub(super) fn allocated_bytes(&self) -> Result<u64, Failure> {
        // Some filesystems decide at this moment.
        let found = self.file.file().sync_all().and_then(|()| self.file.file().metadata());
        let found = found.map_err(|error| Failure::host(self.spec().shown(), &error))?;
        Ok(found.blocks() * STAT_BLOCK_BYTES)
    }

    /// Gives the whole image its name. Its device must be closed.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let Self { file, replaced } = self;
        file.finish()?;
        drop(replaced);
        Ok(())
    }
}
