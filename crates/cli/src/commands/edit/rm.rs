//! `rm`: removes names, with `-r` trees from below upwards.

use undercroft_vfs::{Error, FileType, Vfs};

use super::place::Place;
use super::session::CALLER;
use super::tree::each;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::Rm;
use crate::text::names::safe;

pub(super) fn run(vfs: &Vfs, plan: &Rm) -> Result<Option<Kind>, Failure> {
    each(&plan.paths, |path| remove(vfs, plan, path))
}

fn remove(vfs: &Vfs, plan: &Rm, path: &[u8]) -> Result<(), Failure> {
    let place = match Place::of(vfs, path) {
        Err(failure) if plan.force && is_missing(vfs, path) => {
            drop(failure);
            return Ok(());
        }
        place => place?,
    };
    let Some(node) = place.node(vfs)? else {
        return if plan.force { Ok(()) } else { Err(place.failure(&Error::NotFound)) };
    };
    let inside = |error: Error| place.failure(&error);
    if node.kind() != FileType::Directory {
        if place.is_directory {
            return Err(inside(Error::NotDirectory));
        }
        drop(node);
        return vfs.unlink(&CALLER, &place.dir, &place.name).map_err(inside);
    }
    drop(node);
    if plan.recursive {
        return vfs.remove_dir_all(&CALLER, path).map_err(|error| {
            let what = format!("cannot remove all of {}", safe(path));
            Failure::new(Kind::of(&error), what).because(&error)
        });
    }
    if plan.dir {
        return vfs.rmdir(&CALLER, &place.dir, &place.name).map_err(inside);
    }
    Err(inside(Error::IsDirectory).advise("`-r` removes it with all that is in it"))
}

/// Whether nothing has the path, as a name or because what is above it is missing or no directory.
fn is_missing(vfs: &Vfs, path: &[u8]) -> bool {
    let found = vfs.resolve(&CALLER, path, undercroft_vfs::Follow::NoFollow);
    matches!(found, Err(Error::NotFound | Error::NotDirectory))
}
