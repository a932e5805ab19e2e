//! The block that holds attributes for which the inode has no room. Inodes with equal attributes share one.
//!
//! Source: kernel documentation, section "Extended Attributes". Its checksum is seeded with its own number, as
//! it belongs to no one inode.

use std::mem::offset_of;

use undercroft_cache::Buffer;
use undercroft_vfs::Result;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::Attributes;
use crate::checksum::{crc32c, crc32c_around};
use crate::error::{Verdict, corrupt_inode};
use crate::inode::Inode;
use crate::numbers::FsBlock;
use crate::volume::{Judged, Volume};

pub(super) const STRUCTURE: &str = "extended attribute block";
const MAGIC: u32 = 0xEA02_0000;

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    h_magic: U32,
    /// Inodes that share the block.
    h_refcount: U32,
    h_blocks: U32,
    h_hash: U32,
    h_checksum: U32,
    h_reserved: [U32; 3],
}

const CHECKSUM_AT: usize = offset_of!(RawHeader, h_checksum);
const _: () = assert!(size_of::<RawHeader>() == 32 && CHECKSUM_AT == 0x10);

/// A block that passed [`judge`] once.
#[derive(Debug)]
pub(super) struct AttributeBlock(Buffer);

impl AttributeBlock {
    /// The inode's block; `None` when it has none.
    pub(super) fn read(volume: &Volume, inode: &Inode) -> Result<Option<Self>> {
        let home = inode.xattr_block;
        if home == FsBlock(0) {
            return Ok(None);
        }
        let corrupt = |detail| corrupt_inode(STRUCTURE, inode.number, Some(home), detail);
        if !volume.superblock().geometry().contains(home, 1) {
            return Err(corrupt("lies outside the filesystem".into()));
        }
        let buffer = volume.read_block(home)?;
        buffer.verify_once(Judged::XattrBlock as u32, || judge(volume, home, &buffer).map_err(corrupt))?;
        Ok(Some(Self(buffer)))
    }

    pub(super) fn attributes(&self) -> Verdict<Attributes<'_>> {
        Attributes::judge(&self.0, size_of::<RawHeader>())
    }
}

fn judge(volume: &Volume, home: FsBlock, bytes: &[u8]) -> Verdict<()> {
    let Ok((header, _)) = RawHeader::ref_from_prefix(bytes) else {
        return Err("too short".into());
    };
    let (magic, blocks) = (header.h_magic.get(), header.h_blocks.get());
    if magic != MAGIC {
        return Err(format!("magic number is {magic:#010x}, not {MAGIC:#010x}").into());
    }
    if blocks != 1 {
        return Err(format!("says that it is {blocks} blocks long, not 1").into());
    }
    if volume.superblock().has_metadata_checksums() {
        let seed = crc32c(volume.superblock().checksum_seed(), &home.0.to_le_bytes());
        let computed = crc32c_around(seed, bytes, CHECKSUM_AT..CHECKSUM_AT + 4);
        let stored = header.h_checksum.get();
        if stored != computed {
            return Err(format!("checksum is {stored:#010x}, its content gives {computed:#010x}").into());
        }
    }
    Attributes::judge(bytes, size_of::<RawHeader>()).map(drop)
}
