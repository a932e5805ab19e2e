//! Changing the primary superblock under a handle.

use undercroft_vfs::Result;
use zerocopy::FromBytes;

use super::{RawSuperblock, SUPERBLOCK_OFFSET, place_in_block};
use crate::numbers::FsBlock;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Changes the primary superblock. [`Superblock`](super::Superblock) keeps the values found when the filesystem was
/// opened, except those that change when it grows.
///
/// # Errors
/// I/O failure.
pub(crate) fn change<R>(handle: &Handle<'_>, change: impl FnOnce(&mut RawSuperblock) -> R) -> Result<R> {
    let volume = handle.volume();
    let home = home(volume);
    let at = place_in_block(volume.block_bytes());
    handle.change(home, Seal::Superblock, |bytes| {
        match RawSuperblock::mut_from_bytes(&mut bytes[at..at + size_of::<RawSuperblock>()]) {
            Ok(raw) => change(raw),
            Err(_) => unreachable!("a superblock fits where it is, in a block of any size"),
        }
    })
}

/// The block that holds the primary superblock.
pub(crate) fn home(volume: &Volume) -> FsBlock {
    FsBlock(SUPERBLOCK_OFFSET / u64::from(volume.block_bytes()))
}
