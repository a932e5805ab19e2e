//! `mknod`: makes device nodes, fifos and sockets.

use undercroft_vfs::{Error, NewObject, Vfs};

use super::place::Place;
use super::session::{CALLER, UMASK};
use crate::failure::Failure;
use crate::plan::edit::Mknod;

pub(super) fn run(vfs: &Vfs, plan: &Mknod) -> Result<(), Failure> {
    let place = Place::of(vfs, &plan.path)?;
    if place.is_directory {
        return Err(place.failure(&Error::NotDirectory));
    }
    let permissions = plan.mode.as_ref().map_or(0o666, |mode| mode.apply(0o666, false));
    let umask = if plan.mode.is_some() { 0 } else { UMASK };
    let object = NewObject { kind: plan.kind, permissions, umask };
    vfs.create(&CALLER, &place.dir, &place.name, &object).map(drop).map_err(|error| place.failure(&error))
}
