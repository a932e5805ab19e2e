//! Orphans that a crash left are finished when the filesystem is opened for writing: unlinked inodes are deleted,
//! others are truncated to their size.
//!
//! They are finished one after the other, each in as many handles as it takes. The last handle removes the orphan from
//! the list or the file, so a crash in between is recovered from in the same way. Memory does not grow with the number
//! of orphans.

use undercroft_vfs::{FileType, Result, clock};

use super::CREDITS;
use super::file::OrphanFile;
use super::list::OrphanList;
use crate::alloc::FREE_INODE_CREDITS;
use crate::error::corrupt;
use crate::inode::{self, Inode, InodeFlags, Location};
use crate::map::{self, Progress, Removed};
use crate::superblock::State;
use crate::transaction::Handle;
use crate::writer::Mounted;
use crate::xattr;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) deleted: u64,
    pub(crate) truncated: u64,
}

/// Where an orphan was found.
enum Entry<'a> {
    /// First on the list; what comes after it.
    First(&'a OrphanList, u32),
    /// In a slot of the file.
    InFile(&'a OrphanFile, u64),
}

/// Deletes and truncates what the list and the file name. The filesystem is not in use yet. A filesystem with errors
/// is left as it is: what its orphans' maps say may be wrong, and e2fsck must look at it first.
///
/// # Errors
/// Corruption: an orphan that cannot be, or whose parts are damaged; I/O failure.
pub(crate) fn recover(volume: &Mounted) -> Result<Recovered> {
    if volume.superblock().state().contains(State::ERRORS) {
        return Ok(Recovered::default());
    }
    let mut recovered = finish_list(volume)?;
    if let Some(file) = &volume.writer()?.orphans.file {
        for (slot, number) in file.entries().flatten() {
            check_number(volume, number)?;
            finish(volume, number, &Entry::InFile(file, slot), &mut recovered)?;
        }
    }
    Ok(recovered)
}

/// Deletes and truncates what the list names. None of it is in use.
///
/// # Errors
/// As [`recover`].
pub(crate) fn finish_list(volume: &Mounted) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    let list = &volume.writer()?.orphans.list;
    loop {
        let first = list.head();
        if first == 0 {
            return Ok(recovered);
        }
        check_number(volume, first)?;
        let next = super::read::next_in_list(volume, first)?;
        finish(volume, first, &Entry::First(list, next), &mut recovered)?;
    }
}

/// An orphan is a user's file, and in use.
fn check_number(volume: &Mounted, number: u32) -> Result<()> {
    let geometry = volume.superblock().geometry();
    let wrong = |detail: String| Err(corrupt("list of orphans", format!("{detail}; run e2fsck")));
    if number < geometry.first_inode() || number > geometry.inodes() {
        return wrong(format!("names inode {number}, which is no file's"));
    }
    if !volume.writer()?.allocator.is_inode_used(volume, number)? {
        return wrong(format!("names inode {number}, which is free"));
    }
    Ok(())
}

fn finish(volume: &Mounted, number: u32, entry: &Entry<'_>, recovered: &mut Recovered) -> Result<()> {
    let location = inode::locate(volume, number)?;
    let mut inode = Inode::read_linked_or_not(volume, number, location)?;
    let has_no_name = inode.links == 0;
    if map::is_mapped(volume, &inode) {
        let kept = if has_no_name { 0 } else { inode.size_bytes.div_ceil(u64::from(volume.block_bytes())) };
        remove_blocks(volume, &mut inode, location, kept)?;
    }
    if has_no_name {
        delete(volume, &mut inode, location, entry)?;
        recovered.deleted += 1;
    } else {
        let handle = volume.start(CREDITS)?;
        entry.leave(&handle, number, location)?;
        recovered.truncated += 1;
    }
    Ok(())
}

/// Takes the blocks from `kept` on out of a file.
fn remove_blocks(volume: &Mounted, inode: &mut Inode, location: Location, kept: u64) -> Result<()> {
    // A directory's blocks and a link's are in the log; so are a file's whose data is journaled.
    let removed = match inode.flags.contains(InodeFlags::JOURNAL_DATA) {
        true => Removed::Metadata,
        false => Removed::of(inode.kind),
    };
    loop {
        let handle = volume.start(map::remove_credits(inode) + 1)?;
        let progress = map::remove(&handle, inode, kept, u64::MAX, removed)?;
        inode.store(&handle, location)?;
        if progress == Progress::Done {
            return Ok(());
        }
    }
}

/// Deletes an inode that has no blocks any more.
fn delete(volume: &Mounted, inode: &mut Inode, location: Location, entry: &Entry<'_>) -> Result<()> {
    let number = inode.number;
    let handle = volume.start(CREDITS + FREE_INODE_CREDITS + xattr::credits(volume, None) + 1)?;
    xattr::release(&handle, inode, location)?;
    entry.leave(&handle, number, location)?;
    inode::mark_deleted(&handle, inode, location, clock::now())?;
    let was_directory = inode.kind == FileType::Directory;
    volume.writer()?.allocator.free_inode(&handle, number, was_directory)
}

impl Entry<'_> {
    fn leave(&self, handle: &Handle<'_>, number: u32, location: Location) -> Result<()> {
        match self {
            Self::First(list, next) => list.leave_first(handle, number, location, *next),
            Self::InFile(file, slot) => {
                file.leave(handle, *slot);
                Ok(())
            }
        }
    }
}
