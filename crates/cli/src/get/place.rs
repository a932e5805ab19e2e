//! Where a copy goes.
//!
//! What the user typed as DEST is trusted up to its last component, links included. The last component must not
//! be a symbolic link, and below it nothing is trusted.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use undercroft_vfs::FileType;

use super::partial;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::Existing;
use crate::text::names::safe;

/// An open place to put one tree.
#[derive(Debug)]
pub(crate) struct Place {
    /// The directory in which, or as which, the tree appears.
    pub(crate) dir: OwnedFd,
    /// The name to create; `None` fills the directory itself, which is empty.
    pub(crate) name: Option<Vec<u8>>,
    /// What becomes of names that exist. With [`Existing::Resume`] an earlier run began this copy.
    pub(crate) existing: Existing,
    /// The place, safe to show.
    pub(crate) shown: String,
}

/// Decides by what is there now. What an earlier run may have begun is for [`go_on`].
pub(crate) fn decide(dest: &Path, inside: &[u8], existing: Existing) -> Result<Place, Failure> {
    let existing = if existing.replaces() { existing } else { Existing::Refuse };
    match fs::symlink_metadata(dest) {
        Ok(found) if found.is_symlink() => {
            Err(Failure::new(Kind::Host, format!("{} is a symbolic link", show(dest)))
                .advise("name what it points to"))
        }
        Ok(found) if found.is_dir() => into_directory(dest, inside, existing),
        Ok(_) if existing == Existing::Refuse => Err(exists(dest)),
        Ok(_) => as_name(dest, existing),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if dest.file_name().is_none() {
                return Err(Failure::host(format!("cannot make {}", show(dest)), &error));
            }
            as_name(dest, existing)
        }
        Err(error) => Err(Failure::host(format!("cannot use {}", show(dest)), &error)),
    }
}

/// One of several sources, which are put into a directory under their own names.
pub(crate) fn among_others(dest: &Path, inside: &[u8], existing: Existing) -> Result<Place, Failure> {
    let below = own_name(inside).map(|name| dest.join(name));
    match (existing, below) {
        // What an earlier run made has the name already.
        (Existing::Resume, Some(below)) if fs::symlink_metadata(&below).is_ok() => begun(&below),
        (Existing::Resume, _) => into_directory(dest, inside, Existing::Refuse),
        _ => into_directory(dest, inside, existing),
    }
}

