//! What is there already: replaced, or removed for a whiteout.

use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{Credentials, DirOffset, Error as VfsError, FileType, Ino, Node, Result};

use super::{Writer, refused};
use crate::{EntryPath, Error};

/// How many names are listed before they are removed.
const BATCH: usize = 1024;

impl Writer {
    /// Removes what has a name that an entry needs: anything but a directory with something in it.
    pub(super) fn make_way(
        &mut self,
        path: &EntryPath,
        dir: &Arc<Node>,
        name: &[u8],
    ) -> std::result::Result<(), Error> {
        let root = &Credentials::root();
        let there = self.vfs.lookup(dir, name).map_err(refused(path))?;
        if there.kind() != FileType::Directory {
            drop(there);
            return self.vfs.unlink(root, dir, name).map_err(refused(path));
        }
        let ino = there.ino();
        drop(there);
        self.parents.forget();
        match self.vfs.rmdir(root, dir, name) {
            Err(VfsError::NotEmpty) => {
                let what = "there is a directory with something in it already".into();
                Err(Error::entry(path.clone(), what))
            }
            removed => {
                removed.map_err(refused(path))?;
                self.late.remove(&ino);
                Ok(())
            }
        }
    }

    /// Removes what is at a path, if something is.
    pub(super) fn remove(&mut self, path: &EntryPath) -> std::result::Result<(), Error> {
        let Some((dir, name)) = path.split() else { return self.clear(path) };
        self.parents.forget();
        let Some(dir) = self.directory(dir).map_err(refused(path))? else { return Ok(()) };
        self.remove_name(&dir, name).map_err(refused(path))
    }

    /// Removes what is in a directory, if there is one.
    pub(super) fn clear(&mut self, path: &EntryPath) -> std::result::Result<(), Error> {
        self.parents.forget();
        let Some(dir) = self.directory(path.as_bytes()).map_err(refused(path))? else { return Ok(()) };
        self.remove_below(dir).map_err(refused(path))
    }

    /// The directory at a path, if there is one.
    fn directory(&self, path: &[u8]) -> Result<Option<Arc<Node>>> {
        let Ok(path) = EntryPath::new(path) else { return Ok(None) };
        match self.find(&path) {
            Ok(node) => Ok((node.kind() == FileType::Directory).then_some(node)),
            Err(VfsError::NotFound | VfsError::NotDirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn remove_name(&mut self, dir: &Arc<Node>, name: &[u8]) -> Result<()> {
        let root = &Credentials::root();
        let node = match self.vfs.lookup(dir, name) {
            Err(VfsError::NotFound) => return Ok(()),
            node => node?,
        };
        if node.kind() != FileType::Directory {
            drop(node);
            return self.vfs.unlink(root, dir, name);
        }
        self.late.remove(&node.ino());
        self.remove_below(node)?;
        self.vfs.rmdir(root, dir, name)
    }

    /// Empties a directory, with a stack of its own and not by recursion.
    fn remove_below(&mut self, top: Arc<Node>) -> Result<()> {
        let root = &Credentials::root();
        let mut levels: Vec<(Arc<Node>, Vec<u8>)> = vec![(top, Vec::new())];
        while let Some((dir, _)) = levels.last() {
            let dir = Arc::clone(dir);
            let mut below = None;
            let names = names_of(&dir)?;
            for name in &names {
                let node = self.vfs.lookup(&dir, name)?;
                if node.kind() == FileType::Directory {
                    below = Some((node, name.clone()));
                    break;
                }
                drop(node);
                self.vfs.unlink(root, &dir, name)?;
            }
            if let Some(below) = below {
                levels.push(below);
                continue;
            }
            if names.is_empty() {
                let gone: Ino = dir.ino();
                drop(dir);
                let Some((_, name)) = levels.pop() else { break };
                let Some((above, _)) = levels.last() else { break };
                self.late.remove(&gone);
                self.vfs.rmdir(root, above, &name)?;
            }
        }
        Ok(())
    }
}

/// Some names of a directory, without `.` and `..`; none of an empty one.
fn names_of(dir: &Node) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    dir.read_dir(DirOffset::default(), &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        if names.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(names)
}
