//! `mv`: moves names, each in one step.

use std::sync::Arc;

use undercroft_vfs::{Error, FileType, RenameFlags, Vfs};

use super::place::{Destination, Made, Place, is_within};
use super::session::CALLER;
use super::tree::each;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::Mv;
use crate::text::names::safe;

pub(super) fn run(vfs: &Vfs, plan: &Mv) -> Result<Option<Kind>, Failure> {
    let dest = Destination::of(vfs, &plan.dest, plan.as_name, true, plan.sources.len() > 1)?;
    let mut made = Made::default();
    each(&plan.sources, |source| move_one(vfs, plan, source, &dest, &mut made))
}

fn move_one(vfs: &Vfs, plan: &Mv, source: &[u8], dest: &Destination, made: &mut Made) -> Result<(), Failure> {
    let from = Place::of(vfs, source)?;
    let moved = from.node(vfs)?.ok_or_else(|| from.failure(&Error::NotFound))?;
    let is_directory = moved.kind() == FileType::Directory;
    let to = dest.place(vfs, source)?;
    if !is_directory && (from.is_directory || to.is_directory) {
        return Err(if from.is_directory { &from } else { &to }.failure(&Error::NotDirectory));
    }
    let both = || format!("cannot move {} to {}", safe(source), safe(&to.path));
    if let Some(found) = to.node(vfs)? {
        if plan.no_clobber {
            return Ok(());
        }
        if !is_directory {
            made.refuse(&to, source)?;
        }
        if Arc::ptr_eq(&found, &moved) {
            // A rename would leave both names.
            return Err(Failure::new(Kind::Path, format!("{}: they are the same file", both())));
        }
    }
    if is_directory && is_within(vfs, &to.dir, &moved).map_err(|error| to.failure(&error))? {
        return Err(Failure::new(Kind::Path, format!("{}: that is within itself", both())));
    }
    drop(moved);
    vfs.rename(&CALLER, (&from.dir, &from.name), (&to.dir, &to.name), RenameFlags::empty())
        .map_err(|error| Failure::new(Kind::of(&error), both()).because(&error))?;
    made.add(&to.name);
    Ok(())
}
