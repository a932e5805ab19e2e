//! `mknod`: makes device nodes, fifos and sockets.

use undercroft_vfs::{NewObject, Vfs};

use super::CALLER;
use super::place::Place;
use crate::failure::Failure;
use crate::plan::edit::Mknod;

pub(super) fn run(vfs: &Vfs, plan: &Mknod) -> Result<(), Failure> {
    let place = Place::of(vfs, &plan.path)?;
    let permissions = plan.mode.as_ref().map_or(0o644, |mode| mode.apply(0o666, false));
    let object = NewObject { kind: plan.kind, permissions, umask: 0 };
    vfs.create(&CALLER, &place.dir, &place.name, &object).map(drop).map_err(|error| place.failure(&error))
}
