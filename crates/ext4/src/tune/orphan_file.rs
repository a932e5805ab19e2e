//! Adding an orphan file, and removing it while it is empty.

use undercroft_vfs::{FileType, Result};

use super::own_file;
use crate::alloc::{ALLOCATE_CREDITS, NEW_INODE_CREDITS};
use crate::inode::{Inode, ROOT_INODE};
use crate::map::Removed;
use crate::mkfs;
use crate::numbers::FsBlock;
use crate::orphan;
use crate::volume::Volume;
use crate::writer::Mounted;

/// Why all changes end if some of these have been made.
const HALF_DONE: &str = "changing the orphan file failed half way";
/// Pieces that it may be in.
const PIECES_MAX: usize = 128;

/// Makes an orphan file, which nothing leads to yet, and returns its number.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); corruption; I/O failure.
pub(super) fn add(volume: &Mounted) -> Result<u32> {
    let allocator = &volume.writer()?.allocator;
    let blocks = mkfs::orphan_file_blocks(volume.superblock().geometry().blocks());
    let places = own_file::reserve(volume, FsBlock(0), blocks.into(), PIECES_MAX)?;
    let credits = (places.len() as u32 + 8) * (ALLOCATE_CREDITS + 2) + NEW_INODE_CREDITS + 1;
    let handle = volume.start(credits)?;
    let made = || {
        let new = allocator.new_inode(&handle, ROOT_INODE, FileType::Regular)?;
        let size_bytes = u64::from(blocks) << volume.superblock().geometry().block_bits();
        let mut inode = own_file::fresh(volume, new.number, size_bytes);
        for place in &places {
            write_blocks(volume, &inode, place.first(), place.len())?;
        }
        own_file::enter(&handle, &mut inode, places)?;
        inode.store_new(&handle, new.location)?;
        Ok(new.number)
    };
    handle.or_abort(HALF_DONE, made())
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
    own_file::delete(volume, number, Removed::Metadata, HALF_DONE, |handle| {
        handle.writer().allocator.free_inode(handle, number, false)
    })
}
