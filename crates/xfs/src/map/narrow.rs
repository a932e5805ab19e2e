//! Making the map of a data fork take less of the inode, so that there is room for attributes.
//!
//! A list of extents goes into a tree of one leaf, and the entries of a tree's root go into a block below it. Either
//! leaves a root with one entry.

use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use super::records::{HEADER_BYTES, Records};
use crate::btree::{Bmbt, Kind, TreeSpace};
use crate::error::corrupt_inode;
use crate::format::dinode::ROOT_HEADER_BYTES;
use crate::inode::{ExtentTree, Fork, ForkKind, Inode};
use crate::transaction::{Handle, Seal};

/// A key or a pointer, in bytes.
const WORD_BYTES: usize = 8;

/// Lets the attribute fork of an inode that has none begin `words` times eight bytes behind the core, where the data fork
/// does not fit in front of it. Takes a block out of the handle's space.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); corruption; I/O failure. Nothing has changed then, or the changes are aborted.
pub(crate) fn narrow(handle: &Handle<'_>, inode: &mut Inode, words: u8) -> Result<()> {
    if handle.space() == 0 {
        return Err(Error::NoSpace);
    }
    match inode.data.clone() {
        Fork::Device(_) | Fork::Local(_) => Err(Error::NoSpace),
        Fork::Extents(list) => {
            let mut empty = inode.clone();
            empty.data = Fork::Extents(Arc::new([]));
            empty.core.data_extents = 0;
            if !empty.set_forkoff(words) {
                return Err(Error::NoSpace);
            }
            Records { handle, inode: &mut empty, kind: ForkKind::Data }.set_list(list.to_vec())?;
            *inode = empty;
            Ok(())
        }
        Fork::Btree(tree) => {
            push_root_down(handle, inode, &tree)?;
            if inode.set_forkoff(words) { Ok(()) } else { handle.or_abort(Err(Error::NoSpace)) }
        }
    }
}

/// Moves the entries of a tree's root into a block below it.
fn push_root_down(handle: &Handle<'_>, inode: &mut Inode, tree: &ExtentTree) -> Result<()> {
    let ino = inode.ino;
    let corrupt = || corrupt_inode("data fork", ino, None, "has a root that is too short for its entries");
    let most = |bytes: usize, header: usize| bytes.saturating_sub(header) / (2 * WORD_BYTES);
    let root = &tree.root[..];
    let half = |at: usize| root.get(at..at + 2).map(|at| u16::from_be_bytes([at[0], at[1]]));
    let (level, count) = half(0).zip(half(2)).ok_or_else(corrupt)?;
    let len = usize::from(count) * WORD_BYTES;
    let keys = root.get(ROOT_HEADER_BYTES..ROOT_HEADER_BYTES + len).ok_or_else(corrupt)?;
    let pointers_at = ROOT_HEADER_BYTES + most(root.len(), ROOT_HEADER_BYTES) * WORD_BYTES;
    let pointers = root.get(pointers_at..pointers_at + len).ok_or_else(corrupt)?;
    let superblock = handle.volume().superblock();
    let geometry = superblock.geometry();
    let room = most(geometry.block_bytes() as usize, HEADER_BYTES);
    if usize::from(count) > room || count == 0 {
        return Err(corrupt());
    }
    let mut records = Records { handle, inode, kind: ForkKind::Data };
    let mut space = records.space();
    let taken = space.take(handle);
    records.count_blocks(space.taken);
    let block = taken?;
    // From here on a failure aborts the changes.
    let put = |bytes: &mut [u8], at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let made = handle.make_owned(block, Seal::LongBtree, ino.0, |bytes| {
        put(bytes, 0, &Bmbt::MAGIC[1].to_be_bytes());
        put(bytes, 4, &level.to_be_bytes());
        put(bytes, 6, &count.to_be_bytes());
        put(bytes, 8, &[0xff; 16]);
        put(bytes, HEADER_BYTES, keys);
        put(bytes, HEADER_BYTES + room * WORD_BYTES, pointers);
    });
    handle.or_abort(made)?;
    let mut small = vec![0; root.len()];
    put(&mut small, 0, &(level + 1).to_be_bytes());
    put(&mut small, 2, &1_u16.to_be_bytes());
    put(&mut small, ROOT_HEADER_BYTES, &keys[..WORD_BYTES]);
    put(&mut small, pointers_at, &block.0.to_be_bytes());
    let known = tree.found.get().and_then(|found| found.known.clone());
    records.set_tree(small.into(), tree.extents, known);
    Ok(())
}
