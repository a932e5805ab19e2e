//! The checksums of inodes in memory: an inode that is changed gets its checksum when its block is written.
//!
//! An inode may be read from the cache again, after the inode cache has let it go and before its block is written. So the
//! cached block knows of each of its inodes whether it has been validated, or changed in memory, since the block was read:
//! its checksum is not looked at then. The blocks of the largest volumes have more inodes than there are bits for; those
//! without one get their checksum at each change.

use undercroft_cache::Buffer;
use undercroft_vfs::{Ino, Result};

use super::STRUCTURE;
use crate::error::{Verdict, corrupt_inode};
use crate::format::dinode::{self, RawDinode};
use crate::format::{FsBlock, Geometry, crc};
use crate::transaction::{Handle, Parts, Seal};
use crate::volume::{INODES_VALIDATED, Volume};

/// The kind of validation of a block that is about the checksum of the inode at `byte`.
fn validated(geometry: &Geometry, byte: usize) -> Option<u32> {
    let n = byte as u32 / geometry.inode_bytes();
    (n < u32::BITS - INODES_VALIDATED).then(|| INODES_VALIDATED + n)
}

/// The block of an inode, and the byte in it.
///
/// # Errors
/// Corruption: no group has such an inode.
pub(crate) fn place(volume: &Volume, ino: Ino) -> Result<(FsBlock, usize)> {
    let place = volume.geometry().inode_place(ino);
    place.ok_or_else(|| corrupt_inode(STRUCTURE, ino, None, "lies in no allocation group"))
}

/// The core in an inode's place, in whatever state the inode is: magic number, version, checksum, number and UUID are right.
pub(crate) fn core_in(volume: &Volume, buffer: &Buffer, byte: usize, ino: Ino) -> Verdict<RawDinode> {
    let geometry = volume.geometry();
    let bytes = &buffer[byte..byte + geometry.inode_bytes() as usize];
    dinode::validate_identity_with(bytes, volume.superblock(), ino, || {
        let check = || crc::verify(bytes, dinode::CRC_OFFSET);
        match validated(geometry, byte) {
            Some(kind) => buffer.verify_once(kind, check),
            None => check(),
        }
    })
}

/// Changes an inode's bytes under a handle. `change` answers with an error where it has changed nothing.
///
/// # Errors
/// What `change` answers; corruption; I/O failure. Nothing has changed then.
pub(crate) fn change_bytes<R>(
    handle: &Handle<'_>,
    ino: Ino,
    change: impl FnOnce(&mut [u8]) -> Verdict<R>,
) -> Result<R> {
    let volume = handle.volume();
    let (at, byte) = place(volume, ino)?;
    let geometry = volume.geometry();
    let range = byte..byte + geometry.inode_bytes() as usize;
    let kind = validated(geometry, byte);
    let seal = Seal::Inodes(Parts::of_inode(geometry, byte));
    let changed: Verdict<R> = handle.change_and_validate(&volume.block(at)?, seal, kind, |bytes| {
        let slot = &mut bytes[range];
        let changed = change(slot)?;
        if kind.is_none() {
            crc::seal(slot, dinode::CRC_OFFSET);
        }
        Ok(changed)
    });
    changed.map_err(|detail| corrupt_inode(STRUCTURE, ino, Some(at), detail))
}

/// Makes the checksum of an inode of a block that was made, and counts as validated, if it is not made later.
pub(crate) fn seal_new(volume: &Volume, byte: usize, slot: &mut [u8]) {
    if validated(volume.geometry(), byte).is_none() {
        crc::seal(slot, dinode::CRC_OFFSET);
    }
}
