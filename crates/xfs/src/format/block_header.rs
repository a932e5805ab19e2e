//! The headers of self-describing blocks: checksum, own address, UUID and owner, at places that differ by kind.
//!
//! Version 4 has none of it, and everything passes there. The caller checks the magic number, which says which of
//! several structures a block is.

use uuid::Uuid;

use super::{Daddr, Superblock, crc};
use crate::error::Verdict;

/// Which header a block begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderKind {
    /// A B+tree block with pointers of 32 bits; its owner is an allocation group.
    ShortBtree,
    /// A B+tree block with pointers of 64 bits.
    LongBtree,
    /// A directory's block of names or of free space.
    DirBlock,
    /// A block of a hash tree: of a directory or of attributes.
    DaBlock,
    /// A block of a long attribute value or of a long symbolic link.
    Remote,
}

/// Where the fields lie, in bytes.
struct Layout {
    crc: usize,
    blkno: usize,
    lsn: usize,
    uuid: usize,
    owner: usize,
    owner_bytes: usize,
    /// Length of the header.
    len: usize,
}

impl HeaderKind {
    const fn layout(self) -> Layout {
        match self {
            Self::ShortBtree => {
                Layout { blkno: 16, lsn: 24, uuid: 32, owner: 48, owner_bytes: 4, crc: 52, len: 56 }
            }
            Self::LongBtree => {
                Layout { blkno: 24, lsn: 32, uuid: 40, owner: 56, owner_bytes: 8, crc: 64, len: 72 }
            }
            Self::DirBlock => {
                Layout { crc: 4, blkno: 8, lsn: 16, uuid: 24, owner: 40, owner_bytes: 8, len: 48 }
            }
            Self::DaBlock => {
                Layout { crc: 12, blkno: 16, lsn: 24, uuid: 32, owner: 48, owner_bytes: 8, len: 56 }
            }
            Self::Remote => {
                Layout { crc: 12, uuid: 16, owner: 32, owner_bytes: 8, blkno: 40, lsn: 48, len: 56 }
            }
        }
    }

    /// Length of the header in bytes.
    pub(crate) const fn bytes(self) -> usize {
        self.layout().len
    }

    /// Where the UUID of the metadata lies.
    pub(crate) const fn uuid_offset(self) -> usize {
        self.layout().uuid
    }

    /// Where the checksum lies.
    pub(crate) const fn crc_offset(self) -> usize {
        self.layout().crc
    }

    /// Where the position of the last change lies.
    pub(crate) const fn lsn_offset(self) -> usize {
        self.layout().lsn
    }
}

/// Validates the header of a block that was read from `at` and belongs to `owner`: a group's number or an inode's.
pub(crate) fn validate(
    bytes: &[u8],
    kind: HeaderKind,
    superblock: &Superblock,
    at: Daddr,
    owner: u64,
) -> Verdict<()> {
    if !superblock.features().has_crc() {
        return Ok(());
    }
    let layout = kind.layout();
    if bytes.len() < layout.len {
        return Err(format!("a block of {} bytes has no room for its header", bytes.len()).into());
    }
    crc::verify(bytes, layout.crc)?;
    let uuid = Uuid::from_slice(&bytes[layout.uuid..layout.uuid + 16]).unwrap_or_default();
    if uuid != superblock.meta_uuid() {
        return Err(format!("UUID is {uuid}, the filesystem's is {}", superblock.meta_uuid()).into());
    }
    let blkno = number(bytes, layout.blkno, 8);
    if blkno != at.0 {
        return Err(format!("says that it lies at sector {blkno}, and lies at {at}").into());
    }
    let named = self::owner(bytes, kind);
    if named != owner {
        return Err(format!("says that it belongs to {named}, and was found in {owner}").into());
    }
    Ok(())
}

/// The owner that a block of version 5 names: a group's number or an inode's.
pub(crate) fn owner(bytes: &[u8], kind: HeaderKind) -> u64 {
    let layout = kind.layout();
    number(bytes, layout.owner, layout.owner_bytes)
}

/// The log sequence number of the last change of a block, which the header of version 5 has.
#[cfg(test)]
pub(crate) fn lsn(bytes: &[u8], kind: HeaderKind) -> u64 {
    number(bytes, kind.layout().lsn, 8)
}

/// Fills in the header of a new block at `at`, but for the checksum and the position of its last change, which it gets
/// when it is written. Version 4 has none.
pub(crate) fn fill(bytes: &mut [u8], kind: HeaderKind, superblock: &Superblock, at: Daddr, owner: u64) {
    if !superblock.features().has_crc() {
        return;
    }
    let layout = kind.layout();
    bytes[layout.blkno..layout.blkno + 8].copy_from_slice(&at.0.to_be_bytes());
    bytes[layout.uuid..layout.uuid + 16].copy_from_slice(superblock.meta_uuid().as_bytes());
    let owner = &owner.to_be_bytes()[8 - layout.owner_bytes..];
    bytes[layout.owner..layout.owner + layout.owner_bytes].copy_from_slice(owner);
}

/// A big-endian number; what lies past the end counts as zeroes.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes.get(at..at + len).map_or(0, |bytes| bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;

    #[test]
    fn each_field_is_validated() {
        let superblock = Superblock::from_sector(&testing::superblock_sector(|_| {})).unwrap();
        for kind in [
            HeaderKind::ShortBtree,
            HeaderKind::LongBtree,
            HeaderKind::DirBlock,
            HeaderKind::DaBlock,
            HeaderKind::Remote,
        ] {
            let layout = kind.layout();
            let mut bytes = vec![7; 4096];
            let mut put = |at: usize, len: usize, value: u64| {
                bytes[at..at + len].copy_from_slice(&value.to_be_bytes()[8 - len..]);
            };
            put(layout.blkno, 8, 80);
            put(layout.lsn, 8, 0x1_0000_0002);
            put(layout.owner, layout.owner_bytes, 3);
            bytes[layout.uuid..layout.uuid + 16].copy_from_slice(superblock.meta_uuid().as_bytes());
            crc::seal(&mut bytes, kind.crc_offset());
            let verdict = |bytes: &[u8], at, owner| validate(bytes, kind, &superblock, Daddr(at), owner);
            assert_eq!(verdict(&bytes, 80, 3), Ok(()), "{kind:?}");
            assert_eq!(lsn(&bytes, kind), 0x1_0000_0002);
            assert!(verdict(&bytes, 81, 3).unwrap_err().contains("lies at sector 80"));
            assert!(verdict(&bytes, 80, 4).unwrap_err().contains("belongs to 3"));
            bytes[layout.uuid] ^= 1;
            assert!(verdict(&bytes, 80, 3).unwrap_err().contains("checksum"));
            crc::seal(&mut bytes, kind.crc_offset());
            assert!(verdict(&bytes, 80, 3).unwrap_err().contains("UUID"));
            assert!(verdict(&bytes[..20], 80, 3).is_err());
        }
    }
}
