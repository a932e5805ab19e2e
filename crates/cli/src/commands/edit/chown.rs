//! `chown`: changes owners and groups.

use undercroft_vfs::{AttrChange, Vfs};

use super::names;
use super::session::CALLER;
use super::tree::each_with_below;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::Chown;

pub(super) fn run(vfs: &Vfs, plan: &Chown) -> Result<Option<Kind>, Failure> {
    let (uid, gid) = names::owner(vfs, &plan.owner)?;
    let change = AttrChange { uid, gid, ..AttrChange::default() };
    each_with_below(vfs, &plan.paths, plan.follow, plan.recursive, |path, node| {
        vfs.set_attr(&CALLER, node, &change).map_err(|error| Failure::inside(path, &error))
    })
}
