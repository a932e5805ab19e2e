//! Extent trees: runs of blocks in a B+tree whose root lies in the inode and holds 4 entries.
//!
//! | module   | does                                                              |
//! | -------- | ----------------------------------------------------------------- |
//! | `raw`    | a node's bytes, and plain edits of them                           |
//! | `node`   | validates a node before it is used                                   |
//! | `path`   | finds the way from the root to a leaf                             |
//! | `tree`   | puts extents in the place of others: splits, grows, shrinks       |
//! | `change` | inserts, removes, and marks runs of blocks written or unwritten   |
//! | `relocate` | moves nodes to other blocks                                     |
//! | `shift`  | moves what follows a block to another place in the file           |
//!
//! What always holds: a leaf's entries rise and do not overlap; an entry of an inner node names the first file block of
//! its child's first entry; but for the root no node is empty.
//!
//! Locks: the caller holds the inode's fields, shared to look up and exclusively to change. A change reads every node
//! that it needs before it changes the first, and holds them meanwhile.

mod change;
mod node;
mod path;
mod raw;
mod relocate;
mod shift;
mod tree;

use undercroft_vfs::Result;

use self::path::Path;
use self::raw::{MAX_DEPTH, RawExtent};
use super::run::{BATCH, Run, RunState};
use crate::alloc::ALLOCATE_CREDITS;
use crate::inode::Inode;
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;

pub(super) use self::change::{insert, mark, remove};
pub(crate) use self::raw::seal_extent_node;
pub(super) use self::relocate::{nodes, relocate};
pub(super) use self::shift::{shift_down, shift_up, split_at};

/// The root of a tree that maps nothing.
pub(super) fn empty_root() -> [u8; 60] {
    let mut root = [0; 60];
    raw::init(&mut root, 0);
    root
}

/// How many levels of blocks a tree has below its root, for a guess of what changing it takes.
pub(super) fn depth(inode: &Inode) -> u32 {
    u32::from(raw::depth(&inode.i_block).min(MAX_DEPTH))
}

/// Whether all blocks can be removed in one step: the root is a leaf, and its pieces lie in few groups. The root need
/// not have been validated; the removal does that.
pub(super) fn is_removed_in_one_step(volume: &Volume, inode: &Inode) -> bool {
    let per_group = u64::from(volume.superblock().geometry().blocks_per_group());
    // A piece begins and ends somewhere in a group.
    let groups = |extent: &RawExtent| extent.get().len / per_group + 2;
    let extents = raw::entries::<RawExtent>(&inode.i_block);
    depth(inode) == 0 && extents.iter().map(groups).sum::<u64>() <= BATCH as u64
}

/// Blocks that one change of a leaf may change: the nodes on the way, a new one beside each and above all.
pub(super) fn credits(depth: u32) -> u32 {
    (depth + 1) * (2 + ALLOCATE_CREDITS)
}

/// The longest extent.
pub(super) fn max_len(written: bool) -> u64 {
    raw::Extent::max_len(written)
}

pub(super) fn lookup(volume: &Volume, inode: &Inode, block: FileBlock) -> Result<Run> {
    let wanted = u64::from(block.0);
    let path = Path::find(volume, inode, wanted)?;
    Ok(path.extents(inode, |extents| {
        let after = extents.partition_point(|extent| extent.first() <= wanted);
        if let Some(extent) = after.checked_sub(1).map(|i| extents[i].get())
            && wanted < extent.end()
        {
            let into = wanted - extent.first;
            let physical = FsBlock(extent.start.0 + into);
            let state =
                if extent.written { RunState::Mapped(physical) } else { RunState::Unwritten(physical) };
            return Run { start: block, len: extent.len - into, before: into, state };
        }
        Run::hole(block, extents.get(after).map_or(path.high, RawExtent::first))
    }))
}
