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
        let make = |name: &[u8]| make(&self.vfs, name);
        replace_in_one_step::<_, VfsError>(&self.vfs, dir, name, make, |&()| Ok(())).map_err(refused(path))
    }
}

/// Makes something in place of what has the name `name` in a directory, and is no directory: `make` makes it under a temporary
/// name that it is given, `complete` gives it what else it is to have, and then it takes the place. Until then the old one
/// stays. A process that is killed may leave the temporary name, `.undercroft-N.new`.
///
/// # Errors
/// Those of `make`, which is called again with another name for [`Exists`](VfsError::Exists), of `complete` and of a rename.
/// The old one is there then.
pub fn replace_in_one_step<M, E: From<VfsError>>(
    vfs: &Vfs,
    dir: &Arc<Node>,
    name: &[u8],
    make: impl Fn(&[u8]) -> Result<M>,
    complete: impl FnOnce(&M) -> std::result::Result<(), E>,
) -> std::result::Result<M, E> {
    let root = &Credentials::root();
    for number in 0..TEMPORARY_MAX {
        let temporary = format!(".undercroft-{number}.new").into_bytes();
        let made = match make(&temporary) {
            Err(VfsError::Exists) => continue,
            made => made?,
        };
        let replaced = complete(&made).and_then(|()| Ok(put_over(vfs, dir, &temporary, name)?));
        if let Err(error) = replaced {
            // Why it failed at first says more.
            let _ = vfs.unlink(root, dir, &temporary);
            return Err(error);
        }
        return Ok(made);
    }
    Err(VfsError::Exists.into())
}

fn put_over(vfs: &Vfs, dir: &Arc<Node>, temporary: &[u8], name: &[u8]) -> Result<()> {
    let root = &Credentials::root();
    let file = |name: &[u8]| vfs.lookup(dir, name).map(|node| node.ino());
    if matches!((file(temporary), file(name)), (Ok(new), Ok(old)) if new == old) {
        // A rename of one name of a file over another would leave both.
        return vfs.unlink(root, dir, temporary);
    }
    vfs.rename(root, (dir, temporary), (dir, name), RenameFlags::empty())
}
