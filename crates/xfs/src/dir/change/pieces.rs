//! Directory blocks that lie in several extents, where no free space was long enough for one.
//!
//! Such a block is cached and logged block by block, and so it is sealed here, as a whole, when it is changed: the log and
//! the write-back know its parts as bytes. Linux logs it in parts as well, under the kind that the whole has, and its
//! recovery takes the first part for a whole block, and faults. What this program logs has a kind by which a recovery takes
//! each part as it is.
//!
//! The position of the last change stays 0, which stands for none: every recovery replays the parts then.

use undercroft_vfs::{Ino, Result};

use crate::error::corrupt_inode;
use crate::format::block_header;
use crate::format::{FsBlock, crc};
use crate::transaction::{Handle, Seal};

use super::super::directory::STRUCTURE;

/// Where such a block lies, and what it is.
pub(super) struct Places<'a> {
    /// First block and count of each piece.
    pub(super) pieces: &'a [(FsBlock, u32)],
    pub(super) seal: Seal,
    pub(super) owner: Ino,
}

impl Places<'_> {
    /// Seals a block and changes the parts of it that differ from `old`, as it was read; makes all of them where it is new.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn write(&self, handle: &Handle<'_>, old: Option<&[u8]>, mut new: Vec<u8>) -> Result<()> {
        self.seal(handle, &mut new)?;
        let block_bytes = handle.volume().geometry().block_bytes() as usize;
        let runs =
            self.pieces.iter().flat_map(|&(first, count)| (0..u64::from(count)).map(move |n| first.0 + n));
        for (n, (block, part)) in runs.zip(new.chunks_exact(block_bytes)).enumerate() {
            let before = old.and_then(|old| old.chunks_exact(block_bytes).nth(n));
            let copy = |bytes: &mut [u8]| bytes.copy_from_slice(part);
            match before {
                None => handle.make(FsBlock(block), Seal::DirPart, copy)?,
                Some(before) if before != part => handle.change(FsBlock(block), Seal::DirPart, copy)?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn seal(&self, handle: &Handle<'_>, bytes: &mut [u8]) -> Result<()> {
        let superblock = handle.volume().superblock();
        let address = self.pieces.first().and_then(|&(home, _)| superblock.geometry().daddr(home));
        let (Some(kind), Some(address)) = (self.seal.header(), address) else {
            return Err(corrupt_inode(STRUCTURE, self.owner, None, "has a block without a place"));
        };
        block_header::fill(bytes, kind, superblock, address, self.owner.0);
        let lsn = kind.lsn_offset();
        bytes[lsn..lsn + 8].fill(0);
        crc::seal(bytes, kind.crc_offset());
        Ok(())
    }
}
