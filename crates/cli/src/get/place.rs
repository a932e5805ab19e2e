//! Where a copy goes.
//!
//! What the user typed as DEST is trusted up to its last component, links included. The last component must not
//! be a symbolic link, and below it nothing is trusted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// An open place to put one tree.
#[derive(Debug)]
pub(crate) struct Place {
    /// The directory in which, or as which, the tree appears.
    pub(crate) dir: OwnedFd,
    /// The name to create; `None` fills the directory itself, which is empty.
    pub(crate) name: Option<Vec<u8>>,
    /// The place, safe to show.
    pub(crate) shown: String,
}

/// Decides by what is there now.
pub(crate) fn decide(dest: &Path, inside: &[u8]) -> Result<Place, Failure> {
    let shown = show(dest);
    match fs::symlink_metadata(dest) {
        Ok(found) if found.is_symlink() => {
            Err(Failure::new(Kind::Host, format!("{shown} is a symbolic link"))
                .advise("name what it points to"))
        }
        Ok(found) if found.is_dir() => into_directory(dest, inside),
        Ok(_) => Err(exists(dest)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(name) = dest.file_name() else {
                return Err(Failure::host(format!("cannot make {shown}"), &error));
            };
            let parent = match dest.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            Ok(Place { dir: open(parent)?, name: Some(name.as_bytes().to_vec()), shown: show(dest) })
        }
        Err(error) => Err(Failure::host(format!("cannot use {shown}"), &error)),
    }
}

fn into_directory(dest: &Path, inside: &[u8]) -> Result<Place, Failure> {
    let dir = open(dest)?;
    let name = inside.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    let Some(name) = name.filter(|name| *name != b"." && *name != b"..") else {
        let mut entries = fs::read_dir(dest)
            .map_err(|error| Failure::host(format!("cannot read {}", show(dest)), &error))?;
        if entries.next().is_some() {
            return Err(Failure::new(Kind::Host, format!("{} is not empty", show(dest)))
                .advise("name a directory that is empty or does not exist"));
        }
        return Ok(Place { dir, name: None, shown: show(dest) });
    };
    let below = dest.join(OsStr::from_bytes(name));
    if fs::symlink_metadata(&below).is_ok() {
        return Err(exists(&below));
    }
    Ok(Place { dir, name: Some(name.to_vec()), shown: show(&below) })
}

fn exists(path: &Path) -> Failure {
    Failure::new(Kind::Host, format!("{} exists already", show(path)))
        .advise("name another place; nothing is ever written over")
}

fn open(dir: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .map_err(|error| Failure::host(format!("cannot open directory {}", show(dir)), &error.into()))
}

fn show(path: &Path) -> String {
    safe(path.as_os_str().as_bytes())
}
