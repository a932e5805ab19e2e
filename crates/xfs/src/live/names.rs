//! Adding, removing and moving names: the part of the contract that changes directories.

use std::sync::Arc;

use undercroft_vfs::{Found, NewInode, Node, Result};

use super::Live;

pub(super) fn create(dir: &Live, name: &[u8], new: &NewInode<'_>) -> Result<Found> {
    let _ = (dir, name, new);
    todo!("names")
}

pub(super) fn tmpfile(dir: &Live, new: &NewInode<'_>) -> Result<Found> {
    let _ = (dir, new);
    todo!("names")
}

pub(super) fn link(dir: &Live, name: &[u8], node: &Arc<Node>) -> Result<()> {
    let _ = (dir, name, node);
    todo!("names")
}

pub(super) fn unlink(dir: &Live, name: &[u8], victim: &Arc<Node>) -> Result<()> {
    let _ = (dir, name, victim);
    todo!("names")
}

pub(super) fn unlink_unused(dir: &Live, name: &[u8], victim: &Arc<Node>) -> Result<()> {
    let _ = (dir, name, victim);
    todo!("names")
}

pub(super) fn rename(
    dir: &Live,
    name: &[u8],
    moved: &Arc<Node>,
    to: &Node,
    to_name: &[u8],
    replaced: Option<&Arc<Node>>,
    whiteout: Option<&NewInode<'_>>,
) -> Result<()> {
    let _ = (dir, name, moved, to, to_name, replaced, whiteout);
    todo!("names")
}

pub(super) fn exchange(
    dir: &Live,
    name: &[u8],
    one: &Arc<Node>,
    to: &Node,
    to_name: &[u8],
    other: &Arc<Node>,
) -> Result<()> {
    let _ = (dir, name, one, to, to_name, other);
    todo!("names")
}
