//! Removing a tree.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::{Credentials, DirOffset, FileType, Node, Result, Vfs};

/// Removes a name and, if it is a directory, everything in it.
pub(super) fn remove_all(vfs: &Vfs, dir: &Arc<Node>, name: &[u8]) -> Result<()> {
    let caller = Credentials::root();
    // With a stack of what is left: directories after what is in them.
    let mut left = vec![(Arc::clone(dir), name.to_vec())];
    while let Some((dir, name)) = left.last().cloned() {
        let node = vfs.lookup(&dir, &name)?;
        if node.kind() != FileType::Directory {
            vfs.unlink(&caller, &dir, &name)?;
            left.pop();
            continue;
        }
        let names = names_in(&node)?;
        if names.is_empty() {
            vfs.rmdir(&caller, &dir, &name)?;
            left.pop();
        }
        left.extend(names.into_iter().map(|name| (Arc::clone(&node), name)));
    }
    Ok(())
}

/// The names in a directory, without the dots.
pub(super) fn names_in(dir: &Node) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    dir.read_dir(DirOffset(0), &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}
