//! The image that a filled filesystem is made in.
//!
//! An image file is made beside its final name and gets it when it is durable ([`UnfinishedFile`]); the file that it replaces
//! stays open, with its lock, until then. A device, a partition and an array are written where they are, the primary superblock
//! last.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use undercroft_block::{Device, ImageFormat, probe};
use undercroft_populate::FileId;

use super::fill::Filling;
use super::first_block::FirstBlockLast;
use super::size::{Scratch, smallest};
use super::{Contents, Made, format_there};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::unfinished::{UnfinishedFile, directory_of};
use crate::image::{self, ToOverwrite, new_file};
use crate::plan::{FillPlan, Free, ImageSpec, MkfsPlan};
use crate::text::human;
use crate::text::note::note;

/// Makes the filesystem and fills it.
pub(crate) fn make_and_fill(plan: &MkfsPlan, fill: &FillPlan) -> Result<(Made, Contents), Failure> {
    let image = &plan.image;
    let found = fs::metadata(&image.path).ok();
    if image.array.is_some()
        || image.partition.is_some()
        || found.as_ref().is_some_and(|found| !found.is_file())
    {
        return in_place(plan, fill);
    }
    let shown = image.shown();
    if found.is_none() && image::is_for_devices(&image.path) {
        return Err(Failure::new(Kind::CannotOpen, format!("{shown} does not exist"))
            .advise(image::no_such_device(&image.path)));
    }
    let replaced = found.map(|found| Replaced::open(plan, found)).transpose()?;
    let before = replaced.as_ref().and_then(|replaced| replaced.content);
    let before_bytes = before.filter(|before| !before.is_used).map(|before| before.size_bytes);
    let size_bytes = plan.size_bytes.or(before_bytes.filter(|_| !fill.auto_size));
    let format = match before {
        Some(before) => before.format,
        None => new_file::format_of(&image.path, plan.format)?,
    };
    let path = real_path(&image.path, replaced.is_some())?;
    let directory = directory_of(&path);
    let there = replaced.as_ref().map(|replaced| replaced.found.clone());
    let file = UnfinishedFile::beside(path.clone(), there.clone())?;
    let rehearsal = size_bytes.is_none().then(|| Scratch::in_directory(directory)).transpose()?;
    let made_here = file.file().metadata().ok();
    let not_these = made_here.iter().chain(&there).map(FileId::of).collect();
    let mut filling = Filling::open(fill, not_these, directory.to_owned())?;
    let new = NewImage { spec: ImageSpec::plain(file.path().to_owned()), format };
    let made = match (size_bytes, rehearsal) {
        (None, Some(rehearsal)) => {
            let made = smallest(plan, fill, &mut filling, &new, &rehearsal)?;
            if let Some(before) = before
                && !fill.auto_size
                && made.0.size_bytes() < before.size_bytes
            {
                note(format_args!(
                    "{shown} was {} large, and has the size now that its files need; `--size` says another",
                    human::size(before.size_bytes)
                ));
            }
            made
        }
        (size, _) => new.fill(plan, &mut filling, size.unwrap_or_default())?,
    };
    file.finish()?;
    replaced.map_or(Ok(()), |replaced| replaced.target.close())?;
    Ok(made)
}

/// Where an image file lies, or is to lie: not the symbolic link that leads to it, which stays.
fn real_path(path: &Path, is_there: bool) -> Result<PathBuf, Failure> {
    let shown = path.display();
    if !is_there {
        return match fs::symlink_metadata(path) {
            Ok(_) => Err(Failure::new(Kind::CannotOpen, format!("{shown} is a symbolic link to nothing"))),
            Err(_) => Ok(path.to_owned()),
        };
    }
    let real = fs::canonicalize(path).map_err(|error| Failure::host(shown.to_string(), &error))?;
    let stat = statx(CWD, &real, AtFlags::empty(), StatxFlags::empty());
    if stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
        let what = format!("{shown} cannot be replaced: it is mounted there from somewhere else");
        return Err(Failure::new(Kind::CannotOpen, what).advise("give the file's own path"));
    }
    Ok(real)
}

