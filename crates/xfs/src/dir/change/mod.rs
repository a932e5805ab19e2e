//! Changing the names of a directory, in all of its forms.
//!
//! | module | what it has |
//! | --- | --- |
//! | `plan` | the directory as it will be: its blocks, read and changed in memory |
//! | `apply` | making the plan true under a handle |
//! | `pieces` | blocks that lie in several extents |
//! | `edit` | names added, removed and led elsewhere, in whichever form |
//! | `short`, `block`, `leaf`, `tree`, `free` | the forms, and how one becomes another |
//! | `raw`, `data` | the bytes of the hash index and of blocks of names |
//! | `quick` | names added and removed in place, without a plan |
//!
//! Most names are added and removed in place ([`add`], [`remove`]). Any other change has two steps. First a [`Change`] takes the directory's lock and plans: it reads and validates every block
//! that the change needs and changes copies of them, so that corruption and a full disk are found while nothing has
//! changed. A plan knows how many blocks it changes, adds and removes: its caller makes sure that the handle has room
//! for all of that. Then the plan is applied, which is not refused for any reason but failing I/O.
//!
//! Only directories of version 5 are changed. A directory block of several filesystem blocks is one buffer in the cache and
//! in the log where it lies together. Where no free space is as long, it gets a place in several extents, as Linux gives it
//! one: see `pieces`.
//!
//! Locks: the directory's `names`, exclusive, from the plan's beginning until it is applied or dropped; under a handle. Its
//! `fields`, exclusive, while it is applied. Several directories: in the order of their numbers. Those of changes in place:
//! see `quick`.
//!
//! Source: "XFS Algorithms & Data Structures", chapter "Directories"; the limits at which Linux changes the form were
//! observed.

mod apply;
mod block;
mod data;
mod edit;
mod free;
mod leaf;
mod pieces;
mod plan;
mod quick;
mod raw;
mod short;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use plan::Change;
pub(crate) use quick::{BlockLocks, add, remove};

use undercroft_vfs::Ino;

use crate::format::dinode::ForkFormat;
use crate::inode::{Fork, Inode};
use crate::volume::Volume;

/// Blocks that a change of a directory's names changes where neither blocks are added nor removed: of names, of the
/// index and of the free index, and what holds the inode. A handle that has so much finds it enough for most changes;
/// others [ask for more](Change::credits).
pub(crate) fn usual_credits(volume: &Volume) -> u32 {
    3 * volume.geometry().dir_block_fsblocks() + 1
}

/// Makes a new inode a directory without names.
pub(crate) fn make_first(inode: &mut Inode, parent: Ino) {
    let wide = parent.0 > u64::from(u32::MAX);
    let mut bytes = vec![0, u8::from(wide)];
    bytes.extend_from_slice(&parent.0.to_be_bytes()[if wide { 0 } else { 4 }..]);
    inode.core.size_bytes = bytes.len() as u64;
    inode.core.data_format = ForkFormat::Local;
    inode.data = Fork::Local(bytes.into());
}
