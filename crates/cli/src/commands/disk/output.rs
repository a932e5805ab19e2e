//! A new image file, which has another name until it is whole.
//!
//! It lies beside its place under a name with a dot in front, and only its owner may open it. What ends the command before it
//! is whole leaves the place as it was. A file that it replaces hands its owner and mode on.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, RenameFlags, renameat_with};
use rustix::process::umask;
use undercroft_block::{Device, ImageFormat};
use undercroft_diskfs::mkfs::random_uuid;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, new_file};
use crate::plan::ImageSpec;
use crate::text::names::safe;

/// Bytes in a block of a file, as the system counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// A file that is being made.
pub(super) struct NewImage {
    /// Under its name for now.
    spec: ImageSpec,
    place: PathBuf,
    replace: bool,
    is_done: bool,
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
        if fs::symlink_metadata(&place).is_ok() {
            if !replace {
                return Err(Failure::new(Kind::Host, format!("{shown} is there already"))
                    .advise("`--force` replaces it"));
            }
            // It must not be in use.
            image::open_to_overwrite(&ImageSpec::plain(place.clone()))?.close()?;
        }
        Self::beside(place, size_bytes, format, replace)
    }

    /// Makes an image that takes the place of one that this process has open.
    pub(super) fn replacing(
        path: &Path,
        size_bytes: u64,
        format: Option<ImageFormat>,
    ) -> Result<Self, Failure> {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self::beside(place, size_bytes, format, true)
    }

    fn beside(
        place: PathBuf,
        size_bytes: u64,
        format: Option<ImageFormat>,
        replace: bool,
    ) -> Result<Self, Failure> {
        let shown = safe(place.as_os_str().as_bytes());
        let format = new_file::format_of(&place, format)?;
        let name = place.file_name().map(OsStrExt::as_bytes).map(safe).unwrap_or_default();
        let unique = random_uuid().map_err(|error| Failure::of(Kind::Host, &error))?.simple().to_string();
        let spec = ImageSpec::plain(place.with_file_name(format!(".{name}.{}", &unique[..8])));
        // Others may not look into what may become a file that they may not read.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&spec.path).map_err(|error| {
            let failure = Failure::host(format!("cannot make {}", spec.shown()), &error);
            failure.noting(format!("it is to become {shown}"))
        })?;
        // From here on it goes with this.
        let new = Self { spec, place, replace, is_done: false };
        new_file::fill(&new.spec, size_bytes, format)?;
        Ok(new)
    }

    /// To be filled; all of it reads as zeroes.
    pub(super) fn open(&self) -> Result<Device, Failure> {
        image::open_member(&self.spec, true)
    }

    /// What it takes on its filesystem. Its device must be closed.
    pub(super) fn allocated_bytes(&self) -> Result<u64, Failure> {
        let file = File::open(&self.spec.path);
        // Some filesystems decide at this moment.
        let found = file.and_then(|file| file.sync_all().and_then(|()| file.metadata()));
        let found = found.map_err(|error| Failure::host(self.spec.shown(), &error))?;
        Ok(found.blocks() * STAT_BLOCK_BYTES)
    }

    /// Gives the whole image its name. Its device must be closed.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let shown = safe(self.place.as_os_str().as_bytes());
        let failed = |error: &io::Error| Failure::host(format!("cannot make {shown}"), error);
        let file = File::open(&self.spec.path).map_err(|error| failed(&error))?;
        self.set_owner_and_mode(&file).map_err(|error| failed(&error))?;
        file.sync_all().map_err(|error| failed(&error))?;
        rename(&self.spec.path, &self.place, self.replace).map_err(|error| failed(&error))?;
        self.is_done = true;
        let dir = self.place.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| failed(&error))
    }
}

/// The bits that new files do not get.
fn umask_of_process() -> u32 {
    // It can only be read by setting it.
    let before = umask(Mode::from_raw_mode(0o077));
    umask(before);
    before.as_raw_mode()
}

fn rename(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A filesystem that knows no such flag: what came there meanwhile is kept all the same.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        done => Ok(done?),
    }
}

impl NewImage {
    /// Gives the file those of the one that it replaces, or those of any new file.
    fn set_owner_and_mode(&self, file: &File) -> io::Result<()> {
        let Some(old) = fs::metadata(&self.place).ok().filter(|_| self.replace) else {
            return file.set_permissions(Permissions::from_mode(0o666 & !umask_of_process()));
        };
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid())
            && let Err(error) = fchown(file, Some(old.uid()), Some(old.gid()))
        {
            let shown = safe(self.place.as_os_str().as_bytes());
            eprintln!("undercroft: note: {shown} does not keep its owner: {error}");
        }
        // Behind the owner, which takes bits away.
        file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))
    }
}

impl Drop for NewImage {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.spec.path);
        }
    }
}
