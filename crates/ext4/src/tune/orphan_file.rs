//! Adding an orphan file, and removing it while it is empty.

use undercroft_vfs::{Announce, Error, FileType, NewInode, NewKind, Result};

use crate::alloc::{ALLOCATE_CREDITS, FREE_INODE_CREDITS, NEW_INODE_CREDITS};
use crate::inode::{self, Inheritance, Inode, InodeFlags, ROOT_INODE};
use crate::map::{self, Progress, Removed};
use crate::mkfs;
use crate::numbers::{FileBlock, FsBlock};
use crate::orphan;
use crate::transaction::Handle;
use crate::volume::Volume;
use crate::writer::Mounted;

/// Pieces that it may be in.
const PIECES_MAX: usize = 128;

/// Makes an orphan file, which nothing leads to yet, and returns its number.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); corruption; I/O failure.
pub(super) fn add(volume: &Mounted) -> Result<u32> {
    let allocator = &volume.writer()?.allocator;
    let blocks = mkfs::orphan_file_blocks(volume.superblock().geometry().blocks());
    let (mut places, mut left) = (Vec::new(), u64::from(blocks));
    while left > 0 {
        if places.len() == PIECES_MAX {
            return Err(Error::NoSpace);
        }
        let place = allocator.reserve(volume, FsBlock(0), left, 1)?;
        left -= place.len();
        places.push(place);
    }
    let credits = (places.len() as u32 + 8) * (ALLOCATE_CREDITS + 2) + NEW_INODE_CREDITS + 1;
    let handle = volume.start(credits)?;
    let made = || {
        let new = allocator.new_inode(&handle, ROOT_INODE, FileType::Regular)?;
        let mut inode = fresh(volume, new.number);
        inode.size_bytes = u64::from(blocks) << volume.superblock().geometry().block_bits();
        let mut at = 0;
        for mut place in places {
            write_blocks(volume, &inode, place.first(), place.len())?;
            let count = place.len();
            let first = allocator.take(&handle, &mut place, count)?;
            map::insert(&handle, &mut inode, FileBlock(at as u32), first, count, true)?;
            at += count;
        }
        inode.store_new(&handle, new.location)?;
        Ok(new.number)
    };
    or_abort(&handle, made())
}

fn fresh(volume: &Volume, number: u32) -> Inode {
    let new = NewInode {
        kind: NewKind::Regular,
        permissions: 0o600,
        uid: 0,
        gid: 0,
        xattrs: &[],
        announce: Announce::default(),
    };
    Inode::fresh(volume, Inheritance { flags: InodeFlags::empty(), project: 0 }, number, &new, 1)
}

/// Writes blocks without entries. The commit of the transaction that leads to them makes them durable first.
fn write_blocks(volume: &Volume, inode: &Inode, first: FsBlock, count: u64) -> Result<()> {
    let block_bytes = volume.block_bytes() as usize;
    let mut bytes = vec![0; block_bytes];
    for home in first.0..first.0 + count {
        orphan::make_block(&mut bytes);
        if volume.superblock().has_metadata_checksums() {
            orphan::seal_block(inode.checksum_seed(volume), FsBlock(home), &mut bytes);
        }
        volume.buffers().forget(home);
        volume.device().write_at(home * block_bytes as u64, &bytes)?;
    }
    Ok(())
}

/// Deletes an orphan file, which nothing leads to any more.
///
/// # Errors
/// Corruption; I/O failure.
pub(super) fn remove(volume: &Mounted, number: u32) -> Result<()> {
    let allocator = &volume.writer()?.allocator;
    let location = inode::locate(volume, number)?;
    let mut inode = Inode::read_linked_or_not(volume, number, location)?;
    let mut from = 0;
    loop {
        let handle = volume.start(map::remove_credits(&inode) * 4 + FREE_INODE_CREDITS + 1)?;
        let removed = map::remove(&handle, &mut inode, from, u64::MAX, Removed::Metadata);
        match or_abort(&handle, removed)? {
            Progress::From(next) => {
                or_abort(&handle, inode.store(&handle, location))?;
                from = next;
            }
            Progress::Done => {
                let freed = inode::clear_slot(&handle, number, location)
                    .and_then(|()| allocator.free_inode(&handle, number, false));
                return or_abort(&handle, freed);
            }
        }
    }
}

fn or_abort<T>(handle: &Handle<'_>, done: Result<T>) -> Result<T> {
    if let Err(error) = &done {
        handle.writer().transactions.abort_with("changing the orphan file failed half way", error);
    }
    done
}
