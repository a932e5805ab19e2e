//! A directory in use: reading it while others change it.
//!
//! Locks: the directory's `index`, shared; none while an entry is handed out.

use std::ops::ControlFlow;

use undercroft_vfs::{DirEntry, DirOffset, Result};

use super::directory::Directory;
use super::{by_hash, lookup, read_dir};
use crate::inode::InodeState;

/// The number of the inode that a name stands for.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn lookup_live(dir: &InodeState, name: &[u8]) -> Result<Option<u32>> {
    let _index = dir.directory.index.read();
    let inode = dir.fields.read().clone();
    lookup(&dir.volume, &inode, name)
}

/// The entries from `from` on. No lock is held while `sink` runs.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn read_dir_live(
    dir: &InodeState,
    from: DirOffset,
    sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    if by_hash::read(dir, from, sink)?.is_some() {
        return Ok(());
    }
    let index = dir.directory.index.read();
    let inode = dir.fields.read().clone();
    if !inode.has_inline_data() {
        drop(index);
        return read_dir(&dir.volume, &inode, from, sink);
    }
    // Under one lock: otherwise the entries in the inode's own bytes and its attribute may move to a block in between.
    let mut entries = Vec::new();
    let outcome = read_dir(&dir.volume, &inode, from, &mut |entry| {
        entries.push((entry.name.to_vec(), DirEntry { name: b"", ..entry }));
        ControlFlow::Continue(())
    });
    drop(index);
    for (name, entry) in &entries {
        if sink(DirEntry { name, ..*entry }).is_break() {
            return Ok(());
        }
    }
    outcome
}

/// Where a listing goes on behind the block that the position lies in, of a directory that is read block by block.
pub(crate) fn behind_block(dir: &InodeState, from: DirOffset) -> Option<DirOffset> {
    let index = dir.directory.index.read();
    let inode = dir.fields.read().clone();
    drop(index);
    let directory = Directory::open(&dir.volume, &inode).ok()?;
    let takes_changes = dir.volume.writer().is_ok();
    if inode.has_inline_data() || takes_changes && by_hash::is_ordered(&directory) {
        return None;
    }
    let next = from.0 / u64::from(dir.volume.block_bytes()) + 1;
    (next < directory.blocks).then(|| DirOffset(next * u64::from(dir.volume.block_bytes())))
}
