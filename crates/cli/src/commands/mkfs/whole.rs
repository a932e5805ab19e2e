//! The image that a filled filesystem is made in.
//!
//! An image file is made beside its final name, under one that begins with a dot, and moved to it when it is durable: what
//! ends the program earlier leaves what was there. A device, a partition and an array are written where they are.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use tempfile::{Builder, NamedTempFile};
use undercroft_block::ImageFormat;
use undercroft_diskfs::mkfs::MkfsError;
use undercroft_populate::FileId;

use super::fill::Filling;
use super::size::smallest;
use super::{Contents, Made};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, new_file};
use crate::plan::{FillPlan, ImageSpec, MkfsPlan};

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
    let before = found.as_ref().map_or(0, fs::Metadata::len);
    let size_bytes = plan.size_bytes.or((before > 0 && !fill.auto_size).then_some(before));
    if before > 0 {
        refuse_present(plan)?;
    }
    let format = new_file::format_of(&image.path, plan.format)?;
    let path = real_path(&image.path, found.is_some())?;
    let directory = directory_of(&path);
    let file = beside(&path, directory)?;
    let rehearsal = size_bytes.is_none().then(|| scratch(directory)).transpose()?;
    let made_here = [Some(&file), rehearsal.as_ref()].into_iter().flatten();
    let made_here = made_here.filter_map(|file| file.as_file().metadata().ok());
    let not_these = made_here.chain(found.clone()).map(|file| id(&file)).collect();
    let mut filling = Filling::open(fill, not_these, directory.to_owned())?;
    let new = NewImage { spec: ImageSpec::plain(file.path().to_owned()), format };
    let made = match (size_bytes, rehearsal) {
        (None, Some(rehearsal)) => smallest(plan, fill, &mut filling, &new, &rehearsal)?,
        (size, _) => new.fill(plan, &mut filling, size.unwrap_or_default())?,
    };
    if let Some(found) = found {
        let _ = file.as_file().set_permissions(found.permissions());
    }
    keep(file, &path, directory)?;
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
    let target = image::open_to_overwrite(&plan.image)?;
    if !plan.overwrite
        && let Some(what) = image::what_is_on(&target.device)?
    {
        return Err(present(target.device.name(), what));
    }
    let mut filling = Filling::open(fill, Vec::new(), std::env::temp_dir())?;
    let made = filling.make(&target.device, &plan.options, false)?;
    target.device.flush().map_err(|error| Failure::of(Kind::Io, &error))?;
    target.close()?;
    Ok(made)
}

fn present(device: String, what: undercroft_ext4::Present) -> Failure {
    let present = MkfsError::Present { device, what };
    Failure::of(Kind::of_mkfs(&present), &present).advise("`--force` overwrites it")
}

/// Refuses an image that is there, unless it may be overwritten; and one that is in use.
fn refuse_present(plan: &MkfsPlan) -> Result<(), Failure> {
    let target = image::open_to_overwrite(&plan.image)?;
    if !plan.overwrite
        && let Some(what) = image::what_is_on(&target.device)?
    {
        return Err(present(target.device.name(), what));
    }
    target.close()
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

/// The directory that a file lies in.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file beside a final name, which goes when it is dropped.
fn beside(path: &Path, directory: &Path) -> Result<NamedTempFile, Failure> {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    let permissions = Permissions::from_mode(0o666);
    let made = Builder::new().prefix(&prefix).permissions(permissions).tempfile_in(directory);
    made.map_err(|error| Failure::host(format!("cannot make a file in {}", directory.display()), &error))
}

/// Gives a whole image its final name, durably.
fn keep(file: NamedTempFile, path: &Path, directory: &Path) -> Result<(), Failure> {
    let fail = |error: &std::io::Error| Failure::host(format!("cannot make {}", path.display()), error);
    file.as_file().sync_all().map_err(|error| fail(&error))?;
    file.persist(path).map_err(|error| fail(&error.error))?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| fail(&error))
}

/// A scratch file of the size of the metadata.
fn scratch(directory: &Path) -> Result<NamedTempFile, Failure> {
    Builder::new()
        .prefix(".undercroft.")
        .tempfile_in(directory)
        .map_err(|error| Failure::host(format!("cannot make a file in {}", directory.display()), &error))
}

fn id(file: &fs::Metadata) -> FileId {
    FileId { device: file.dev(), inode: file.ino() }
}
