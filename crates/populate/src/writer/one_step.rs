//! Names that change in one step: what is there already stays until what replaces it is complete and durable.
//!
//! A regular file is made without a name, and anything else that replaces something under a temporary name beside it. A
//! program that is killed leaves the old or the new; between the two steps that replace a name, the temporary one may stay
//! too.

use std::sync::Arc;

use undercroft_vfs::{
    Credentials, Durable, Error as VfsError, File, FileType, Node, RenameFlags, Result, Vfs,
};

use super::{Writer, owner, refused};
use crate::{EntryPath, Error, Metadata};

/// As many temporary names are tried in a directory.
const TEMPORARY_MAX: u32 = 1000;

/// The name that a file gets when it is complete.
pub(super) struct Pending {
    dir: Arc<Node>,
    name: Box<[u8]>,
}

impl Writer {
    /// Lets every name change in one step.
    #[must_use]
    pub fn in_one_step(mut self) -> Self {
        self.one_step = true;
        self
    }

    /// A file without a name, and the name that it is to get.
    pub(super) fn make_nameless(
        &mut self,
        path: &EntryPath,
        metadata: &Metadata,
    ) -> std::result::Result<(Arc<Node>, Pending), Error> {
        let Some((dir, name)) = path.split() else { return Err(super::not_the_root(path)) };
        let dir = self.parent(path, dir)?;
        let permissions = metadata.permissions & 0o7777;
        let node = self.vfs.tmpfile(&owner(metadata), &dir, permissions, 0).map_err(refused(path))?;
        Ok((node, Pending { dir, name: name.into() }))
    }

    /// Gives a complete file its name.
    pub(super) fn publish(
        &mut self,
        path: &EntryPath,
        file: &File,
        to: &Pending,
    ) -> std::result::Result<(), Error> {
        let root = &Credentials::root();
        let Pending { dir, name } = to;
        let link = |vfs: &Vfs, name: &[u8]| vfs.link(root, file.node(), dir, name);
        match link(&self.vfs, name) {
            Err(VfsError::Exists) => {
                file.sync(Durable::Everything).map_err(refused(path))?;
                self.replace(path, dir, name, |vfs, name| link(vfs, name))
            }
            linked => linked.map_err(refused(path)),
        }
    }

    /// Makes something that has the name, in place of what is there: `make` makes it under the name that it is given.
    pub(super) fn replace(
        &mut self,
        path: &EntryPath,
        dir: &Arc<Node>,
        name: &[u8],
        make: impl Fn(&Vfs, &[u8]) -> Result<()>,
    ) -> std::result::Result<(), Error> {
        let there = self.vfs.lookup(dir, name).map_err(refused(path))?;
        if there.kind() == FileType::Directory {
            drop(there);
            self.make_way(path, dir, name)?;
            return make(&self.vfs, name).map_err(refused(path));
        }
        drop(there);
        over_temporary(&self.vfs, dir, name, make, |()| Ok::<_, VfsError>(())).map_err(refused(path))
    }
}

/// Makes something under a temporary name, finishes it there, and renames it over what has the name.
pub(super) fn over_temporary<T, E: From<VfsError>>(
    vfs: &Vfs,
    dir: &Arc<Node>,
    name: &[u8],
    make: impl Fn(&Vfs, &[u8]) -> Result<T>,
    finish: impl FnOnce(&T) -> std::result::Result<(), E>,
) -> std::result::Result<T, E> {
    let root = &Credentials::root();
    for number in 0..TEMPORARY_MAX {
        let temporary = format!(".undercroft-{number}.new").into_bytes();
        let made = match make(vfs, &temporary) {
            Err(VfsError::Exists) => continue,
            made => made?,
        };
        let renamed = finish(&made)
            .and_then(|()| Ok(vfs.rename(root, (dir, &temporary), (dir, name), RenameFlags::empty())?));
        if renamed.is_err() {
            vfs.unlink(root, dir, &temporary)?;
        }
        return renamed.map(|()| made);
    }
    Err(VfsError::Exists.into())
}
