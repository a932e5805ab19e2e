//! The file of a new image, which has another name until it is whole.
//!
//! It lies beside its place under a temporary name with a dot in front, and only its owner may open it. What ends the command
//! before it is whole leaves the place as it was. A file that it replaces hands on the owner, group
//! and permissions that it has then. Only the file that was named to be replaced is replaced, and not another one that came
//! to its place meanwhile.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::umask;
use tempfile::Builder;

use super::temporary::TemporaryFile;
use crate::exit::Kind;
use crate::failure::{Failure, without_errno};
use crate::text::names::safe;
use crate::text::note::note;

/// The file is removed when this is dropped, unless it was finished.
pub(crate) struct UnfinishedFile {
    file: TemporaryFile,
    place: PathBuf,
    replaced: Option<fs::Metadata>,
}

impl UnfinishedFile {
    /// Makes an empty file beside `place`, where nothing is but the file to be replaced.
    pub(crate) fn beside(place: PathBuf, replaced: Option<fs::Metadata>) -> Result<Self, Failure> {
        let mut prefix = OsString::from(".");
        prefix.push(place.file_name().unwrap_or_default());
        prefix.push(".");
        let directory = directory_of(&place);
        // Others may not look into what may become a file that they may not read.
        let mut how = Builder::new();
        how.prefix(&prefix).permissions(Permissions::from_mode(0o600));
        let file = TemporaryFile::make(&how, directory);
        let file = file.map_err(|error| {
            let shown = safe(directory.as_os_str().as_encoded_bytes());
            Failure::host(format!("cannot make a file in {shown}"), &error)
        })?;
        Ok(Self { file, place, replaced })
    }

    /// Its name for now.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn file(&self) -> &File {
        self.file.file()
    }

    /// Gives the whole file its name, durably. Its device must be closed.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { file, place, replaced } = self;
        let shown = safe(place.as_os_str().as_encoded_bytes());
        let failed = |error: &std::io::Error| Failure::host(format!("cannot make {shown}"), error);
        match &replaced {
            Some(old) => {
                let now = fs::metadata(&place).unwrap_or_else(|_| old.clone());
                if (now.dev(), now.ino()) != (old.dev(), old.ino()) {
                    let what = format!("{shown} is another file now than the one to be replaced");
                    return Err(Failure::new(Kind::Host, what));
                }
                for (what, error) in hand_over(file.file(), &now) {
                    let error = without_errno(&error.to_string());
                    note(format_args!("{shown} does not keep its {what}: {error}"));
                }
            }
            None => {
                let usual = Permissions::from_mode(0o666 & !umask_of_process());
                file.file().set_permissions(usual).map_err(|error| failed(&error))?;
            }
        }
        file.file().sync_all().map_err(|error| failed(&error))?;
        file.persist(&place, replaced.is_some()).map_err(|error| failed(&error))?;
        let directory = File::open(directory_of(&place));
        directory.and_then(|directory| directory.sync_all()).map_err(|error| failed(&error))
    }
}

/// The directory that a file lies in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives a new file the owner, group and permissions of the one that it replaces; what of it could not be given. It gives no
/// user permissions that the old file did not give.
fn hand_over(file: &File, from: &fs::Metadata) -> Vec<(&'static str, std::io::Error)> {
    let mut failed = Vec::new();
    let mut mode = from.mode() & 0o7777;
    let (uid, gid) = (from.uid(), from.gid());
    if file.metadata().is_ok_and(|now| now.gid() != gid)
        && let Err(error) = fchown(file, None, Some(gid))
    {
        // The group is another one, which is among the others of the old file.
        mode &= 0o707 | (mode & 0o007) << 3;
        failed.push(("group", error));
    }
    if file.metadata().is_ok_and(|now| now.uid() != uid)
        && let Err(error) = fchown(file, Some(uid), None)
    {
        mode &= 0o777;
        failed.push(("owner", error));
    }
    if let Err(error) = file.set_permissions(Permissions::from_mode(mode)) {
        failed.push(("permissions", error));
    }
    failed
}

/// The bits that new files do not get.
fn umask_of_process() -> u32 {
    // It can only be read by setting it.
    let before = umask(Mode::from_raw_mode(0o077));
    umask(before);
    before.as_raw_mode()
}