/// Refuses what cannot take several things.
pub(crate) fn require_directory(dest: &Path) -> Result<(), Failure> {
    let refused = |is: &str| {
        Failure::new(Kind::Host, format!("{} {is}", show(dest)))
            .advise("several things, and what a pattern matches, are put into a directory that is there")
    };
    match fs::symlink_metadata(dest) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(found) if found.is_symlink() => {
            Err(Failure::new(Kind::Host, format!("{} is a symbolic link", show(dest)))
                .advise("name what it points to"))
        }
        Ok(_) => Err(refused("is no directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(refused("does not exist")),
        Err(error) => Err(Failure::host(format!("cannot use {}", show(dest)), &error)),
    }
}

/// A name in a directory.
fn as_name(dest: &Path, existing: Existing) -> Result<Place, Failure> {
    let name = dest.file_name().map(|name| name.as_bytes().to_vec());
    Ok(Place { dir: open(parent(dest))?, name, existing, shown: show(dest) })
}

/// The copy that an earlier run began, whatever it is.
fn begun(copy: &Path) -> Result<Place, Failure> {
    if fs::symlink_metadata(copy).is_ok_and(|found| found.is_dir()) {
        return Ok(Place { dir: open(copy)?, name: None, existing: Existing::Resume, shown: show(copy) });
    }
    as_name(copy, Existing::Resume)
}

/// Whether a directory has no other name in it, temporary ones of copies apart.
fn holds_only(dir: &Path, name: &OsStr) -> Result<bool, Failure> {
    let cannot = |error| Failure::host(format!("cannot read {}", show(dir)), &error);
    for entry in fs::read_dir(dir).map_err(cannot)? {
        let found = entry.map_err(cannot)?.file_name();
        if found != name && !partial::is_temporary(found.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The place of a copy of a `kind` that an earlier run may have begun.
///
/// A directory at DEST is the copy of a directory itself, and the place to put anything else in. Where it holds a
/// directory of the original's name that the original does not have (`has` tells), the earlier run put its copy there;
/// where it holds anything else that the original does not have, it is no copy.
pub(crate) fn go_on(
    dest: &Path,
    inside: &[u8],
    kind: FileType,
    has: impl Fn(&[u8]) -> bool,
) -> Result<Place, Failure> {
    let is_directory = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let below = own_name(inside).filter(|_| is_directory(dest)).map(|name| (dest.join(name), name));
    let copy = match (kind, below) {
        (FileType::Directory, Some((below, name))) => {
            if is_directory(&below) && !has(name.as_bytes()) {
                below
            } else if is_directory(&below) && holds_only(dest, name)? {
                let what = format!("{} may be the copy of {} or contain it", show(dest), safe(inside));
                return Err(Failure::new(Kind::Host, what).advise("remove it, and copy without --resume"));
            } else if let Some(foreign) = first_foreign(dest, has)? {
                let foreign = safe(foreign.as_bytes());
                return Err(Failure::new(
                    Kind::Host,
                    format!("{} is no copy of {}: it has {foreign}", show(dest), safe(inside)),
                )
                .advise(format!("name the copy itself, as in {}", show(&below))));
            } else {
                dest.to_owned()
            }
        }
        (_, Some((below, _))) => below,
        (_, None) => dest.to_owned(),
    };
    match fs::symlink_metadata(&copy) {
        Ok(found) if found.is_dir() && kind == FileType::Directory => begun(&copy),
        Ok(found)
            if !found.is_dir()
                && kind != FileType::Directory
                && found.is_symlink() == (kind == FileType::Symlink)
                && copy.file_name().is_some() =>
        {
            begun(&copy)
        }
        _ => decide(dest, inside, Existing::Refuse),
    }
}

/// A name in a directory that the original does not have.
fn first_foreign(dir: &Path, has: impl Fn(&[u8]) -> bool) -> Result<Option<OsString>, Failure> {
    let cannot = |error| Failure::host(format!("cannot read {}", show(dir)), &error);
    for entry in fs::read_dir(dir).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        if !has(name.as_bytes()) && !partial::is_temporary(name.as_bytes()) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn into_directory(dest: &Path, inside: &[u8], existing: Existing) -> Result<Place, Failure> {
    let dir = open(dest)?;
    let Some(name) = own_name(inside) else {
        let mut entries = fs::read_dir(dest)
            .map_err(|error| Failure::host(format!("cannot read {}", show(dest)), &error))?;
        if existing == Existing::Refuse && entries.next().is_some() {
            return Err(Failure::new(Kind::Host, format!("{} is not empty", show(dest))).advise(
                "name a directory that is empty or does not exist, fill it up by --overwrite or --update, or go on with a copy by --resume",
            ));
        }
        return Ok(Place { dir, name: None, existing, shown: show(dest) });
    };
    let below = dest.join(name);
    if existing == Existing::Refuse && fs::symlink_metadata(&below).is_ok() {
        return Err(exists(&below));
    }
    Ok(Place { dir, name: Some(name.as_bytes().to_vec()), existing, shown: show(&below) })
}

/// The last component of a path inside the image; the root has none.
pub(crate) fn own_name(inside: &[u8]) -> Option<&OsStr> {
    let name = inside.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty())?;
    (name != b"." && name != b"..").then(|| OsStr::from_bytes(name))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn exists(path: &Path) -> Failure {
    Failure::new(Kind::Host, format!("{} exists already", show(path)))
        .advise(
        "name another place, replace it by --overwrite, or go on with a copy that was interrupted by --resume",
    )
}

fn open(dir: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .map_err(|error| Failure::host(format!("cannot open directory {}", show(dir)), &error.into()))
}

fn show(path: &Path) -> String {
    safe(path.as_os_str().as_bytes())
}
