//! How many links a directory has, with what fast commits did to its names.

use undercroft_vfs::{FileType, Result};

use super::lookup_on_disk;
use crate::inode::{self, Inode};
use crate::volume::Volume;

/// The links of an inode: its own count, corrected for a directory that fast commits have changed.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn links(volume: &Volume, inode: &Inode) -> Result<u16> {
    if inode.kind != FileType::Directory {
        return Ok(inode.links);
    }
    volume.fast_commits().directory_links(
        inode.number,
        inode.links,
        |name| lookup_on_disk(volume, inode, name),
        |child| inode::is_directory_on_disk(volume, child),
    )
}
