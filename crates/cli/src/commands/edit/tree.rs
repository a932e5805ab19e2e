//! What an edit does to each path, and to all that is below it.

use std::sync::Arc;

use undercroft_vfs::{FileType, Node, Vfs};

use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::walk::{Event, Order, Walk};

/// Does something about each path; one that fails does not keep the others back.
pub(super) fn each(
    paths: &[Vec<u8>],
    mut work: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<Option<Kind>, Failure> {
    let mut complaints = Complaints::default();
    for path in paths {
        match work(path) {
            Ok(()) => complaints.done_some(),
            Err(failure) => complaints.add(failure)?,
        }
    }
    Ok(complaints.outcome())
}

/// Does something about what each path stands for, and if `recursive` about all below it. Symbolic links that are found
/// below are given as they are.
pub(super) fn each_with_below(
    vfs: &Vfs,
    paths: &[Vec<u8>],
    follow: bool,
    recursive: bool,
    mut work: impl FnMut(&[u8], &Arc<Node>) -> Result<(), Failure>,
) -> Result<Option<Kind>, Failure> {
    let mut complaints = Complaints::default();
    for path in paths {
        let done = image::resolve(vfs, path, follow).and_then(|node| {
            work(path, &node)?;
            Ok(node)
        });
        let node = match done {
            Ok(node) => node,
            Err(failure) => {
                complaints.add(failure)?;
                continue;
            }
        };
        complaints.done_some();
        if recursive && node.kind() == FileType::Directory {
            below(vfs, path, &node, &mut complaints, &mut work)?;
        }
    }
    Ok(complaints.outcome())
}

fn below(
    vfs: &Vfs,
    path: &[u8],
    top: &Arc<Node>,
    complaints: &mut Complaints,
    work: &mut impl FnMut(&[u8], &Arc<Node>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for event in Walk::new(vfs, top, path.to_vec(), Order::Inode) {
        match event {
            Event::File(entry) | Event::Enter(entry) => {
                if let Err(failure) = work(&entry.path, &entry.node) {
                    complaints.add(failure)?;
                }
            }
            Event::Leave => {}
            Event::Trouble { path, error } => complaints.add(Failure::inside(&path, &error))?,
        }
    }
    Ok(())
}
