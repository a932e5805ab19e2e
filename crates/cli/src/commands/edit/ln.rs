//! `ln`: makes hard and symbolic links.

use undercroft_vfs::{Error, FileType, NewObject, Vfs};

use super::place::{Destination, Made, Place};
use super::session::CALLER;
use super::tree::each;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::edit::Ln;
use crate::text::names::safe;

pub(super) fn run(vfs: &Vfs, plan: &Ln) -> Result<Option<Kind>, Failure> {
    let several = plan.targets.len() > 1;
    let dest = Destination::of(vfs, &plan.dest, plan.as_name, !plan.no_dereference, several)?;
    let mut targets = plan.targets.iter();
    let mut made = Made::default();
    each(&plan.sources, |source| {
        let target = targets.next().map_or(source, |target| target);
        let place = dest.place(vfs, source)?;
        if place.is_directory {
            return Err(place.failure(&Error::NotDirectory));
        }
        made.refuse(&place, source)?;
        let replaces = replaces(vfs, &place, plan.force)?;
        if plan.symbolic {
            symbolic(vfs, target, &place, replaces)?;
        } else {
            hard(vfs, source, &place, replaces)?;
        }
        made.add(&place.name);
        Ok(())
    })
}

/// Whether something has the name that is to be replaced.
fn replaces(vfs: &Vfs, place: &Place, force: bool) -> Result<bool, Failure> {
    match place.node(vfs)? {
        None => Ok(false),
        Some(node) if force && node.kind() == FileType::Directory => Err(place.failure(&Error::IsDirectory)),
        Some(_) if force => Ok(true),
        Some(_) => Err(place.failure(&Error::Exists).advise("`-f` replaces it")),
    }
}

fn symbolic(vfs: &Vfs, target: &[u8], place: &Place, replaces: bool) -> Result<(), Failure> {
    let object = NewObject::symlink(target);
    place
        .make(vfs, replaces, |name| vfs.create(&CALLER, &place.dir, name, &object).map(drop))
        .map_err(|error| place.failure(&error))
}

fn hard(vfs: &Vfs, source: &[u8], place: &Place, replaces: bool) -> Result<(), Failure> {
    let node = image::resolve(vfs, source, false)?;
    if node.kind() == FileType::Directory {
        return Err(Failure::new(Kind::Path, format!("{} is a directory", safe(source)))
            .advise("a directory has one name; `-s` makes a symbolic link to it"));
    }
    if replaces && place.node(vfs)?.is_some_and(|found| found.ino() == node.ino()) {
        // It has the name already, and renaming one name of a file over another would leave both.
        return Ok(());
    }
    place
        .make(vfs, replaces, |name| vfs.link(&CALLER, &node, &place.dir, name))
        .map_err(|error| place.failure(&error))
}
