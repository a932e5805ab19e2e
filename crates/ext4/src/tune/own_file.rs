//! Files of the filesystem's own that only the superblock leads to: the journal and the orphan file.

use undercroft_vfs::{Announce, Error, NewInode, NewKind, Result};

use crate::alloc::Reservation;
use crate::inode::{Inheritance, Inode, InodeFlags};
use crate::map;
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
