//! Changing what lies under the blocks of a fork.
//!
//! All functions change the inode in memory and the blocks of the fork's B+tree, keep the count of blocks, the reverse
//! map and the reference counts, and leave the inode to be stored by the caller.

use undercroft_vfs::Result;

use crate::format::FileBlock;
use crate::format::FsBlock;
use crate::format::extent::Extent;
use crate::inode::{ForkKind, Inode};
use crate::transaction::Handle;

/// How far a change of many extents came under one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// The rest, from this block on, wants another handle.
    From(u64),
}

/// Blocks that a change of one extent changes at most, with the trees of its group.
pub(crate) fn credits(inode: &Inode, kind: ForkKind) -> u32 {
    let _ = (inode, kind);
    todo!("map")
}

/// Blocks of space that entering one extent may need for the fork's B+tree.
pub(crate) fn space(inode: &Inode, kind: ForkKind) -> u64 {
    let _ = (inode, kind);
    todo!("map")
}

/// Enters blocks that belong to nothing yet into a hole of the fork.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn insert(handle: &Handle<'_>, inode: &mut Inode, kind: ForkKind, extent: Extent) -> Result<()> {
    let _ = (handle, inode, kind, extent);
    todo!("map")
}

/// Removes the blocks from `from` to before `to`, as many extents as the handle has room for. Each block loses a user,
/// and those without another are freed. Blocks that are metadata are forgotten.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    from: FileBlock,
    to: FileBlock,
) -> Result<Progress> {
    let _ = (handle, inode, kind, from, to);
    todo!("map")
}

/// Marks the blocks from `from` to before `to`, which lie in one extent, as written or as never written.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn mark(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: FileBlock,
    to: FileBlock,
    unwritten: bool,
) -> Result<()> {
    let _ = (handle, inode, from, to, unwritten);
    todo!("map")
}

/// Takes a block near `goal` out of the handle's space and enters it at `at`, in a hole of a fork of metadata.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn add_block(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    at: FileBlock,
) -> Result<FsBlock> {
    let _ = (handle, inode, kind, at);
    todo!("map")
}

/// Removes a block of a fork of metadata, which is forgotten and freed.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn remove_block(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    at: FileBlock,
) -> Result<()> {
    let _ = (handle, inode, kind, at);
    todo!("map")
}
