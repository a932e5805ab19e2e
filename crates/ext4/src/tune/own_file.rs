//! Files of the filesystem's own that only the superblock leads to: the journal and the orphan file.

use undercroft_vfs::{Announce, Error, NewInode, NewKind, Result};

use crate::alloc::{FREE_INODE_CREDITS, Reservation};
use crate::inode::{self, Inheritance, Inode, InodeFlags};
use crate::map::{self, Progress, Removed};
use crate::numbers::{FileBlock, FsBlock};
use crate::transaction::Handle;
use crate::volume::Volume;
use crate::writer::Mounted;

/// Places for so many blocks, near a block, in `most` pieces.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); corruption; I/O failure.
pub(super) fn reserve(volume: &Mounted, near: FsBlock, blocks: u64, most: usize) -> Result<Vec<Reservation>> {
    let allocator = &volume.writer()?.allocator;
    let (mut places, mut left) = (Vec::new(), blocks);
    while left > 0 {
        if places.len() == most {
            return Err(Error::NoSpace);
        }
        let place = allocator.reserve(volume, near, left, 1)?;
        left -= place.len();
        places.push(place);
    }
    Ok(places)
}

/// The inode of such a file, without blocks.
pub(super) fn fresh(volume: &Volume, number: u32, size_bytes: u64) -> Inode {
    let new = NewInode {
        kind: NewKind::Regular,
        permissions: 0o600,
        uid: 0,
        gid: 0,
        xattrs: &[],
        announce: Announce::default(),
    };
    let nothing = Inheritance { flags: InodeFlags::empty(), project: 0 };
    let mut inode = Inode::fresh(volume, nothing, number, &new, 1);
    inode.size_bytes = size_bytes;
    inode
}

/// Enters the places in the file's map, one behind the other.
///
/// # Errors
/// Corruption; I/O failure. Something has changed then.
pub(super) fn enter(handle: &Handle<'_>, inode: &mut Inode, places: Vec<Reservation>) -> Result<()> {
    let mut at = 0;
    for mut place in places {
        let count = place.len();
        let first = handle.writer().allocator.take(handle, &mut place, count)?;
        map::insert(handle, inode, FileBlock(at as u32), first, count, true)?;
        at += count;
    }
    Ok(())
}

/// Deletes a file that nothing leads to any more. `last` frees its number, or changes what else belongs to it, in the
/// transaction in which the inode goes. `what` says why all changes end if one fails.
///
/// # Errors
/// Corruption; I/O failure.
pub(super) fn delete(
    volume: &Mounted,
    number: u32,
    removed: Removed,
    what: &str,
    last: impl FnOnce(&Handle<'_>) -> Result<()>,
) -> Result<()> {
    let location = inode::locate(volume, number)?;
    let mut inode = Inode::read_linked_or_not(volume, number, location)?;
    let mut from = 0;
    loop {
        let handle = volume.start(map::remove_credits(&inode) * 4 + FREE_INODE_CREDITS + 3)?;
        match handle.or_abort(what, map::remove(&handle, &mut inode, from, u64::MAX, removed))? {
            Progress::From(next) => {
                handle.or_abort(what, inode.store(&handle, location))?;
                from = next;
            }
            Progress::Done => {
                let freed = inode::clear_slot(&handle, number, location).and_then(|()| last(&handle));
                return handle.or_abort(what, freed);
            }
        }
    }
}
