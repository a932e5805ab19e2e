//! `mkdir`: makes directories, with `-p` those above them too.

use undercroft_populate::ModeChange;
use undercroft_vfs::{AttrChange, Error, FileType, NewObject, Vfs};

use super::place::Place;
use super::session::{CALLER, UMASK};
use super::tree::each;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::edit::Mkdir;

pub(super) fn run(vfs: &Vfs, plan: &Mkdir) -> Result<Option<Kind>, Failure> {
    each(&plan.paths, |path| {
        if !plan.parents {
            return make(vfs, path, plan.mode.as_ref());
        }
        // Slashes behind the last name are none of another directory above.
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len(), |last| last + 1);
        let path = &path[..end];
        let names = path.iter().enumerate().filter(|&(at, byte)| at > 0 && *byte == b'/');
        for end in names.map(|(at, _)| at) {
            make_missing_above(vfs, &path[..end])?;
        }
        make_missing(vfs, path, plan.mode.as_ref())
    })
}

/// Makes a directory that others are made in, unless there is one.
fn make_missing_above(vfs: &Vfs, path: &[u8]) -> Result<(), Failure> {
    match image::resolve(vfs, path, true) {
        Ok(node) if node.kind() != FileType::Directory => Err(Failure::inside(path, &Error::NotDirectory)),
        _ => make_missing(vfs, path, None),
    }
}

/// Makes a directory unless there is one.
fn make_missing(vfs: &Vfs, path: &[u8], mode: Option<&ModeChange>) -> Result<(), Failure> {
    match image::resolve(vfs, path, true) {
        Ok(node) if node.kind() == FileType::Directory => Ok(()),
        _ => make(vfs, path, mode),
    }
}

fn make(vfs: &Vfs, path: &[u8], mode: Option<&ModeChange>) -> Result<(), Failure> {
    let place = Place::of(vfs, path)?;
    let permissions = mode.map_or(0o777, |mode| mode.apply(0o777, true));
    let umask = if mode.is_some() { 0 } else { UMASK };
    let object = NewObject { umask, ..NewObject::directory(permissions) };
    let node =
        vfs.create(&CALLER, &place.dir, &place.name, &object).map_err(|error| place.failure(&error))?;
    let got = node.ownership().permissions;
    if mode.is_some() && got & 0o777 != permissions & 0o777 {
        // The lists of the directory above have taken some.
        let permissions = Some(permissions | (got & 0o6000));
        let change = AttrChange { permissions, ..AttrChange::default() };
        vfs.set_attr(&CALLER, &node, &change).map_err(|error| place.failure(&error))?;
    }
    Ok(())
}
