//! Where the attribute fork begins in the inode, as Linux chooses it.
//!
//! An inode's attribute fork is as large as its attributes once needed, and the data fork has the rest. The boundary
//! moves towards the data fork while the content there allows it, and back only when the last attribute goes.

use undercroft_vfs::FileType;

use crate::inode::{Fork, Inode};

/// The least room of a data fork in bytes: a root with three pointers.
const DATA_LEAST: usize = 4 + 3 * 16;

/// The least room of an attribute fork in bytes: a root with two pointers.
const ATTR_LEAST: usize = 4 + 2 * 16;

/// Where Linux lets the attribute fork of an inode begin whose attributes lie in blocks: in words.
pub(super) const DEFAULT_WORDS: u8 = 24;

/// A word: the unit in which the boundary moves, in bytes.
const WORD_BYTES: usize = 8;

/// Where an inode's attribute fork can begin, in words behind the core.
struct Limits {
    least: usize,
    most: usize,
    room: usize,
    is_fixed: bool,
}

impl Limits {
    fn of(inode: &Inode) -> Self {
        let core = &inode.core;
        let room = core.attr_fork.end - core.data_fork.start;
        let (needed, is_fixed) = match &inode.data {
            Fork::Device(_) => return Self { least: 1, most: 1, room, is_fixed: true },
            Fork::Local(bytes) => (bytes.len(), false),
            Fork::Extents(extents) => (extents.len() * 16, false),
            Fork::Btree(tree) => {
                let count = tree.root.get(2..4).map_or(0, |at| usize::from(at[0]) << 8 | usize::from(at[1]));
                // Linux leaves the boundary where it is, once there is one.
                (4 + count * 16, inode.attr.is_some())
            }
        };
        Self {
            least: needed.max(DATA_LEAST).div_ceil(WORD_BYTES),
            most: (room - ATTR_LEAST) / WORD_BYTES,
            room,
            is_fixed,
        }
    }
}

/// Where the attribute fork begins, in words; 0 without one.
pub(super) fn words(inode: &Inode) -> u8 {
    let core = &inode.core;
    if core.attr_fork.is_empty() {
        0
    } else {
        ((core.attr_fork.start - core.data_fork.start) / WORD_BYTES) as u8
    }
}

/// Where the attribute fork is to begin that keeps `bytes` in the inode; `None` if the data fork leaves no such room.
pub(super) fn for_bytes(inode: &Inode, bytes: usize) -> Option<u8> {
    let limits = Limits::of(inode);
    if bytes <= inode.core.attr_fork.len() {
        return Some(words(inode));
    }
    if limits.is_fixed && inode.attr.is_some() {
        return None;
    }
    let wanted = limits.room.checked_sub(bytes)? / WORD_BYTES;
    (wanted >= limits.least && limits.least <= limits.most).then_some(wanted.min(limits.most) as u8)
}

/// Where the attribute fork is to begin whose attributes lie in blocks; `None` if the data fork leaves no room for the
/// smallest one.
pub(super) fn for_blocks(inode: &Inode) -> Option<u8> {
    if inode.attr.is_some() {
        return Some(words(inode));
    }
    let limits = Limits::of(inode);
    let wanted = usize::from(DEFAULT_WORDS).min(limits.most).max(limits.least);
    (wanted <= limits.most).then_some(wanted as u8)
}

/// Whether the attribute fork can go when the last attribute does. The root of a tree in the data fork stays as large
/// as it is, and the target of a symbolic link in a block must not fit the inode.
pub(super) fn can_drop(inode: &Inode) -> bool {
    match &inode.data {
        Fork::Btree(_) => false,
        Fork::Extents(_) if inode.core.kind == FileType::Symlink => {
            inode.core.size_bytes > Limits::of(inode).room as u64
        }
        _ => true,
    }
}
