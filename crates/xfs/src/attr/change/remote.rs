//! Values in blocks of their own, written, and the target of a symbolic link that leaves its inode to attributes.
//!
//! Such a block is logged like other metadata. It has no position of a change in its header, so that a log that is
//! recovered always writes it.

use undercroft_vfs::{Error, Ino, Result};

use crate::da::{Layout, remote};
use crate::format::block_header::HeaderKind;
use crate::format::dinode::ForkFormat;
use crate::format::{FileBlock, FsBlock};
use crate::inode::{Fork, ForkKind, Inode};
use crate::map;
use crate::transaction::{Handle, Seal};

const MAGIC: &[u8; 4] = b"XARM";

/// Begins the target of a symbolic link.
const TARGET_MAGIC: &[u8; 4] = b"XSLM";

/// Length of the header.
const HEADER_BYTES: usize = HeaderKind::Remote.bytes();

/// Blocks that a value takes.
pub(super) fn blocks(layout: &Layout, value_bytes: usize) -> u32 {
    value_bytes.div_ceil(remote::room(layout, layout.block_bytes)) as u32
}

/// Writes a value into its blocks, which the inode has already.
///
/// # Errors
/// Corruption: there is no such block.
pub(super) fn write(
    handle: &Handle<'_>,
    ino: Ino,
    homes: impl Iterator<Item = FsBlock>,
    layout: &Layout,
    value: &[u8],
) -> Result<()> {
    let parts = value.chunks(remote::room(layout, layout.block_bytes));
    let mut offset = 0;
    for (home, part) in homes.zip(parts) {
        write_block(handle, ino, home, Seal::AttrRemote, MAGIC, offset, part)?;
        offset += part.len();
    }
    Ok(())
}

/// Moves the target of a symbolic link from its inode to a block. A target that an inode has room for fits one block.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); I/O failure, which aborts the changes.
pub(super) fn move_target(handle: &Handle<'_>, inode: &mut Inode, target: &[u8]) -> Result<()> {
    let layout = Layout::of(handle.volume().superblock());
    if target.len() > remote::room(&layout, layout.block_bytes) {
        return Err(Error::NoSpace);
    }
    let old = inode.data.clone();
    inode.data = Fork::Extents(std::sync::Arc::new([]));
    (inode.core.data_format, inode.core.data_extents) = (ForkFormat::Extents, 0);
    match map::change::add_block(handle, inode, ForkKind::Data, FileBlock(0)) {
        Ok(home) => {
            let ino = inode.ino;
            handle.or_abort(write_block(handle, ino, home, Seal::Symlink, TARGET_MAGIC, 0, target))
        }
        Err(error) => {
            inode.data = old;
            inode.core.data_format = ForkFormat::Local;
            Err(error)
        }
    }
}

fn write_block(
    handle: &Handle<'_>,
    ino: Ino,
    home: FsBlock,
    seal: Seal,
    magic: &[u8; 4],
    offset: usize,
    part: &[u8],
) -> Result<()> {
    handle.make_owned(home, seal, ino.0, |bytes| {
        bytes[..4].copy_from_slice(magic);
        bytes[4..8].copy_from_slice(&(offset as u32).to_be_bytes());
        bytes[8..12].copy_from_slice(&(part.len() as u32).to_be_bytes());
        bytes[HEADER_BYTES..][..part.len()].copy_from_slice(part);
    })
}
