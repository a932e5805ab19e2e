//! Values in blocks of their own, written.
//!
//! Such a block is logged like other metadata. It has no position of a change in its header, so that a log that is
//! recovered always writes it.

use undercroft_vfs::{Ino, Result};

use super::header;
use crate::da::{Layout, remote};
use crate::format::FsBlock;
use crate::format::block_header::HeaderKind;
use crate::transaction::{Handle, Seal};

const MAGIC: &[u8; 4] = b"XARM";

/// Length of the header.
const HEADER_BYTES: usize = 56;

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
        let identity = header::Identity::new(handle.volume(), ino, home)?;
        handle.make(home, Seal::AttrRemote, |bytes| {
            bytes[..4].copy_from_slice(MAGIC);
            bytes[4..8].copy_from_slice(&(offset as u32).to_be_bytes());
            bytes[8..12].copy_from_slice(&(part.len() as u32).to_be_bytes());
            identity.write(bytes, HeaderKind::Remote);
            bytes[HEADER_BYTES..][..part.len()].copy_from_slice(part);
        })?;
        offset += part.len();
    }
    Ok(())
}
