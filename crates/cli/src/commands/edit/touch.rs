//! `touch`: changes times, and makes files that are missing.

use undercroft_vfs::{AttrChange, Error, NewObject, NewTime, Vfs};

use super::place::Place;
use super::session::{CALLER, UMASK};
use super::tree::each;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::edit::{Touch, TouchTime};

pub(super) fn run(vfs: &Vfs, plan: &Touch) -> Result<Option<Kind>, Failure> {
    let (accessed, modified) = match &plan.time {
        TouchTime::Given(time) => (*time, *time),
        TouchTime::Of(path) => {
            let attr = image::resolve(vfs, path, plan.follow)?.attr();
            (NewTime::At(attr.accessed), NewTime::At(attr.modified))
        }
    };
    let change = AttrChange {
        accessed: plan.access.then_some(accessed),
        modified: plan.modification.then_some(modified),
        ..AttrChange::default()
    };
    each(&plan.paths, |path| {
        let node = match vfs.resolve(&CALLER, path, follow(plan.follow)) {
            Err(Error::NotFound) if plan.create => make(vfs, path)?,
            // As touch -c has it.
            Err(Error::NotFound) if plan.follow => return Ok(()),
            found => found.map_err(|error| Failure::inside(path, &error))?,
        };
        vfs.set_attr(&CALLER, &node, &change).map_err(|error| Failure::inside(path, &error))
    })
}

const fn follow(follow: bool) -> undercroft_vfs::Follow {
    if follow { undercroft_vfs::Follow::Last } else { undercroft_vfs::Follow::NoFollow }
}

/// Makes an empty file.
pub(super) fn make(vfs: &Vfs, path: &[u8]) -> Result<std::sync::Arc<undercroft_vfs::Node>, Failure> {
    let place = Place::followed(vfs, path)?;
    if place.is_directory {
        return Err(place.failure(&Error::NotFound));
    }
    let object = NewObject { umask: UMASK, ..NewObject::file(0o666) };
    vfs.create(&CALLER, &place.dir, &place.name, &object).map_err(|error| place.failure(&error))
}
