//! Removing a directory with everything below it.
//!
//! Goes down by a stack of its own, not by recursion: as deep as the tree is, with a node and a name for each level.
//! Each directory is emptied in one pass; what another thread adds behind that makes the removal fail with
//! [`NotEmpty`](crate::Error::NotEmpty). A directory that a corrupt disk has in two places, or within itself, is
//! refused by the lookup (see `place.rs`), so the stack never holds one twice.

use std::sync::Arc;

use super::Split;
use super::read_dir::list;
use crate::{Access, Credentials, DirOffset, Error, FileType, Node, Result, Vfs, check_access};

/// A directory that is being emptied.
struct Level {
    dir: Arc<Node>,
    /// Its name in the level above.
    name: Vec<u8>,
    /// What comes before this is gone.
    at: DirOffset,
}

impl Vfs {
    /// Removes a directory and everything below it. Symbolic links are removed, not followed, also one that the path
    /// itself stands for.
    ///
    /// # Errors
    /// [`NotDirectory`](Error::NotDirectory), [`Busy`](Error::Busy) for the root, and the first thing that could not be removed, as for
    /// [`remove_file`](Self::remove_file) and [`remove_dir`](Self::remove_dir); what came before it is gone.
    pub fn remove_dir_all(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let Some(split) = Split::of(path) else {
            return Err(if path.is_empty() { Error::NotFound } else { Error::Busy });
        };
        let above = self.directory_before(caller, path, &split)?;
        match split.name {
            b"." => return Err(Error::InvalidArgument("\".\" cannot be removed")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        let top = self.look_in(caller, &above, split.name)?;
        match top.kind() {
            FileType::Directory => {}
            FileType::Symlink if !split.slashes => return self.unlink(caller, &above, split.name),
            _ => return Err(Error::NotDirectory),
        }
        let mut levels = vec![Level { dir: top, name: split.name.into(), at: DirOffset::default() }];
        while let Some(level) = levels.last_mut() {
            if let Some(below) = self.empty_to_next_directory(caller, level)? {
                levels.push(below);
                continue;
            }
            let Some(Level { dir, name, .. }) = levels.pop() else { break };
            // The node is dropped first, so that the inode goes with the name.
            drop(dir);
            let parent = levels.last().map_or(&above, |level| &level.dir);
            ignore_gone(self.rmdir(caller, parent, &name))?;
        }
        Ok(())
    }

    /// Removes what is no directory up to the next directory, which is answered; `None` at the end.
    fn empty_to_next_directory(&self, caller: &Credentials, level: &mut Level) -> Result<Option<Level>> {
        check_access(caller, &level.dir, Access::READ | Access::EXECUTE)?;
        loop {
            let (batch, read) = list(&level.dir, level.at);
            if batch.is_empty() {
                return read.map(|()| None);
            }
            for listed in batch {
                level.at = listed.next;
                let node = match self.lookup(&level.dir, &listed.name) {
                    Err(Error::NotFound) => continue,
                    node => node?,
                };
                if node.kind() == FileType::Directory {
                    return Ok(Some(Level { dir: node, name: listed.name, at: DirOffset::default() }));
                }
                drop(node);
                ignore_gone(self.unlink(caller, &level.dir, &listed.name))?;
            }
        }
    }
}

/// Another thread may have removed it first.
fn ignore_gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(Error::NotFound) => Ok(()),
        removed => removed,
    }
}
