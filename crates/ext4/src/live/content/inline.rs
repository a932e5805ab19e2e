//! Moving a file's bytes out of its inode.
//!
//! A small file that lies in its inode gets a block when it is written to, and its size is set. The block has the bytes
//! before the handle is started that puts it into the map.

use undercroft_vfs::{InodeFlags, Result};

use super::write::{INODE_CREDITS, with_last_resorts};
use super::{Live, block_bits, store_unchanged};
use crate::features::Incompat;
use crate::inline;
use crate::map;
use crate::numbers::FileBlock;

/// Puts the first `keep` bytes into a block. The size stays. The caller has the inode's state alone, or is one of several
/// of whom the others do the same.
///
/// # Errors
/// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption of the attributes; I/O failure. Nothing has changed then.
pub(super) fn to_blocks(live: &Live, keep: u64) -> Result<()> {
    let volume = &live.volume;
    let allocator = &volume.writer()?.allocator;
    let (bytes, goal) = {
        let inode = live.fields.read();
        if !inode.has_inline_data() {
            return Ok(());
        }
        (inline::read(volume, &inode)?, allocator.goal_for(volume, inode.number, inode.kind))
    };
    let kept = &bytes[..bytes.len().min(usize::try_from(keep).unwrap_or(usize::MAX))];
    let mut reserved = None;
    if !kept.is_empty() {
        let blocks = with_last_resorts(live, || allocator.reserve(volume, goal, 1, 1))?;
        let mut block = vec![0; volume.block_bytes() as usize];
        block[..kept.len()].copy_from_slice(kept);
        volume.device().write_at(blocks.first().0 << block_bits(live), &block)?;
        reserved = Some(blocks);
    }
    let credits = map::credits(&live.fields.read()) + INODE_CREDITS;
    let handle = volume.start(credits)?;
    let mut fields = live.fields.write();
    if !fields.has_inline_data() {
        return Ok(());
    }
    let extents = volume.superblock().features().incompat.contains(Incompat::EXTENTS);
    fields.flags.remove(InodeFlags::INLINE_DATA);
    fields.flags.set(InodeFlags::EXTENTS, extents);
    fields.i_block = map::empty(extents);
    if let Some(mut blocks) = reserved {
        let first = allocator.take(&handle, &mut blocks, 1)?;
        map::insert(&handle, &mut fields, FileBlock(0), first, 1, true)?;
    }
    inline::clear(&handle, &fields, live.location)?;
    store_unchanged(live, &handle, &mut fields, None)
}
