//! A directory in use: reading it while others change it.
//!
//! Names are changed in place beside readers in directories whose index has blocks of its own. Each block is read as one
//! version, but an entry of the index may lead to a name that has been removed since, which looks as damage does. So a
//! reader that finds damage looks once more without any changes beside it.
//!
//! Locks: the directory's `names`, shared, while blocks are read, and exclusive for a second look; none while an entry is
//! handed out. A read-only filesystem needs none.

use std::ops::ControlFlow;

use undercroft_vfs::{DirEntry, DirOffset, Error, FileType, Ino, Result};

use super::directory::{Directory, STRUCTURE};
use super::entry::Position;
use super::list::{self, Listing};
use super::lookup;
use crate::da::mapped::MappedFork;
use crate::da::{Content, Layout};
use crate::inode::{Fork, InodeState};
use crate::volume::Volume;

/// The number of the inode that a name leads to.
///
/// # Errors
/// [`NotDirectory`](Error::NotDirectory); corruption; I/O failure.
pub(crate) fn lookup_live(dir: &InodeState, name: &[u8]) -> Result<Option<Ino>> {
    match with_directory(dir, |directory| lookup(directory, name)) {
        Err(Error::Corrupt(_)) if dir.volume.writer().is_ok() => {
            let _names = dir.names.write();
            with_locked_directory(dir, |directory| lookup(directory, name))
        }
        found => found,
    }
}

/// Whether a directory has no names but `.` and `..`.
///
/// # Errors
/// As for [`lookup_live`].
pub(crate) fn is_empty(dir: &InodeState) -> Result<bool> {
    with_directory(dir, |directory| {
        let mut has_name = false;
        super::read_dir(directory, DirOffset(0), &mut |entry| {
            has_name = !matches!(entry.name, b"." | b"..");
            if has_name { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(!has_name)
    })
}

/// The entries from `from` on. No lock is held while `sink` runs.
///
/// # Errors
/// As for [`lookup_live`]; entries already given were good.
pub(crate) fn read_dir_live(
    dir: &InodeState,
    from: DirOffset,
    sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    if dir.volume.writer().is_err() {
        return with_directory(dir, |directory| super::read_dir(directory, from, sink));
    }
    let layout = Layout::of(dir.volume.superblock());
    let (mut from, mut announced) = (Position(from.0), 0);
    loop {
        // The entries of one block, of which the first is not before `from`.
        let mut entries: Vec<(usize, DirEntry<'_>)> = Vec::new();
        let mut names = Vec::new();
        let mut first_block = None;
        let mut is_more = false;
        let outcome = with_directory(dir, |directory| {
            let mut collect = |entry: DirEntry<'_>| {
                names.extend_from_slice(entry.name);
                entries.push((names.len(), DirEntry { name: b"", ..entry }));
                let (block, at) = Position(entry.next.0).split(&layout);
                // One that ends with its block ends where the next one begins.
                let block = if at == 0 { block.saturating_sub(1) } else { block };
                is_more = at == 0 || *first_block.get_or_insert(block) != block;
                if is_more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            Listing { directory, from, announced, sink: &mut collect }.run().map(|now| announced = now)
        });
        let mut start = 0;
        for (end, entry) in &entries {
            if sink(DirEntry { name: &names[start..*end], ..*entry }).is_break() {
                return Ok(());
            }
            from = Position(entry.next.0);
            start = *end;
        }
        outcome?;
        if !is_more {
            return Ok(());
        }
    }
}

/// Where [`read_dir_live`] goes on behind what it could not read after the entries before `from`; `None` where that is
/// unknown.
pub(crate) fn behind_live(dir: &InodeState, from: DirOffset) -> Option<DirOffset> {
    with_directory(dir, |directory| Ok(list::behind(directory, Position(from.0))))
        .ok()
        .flatten()
        .map(|position| DirOffset(position.0))
}

/// Calls `use_it` with the directory, whose names do not change meanwhile.
fn with_directory<T>(dir: &InodeState, use_it: impl FnOnce(Directory<'_>) -> Result<T>) -> Result<T> {
    if dir.kind != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    let _names = dir.volume.writer().is_ok().then(|| dir.names.read());
    with_locked_directory(dir, use_it)
}

/// The same for a directory whose names are locked.
fn with_locked_directory<T>(dir: &InodeState, use_it: impl FnOnce(Directory<'_>) -> Result<T>) -> Result<T> {
    // After the lock: names that were added before may lead past an earlier end of the filesystem.
    let superblock = dir.volume.superblock();
    let layout = &Layout::of(superblock);
    let (ino, data) = (dir.ino, dir.fields.read().data.clone());
    let volume: &Volume = &dir.volume;
    let blocks = MappedFork::of(volume, ino, STRUCTURE, &data);
    let content = match &data {
        Fork::Local(bytes) => Content::Inline(bytes),
        _ => Content::Blocks(&blocks),
    };
    use_it(Directory { ino, layout, superblock, content })
}
