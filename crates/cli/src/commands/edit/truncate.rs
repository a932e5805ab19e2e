//! `truncate`: changes sizes.

use undercroft_vfs::{Error, Follow, Vfs};

use super::session::CALLER;
use super::touch;
use super::tree::each;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::Truncate;

pub(super) fn run(vfs: &Vfs, plan: &Truncate) -> Result<Option<Kind>, Failure> {
    each(&plan.paths, |path| {
        let inside = |error: Error| Failure::inside(path, &error);
        let node = match vfs.resolve(&CALLER, path, Follow::Last) {
            Err(Error::NotFound) if plan.create => touch::make(vfs, path)?,
            Err(Error::NotFound) => return Ok(()),
            found => found.map_err(inside)?,
        };
        let file = vfs.open_node_for_writing(&node).map_err(inside)?;
        let size = plan.size.apply(file.size_bytes()).ok_or_else(|| inside(Error::FileTooLarge))?;
        file.truncate(size).map_err(inside)
    })
}
