//! Files and directories so small that their inode holds them.
//!
//! Source: kernel documentation, section "Inline Data". The first 60 bytes lie in `i_block`, what is more in the
//! value of the attribute `system.data`, which must lie in the inode too.

use std::sync::Arc;

use undercroft_vfs::Result;

use crate::inode::Inode;
use crate::volume::Volume;
use crate::xattr;

/// What the inode holds of a file's data, cut to the file's size. What the size promises beyond it reads as
/// zeroes.
///
/// # Errors
/// Corruption of the attributes; I/O failure.
pub(crate) fn read(volume: &Volume, inode: &Inode) -> Result<Arc<[u8]>> {
    let size = usize::try_from(inode.size_bytes).unwrap_or(usize::MAX);
    let in_inode = &inode.i_block[..inode.i_block.len().min(size)];
    if size <= inode.i_block.len() {
        return Ok(in_inode.into());
    }
    let in_attribute = read_attribute(volume, inode)?.unwrap_or_default();
    let kept = in_attribute.len().min(size - in_inode.len());
    Ok([in_inode, &in_attribute[..kept]].concat().into())
}

/// The part of inline data that does not fit `i_block`.
pub(crate) fn read_attribute(volume: &Volume, inode: &Inode) -> Result<Option<Vec<u8>>> {
    xattr::ibody_value(volume, inode, xattr::INDEX_SYSTEM, b"data")
}
