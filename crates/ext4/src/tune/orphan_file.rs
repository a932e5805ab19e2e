//! Adding an orphan file, and removing it while it is empty.
//!
//! Both change in the transaction in which the superblock changes. A file that is removed becomes an orphan there, on the
//! list, and is deleted as one: now, or by any recovery after a crash.

use undercroft_vfs::{FileType, Result};

use super::own_file;
use crate::alloc::{ALLOCATE_CREDITS, NEW_INODE_CREDITS, Reservation};
use crate::inode::{self, Inode, InodeFlags, ROOT_INODE};
use crate::mkfs;
use crate::numbers::FsBlock;
use crate::orphan;
use crate::transaction::Handle;
use crate::volume::Volume;
use crate::writer::Mounted;

/// Pieces that it may be in.
const PIECES_MAX: usize = 128;

/// Places of a file that is to be made.
pub(super) fn reserve(volume: &Mounted) -> Result<Vec<Reservation>> {
    own_file::reserve(volume, FsBlock(0), blocks(volume).into(), PIECES_MAX)
}

pub(super) fn blocks(volume: &Volume) -> u32 {
    mkfs::orphan_file_blocks(volume.superblock().geometry().blocks())
}

/// Blocks that [`add`] changes.
pub(super) fn credits_to_add(places: &[Reservation]) -> u32 {
    (places.len() as u32 + 8) * (ALLOCATE_CREDITS + 2) + NEW_INODE_CREDITS
}

/// Makes an orphan file, which nothing leads to yet, and returns its number.
///
/// # Errors
/// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption; I/O failure. Something may have changed then.
pub(super) fn add(handle: &Handle<'_>, places: Vec<Reservation>) -> Result<u32> {
    let volume = handle.volume();
    let new = handle.writer().allocator.new_inode(handle, ROOT_INODE, FileType::Regular)?;
    let size_bytes = u64::from(blocks(volume)) << volume.superblock().geometry().block_bits();
    let mut inode = own_file::fresh(volume, new.number, size_bytes);
    for place in &places {
        write_blocks(volume, &inode, place.first(), place.len())?;
    }
    own_file::enter(handle, &mut inode, places)?;
    inode.store_new(handle, new.location)?;
    Ok(new.number)
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

/// Blocks that [`remove`] changes.
pub(super) const CREDITS_TO_REMOVE: u32 = orphan::CREDITS + 1;

/// Makes an orphan of an orphan file, which nothing leads to any more. Finishing the list of orphans deletes it.
///
/// # Errors
/// Corruption; I/O failure. Something may have changed then.
pub(super) fn remove(handle: &Handle<'_>, number: u32) -> Result<()> {
    let volume = handle.volume();
    let location = inode::locate(volume, number)?;
    let mut inode = Inode::read_linked_or_not(volume, number, location)?;
    inode.links = 0;
    // Its blocks are in the log.
    inode.flags |= InodeFlags::JOURNAL_DATA;
    inode.store(handle, location)?;
    orphan::add_to_list(handle, number, location)
}