/// Makes the filesystem on a device, a partition or an array.
fn in_place(plan: &MkfsPlan, fill: &FillPlan) -> Result<(Made, Contents), Failure> {
    if fill.auto_size {
        let option = if fill.free == Free::Nothing { "--size auto" } else { "--free" };
        let what = format!("{option} is for image files, and {} has its size already", plan.image.shown());
        return Err(Failure::new(Kind::Usage, what).advise("leave it out"));
    }
    let target = image::open_to_overwrite(&plan.image)?;
    refuse_present(plan, &target)?;
    let mut filling = Filling::open(fill, written_files(&plan.image, &target), std::env::temp_dir())?;
    let failed = |error| Failure::of(Kind::Io, &error);
    let last = Arc::new(FirstBlockLast::new(Arc::clone(&target.device)).map_err(failed)?);
    let made = filling.make(&(Arc::clone(&last) as Device), &plan.options, false)?;
    last.finish().map_err(failed)?;
    target.close()?;
    Ok(made)
}

/// Refuses what is on a target, unless it may be overwritten.
fn refuse_present(plan: &MkfsPlan, target: &ToOverwrite) -> Result<(), Failure> {
    if !plan.overwrite {
        image::refuse_present(&target.device)?;
    }
    Ok(())
}

/// The image files that are written in place, and which a source may have in it.
fn written_files(image: &ImageSpec, target: &ToOverwrite) -> Vec<FileId> {
    let members = target.members().map(|member| &*member.path);
    let own = image.array.is_none().then_some(&*image.path);
    let files = own.into_iter().chain(members).filter_map(|path| fs::metadata(path).ok());
    files.filter(fs::Metadata::is_file).map(|file| FileId::of(&file)).collect()
}

/// An image file that another one replaces. It stays open, and locked, until it is.
struct Replaced {
    found: fs::Metadata,
    target: ToOverwrite,
    /// `None` where the file is empty.
    content: Option<Before>,
}

/// What an image file was.
#[derive(Clone, Copy)]
struct Before {
    format: ImageFormat,
    size_bytes: u64,
    /// Something is known to be in it. A new filesystem gets the size that it needs then, and else that of the image.
    is_used: bool,
}

impl Replaced {
    /// Refuses one that is in use, one that may not be overwritten, and another format than the one that it has.
    fn open(plan: &MkfsPlan, found: fs::Metadata) -> Result<Self, Failure> {
        let target = image::open_to_overwrite(&plan.image)?;
        if found.len() == 0 {
            return Ok(Self { found, target, content: None });
        }
        let size = target.device.size_bytes();
        let format = format_there(plan, found.len() == size)?;
        refuse_present(plan, &target)?;
        let held = probe::probe(&*target.device).map_err(|error| Failure::of(Kind::Io, &error))?;
        let before = Before { format, size_bytes: size, is_used: held.is_some() };
        Ok(Self { found, target, content: Some(before) })
    }
}

/// A new image file under a name of its own.
pub(super) struct NewImage {
    spec: ImageSpec,
    format: ImageFormat,
}

impl NewImage {
    /// Makes it so large, and the filesystem in it.
    pub(super) fn fill(
        &self,
        plan: &MkfsPlan,
        filling: &mut Filling,
        size: u64,
    ) -> Result<(Made, Contents), super::fill::FillFailure> {
        new_file::resize(&self.spec, 0)?;
        new_file::fill(&self.spec, size, self.format)?;
        let target = image::open_to_overwrite(&self.spec)?;
        let made = filling.make(&target.device, &plan.options, true)?;
        target.device.flush().map_err(|error| Failure::of(Kind::Io, &error))?;
        target.close()?;
        Ok(made)
    }
}
