//! `chmod`: changes modes.

use undercroft_vfs::{AttrChange, FileType, Vfs};

use super::session::CALLER;
use super::tree::each_with_below;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::Chmod;

pub(super) fn run(vfs: &Vfs, plan: &Chmod) -> Result<Option<Kind>, Failure> {
    each_with_below(vfs, &plan.paths, true, plan.recursive, |path, node| {
        let attr = node.ownership();
        // A symbolic link has no mode of its own.
        if attr.kind == FileType::Symlink {
            return Ok(());
        }
        let permissions = Some(plan.mode.apply(attr.permissions, attr.kind == FileType::Directory));
        let change = AttrChange { permissions, ..AttrChange::default() };
        vfs.set_attr(&CALLER, node, &change).map_err(|error| Failure::inside(path, &error))
    })
}
