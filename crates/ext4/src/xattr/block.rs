//! The block that holds attributes for which the inode has no room. Inodes with equal attributes share one.
//!
//! Source: kernel documentation, section "Extended Attributes". Its checksum is seeded with its own number, as
//! it belongs to no one inode.

use std::mem::offset_of;

use undercroft_cache::Buffer;
use undercroft_vfs::Result;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::{Attributes, Entry};
use super::list;
use crate::checksum::{crc32c, crc32c_around};
use crate::error::{Verdict, corrupt_inode};
use crate::inode::Inode;
use crate::numbers::FsBlock;
use crate::transaction::Block;
use crate::volume::{Validated, Volume};

pub(super) const STRUCTURE: &str = "extended attribute block";
const MAGIC: u32 = 0xEA02_0000;

/// The most inodes that share a block.
const SHARERS_MAX: u32 = 1024;

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
pub(super) const HEADER_BYTES: usize = size_of::<RawHeader>();
const _: () = assert!(HEADER_BYTES == 32 && CHECKSUM_AT == 0x10);

/// A block that passed [`validate`] once.
#[derive(Debug)]
pub(super) struct AttributeBlock(Buffer);

impl AttributeBlock {
    /// The inode's block; `None` when it has none.
    pub(super) fn read(volume: &Volume, inode: &Inode) -> Result<Option<Self>> {
        Ok(Self::hold(volume, inode)?.map(|(_, validated)| validated))
    }

    /// The inode's block, to be changed, and what is in it now; `None` when it has none. The caller that changes a
    /// block must have validated this very copy: the checksum is put in when it is written, so it cannot be validated
    /// afterwards.
    pub(super) fn hold(volume: &Volume, inode: &Inode) -> Result<Option<(Block, Self)>> {
        let home = inode.xattr_block;
        if home == FsBlock(0) {
            return Ok(None);
        }
        let corrupt = |detail| corrupt_inode(STRUCTURE, inode.number, Some(home), detail);
        if !volume.superblock().geometry().contains(home, 1) {
            return Err(corrupt("lies outside the filesystem".into()));
        }
        let block = volume.block(home)?;
        let validated = Self::validate(volume, home, &block).map_err(corrupt)?;
        Ok(Some((block, validated)))
    }

    /// What is in a block.
    pub(super) fn validate(volume: &Volume, home: FsBlock, block: &Block) -> Verdict<Self> {
        let buffer = block.buffer();
        buffer.verify_once(Validated::XattrBlock as u32, || validate(volume, home, &buffer))?;
        Ok(Self(buffer))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Refuses a block that is unused by its own count.
    pub(super) fn check_users(&self, inode: &Inode) -> Result<()> {
        if users(&self.0) == 0 {
            let detail = "is in use, but counts no users";
            return Err(corrupt_inode(STRUCTURE, inode.number, Some(inode.xattr_block), detail));
        }
        Ok(())
    }

    pub(super) fn hash(&self) -> u32 {
        hash(&self.0)
    }

    pub(super) fn attributes(&self) -> Verdict<Attributes<'_>> {
        Attributes::validate(&self.0, HEADER_BYTES)
    }
}

/// The bytes of a block with these attributes, which are in a block's order and fit, with one user.
pub(super) fn encode(block_bytes: usize, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; block_bytes];
    list::write(entries, &mut bytes, HEADER_BYTES);
    // An entry that has no hash, as those in inodes, leaves the block without one: it is not shared then.
    let has_hashes = entries.iter().all(|entry| entry.hash != 0);
    let fold = |hash: u32, entry: &Entry<'_>| hash.rotate_left(16) ^ entry.hash;
    let header = RawHeader {
        h_magic: MAGIC.into(),
        h_refcount: 1.into(),
        h_blocks: 1.into(),
        h_hash: if has_hashes { entries.iter().fold(0, fold) } else { 0 }.into(),
        h_checksum: 0.into(),
        h_reserved: [0.into(); 3],
    };
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    bytes
}

/// The hash of a block's entries; 0 for a block that is not shared.
pub(super) fn hash(bytes: &[u8]) -> u32 {
    RawHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.h_hash.get())
}

/// How many inodes use the block.
pub(super) fn users(bytes: &[u8]) -> u32 {
    RawHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.h_refcount.get())
}

/// Whether two blocks have the same attributes, laid out in the same way.
fn equal(one: &[u8], other: &[u8]) -> bool {
    hash(one) == hash(other) && one[..4] == other[..4] && one[HEADER_BYTES..] == other[HEADER_BYTES..]
}

/// Whether one more inode may use the block for the attributes in `wanted`.
pub(super) fn may_share(bytes: &[u8], wanted: &[u8]) -> bool {
    (1..SHARERS_MAX).contains(&users(bytes)) && equal(bytes, wanted)
}

/// Counts one user more or less.
pub(super) fn set_users(bytes: &mut [u8], users: u32) {
    if let Ok((header, _)) = RawHeader::mut_from_prefix(bytes) {
        header.h_refcount.set(users);
    }
}

/// Puts the checksum of a block of attributes, which lies at `home`, into its header.
pub(crate) fn seal_block(volume: &Volume, home: FsBlock, bytes: &mut [u8]) {
    let seed = crc32c(volume.superblock().checksum_seed(), &home.0.to_le_bytes());
    let sum = crc32c_around(seed, bytes, CHECKSUM_AT..CHECKSUM_AT + 4);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

fn validate(volume: &Volume, home: FsBlock, bytes: &[u8]) -> Verdict<()> {
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
    Attributes::validate(bytes, HEADER_BYTES).map(drop)
}
