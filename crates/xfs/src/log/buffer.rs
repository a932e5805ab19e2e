//! Changes of buffers: parts of 128 bytes, of any block of metadata.
//!
//! Of a buffer with inodes only the pointers between unlinked inodes are replayed; everything else in it is logged by
//! the inodes themselves.

use std::sync::Arc;

use undercroft_vfs::Result;

use super::cancelled::BufferKey;
use super::format::{Lsn, be16, be32, le16, le32, le64};
use super::sealing;
use super::target::Target;
use super::transactions::Item;
use crate::error::{Verdict, corrupt};
use crate::format::buffer_kind::BufferKind;
use crate::format::{Daddr, Superblock, crc};

const STRUCTURE: &str = "logged buffer";

/// Bytes in a part.
pub(super) const PART: usize = 128;

/// Bytes in a sector, in which lengths are counted.
const SECTOR: usize = 512;

/// What a description of a buffer begins with (`XFS_LI_BUF`).
pub(super) const KIND: u16 = 0x123C;

/// Where the map of changed parts begins in the description.
const MAP: usize = 20;

/// Words of that map, at most (`XFS_BLF_DATAMAP_SIZE`): a bit for each part of the largest buffer, and a spare word.
const MAX_MAP_WORDS: usize = 17;

/// `IN`: an inode begins with it.
pub(super) const INODE_MAGIC: u16 = 0x494E;

/// Where an inode has its pointer to the next unlinked one.
pub(super) const NEXT_UNLINKED: usize = 96;

/// Where an inode has its checksum.
pub(super) const INODE_CRC: usize = 100;

pub(super) mod flags {
    pub(in super::super) const INODES: u16 = 1 << 0;
    pub(in super::super) const CANCELLED: u16 = 1 << 1;
    pub(in super::super) const QUOTA: u16 = 1 << 2 | 1 << 3 | 1 << 4;
}

/// A buffer's description.
#[derive(Clone, Copy)]
pub(super) struct BufferItem<'a> {
    item: Item<'a>,
    flags: u16,
    sectors: u32,
    daddr: Daddr,
    map: &'a [u8],
}

/// What a buffer is to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A whole block, or none of a directory.
    Whole,
    /// A part of a block.
    Part,
    /// A part of a block, or a whole one of extended attributes.
    Either,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Replayed,
    /// What lies there is newer.
    Newer,
    /// Quota, which is not read here.
    Quota,
}

impl<'a> BufferItem<'a> {
    pub(super) fn of(item: Item<'a>) -> Verdict<Self> {
        let description = item.description();
        let words = le32(description, 16) as usize;
        if words > MAX_MAP_WORDS {
            return Err(format!("has a map of {words} words; one has up to {MAX_MAP_WORDS}").into());
        }
        let map = description.get(MAP..MAP + words * 4);
        let Some(map) = map else {
            return Err(format!("has {} bytes for a map of {words} words", description.len()).into());
        };
        Ok(Self {
            item,
            flags: le16(description, 4),
            sectors: u32::from(le16(description, 6)),
            daddr: Daddr(le64(description, 8)),
            map,
        })
    }

    pub(super) fn key(&self) -> BufferKey {
        (self.daddr, self.sectors)
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.flags & flags::CANCELLED != 0
    }

    pub(super) fn has_inodes(&self) -> bool {
        self.flags & flags::INODES != 0
    }

    /// Whether everything in it is logged, so that it does not matter what lies there before the change. Of inodes those
    /// count that are logged: each lies in sectors of its own, and no position in the buffer keeps it from being replayed.
    pub(super) fn is_whole(&self) -> bool {
        if !self.has_inodes() && BufferKind::of_flags(self.flags) == BufferKind::INODES {
            return true;
        }
        let parts = self.sectors as usize * (SECTOR / PART);
        let logged = |part: usize| self.map.get(part / 8).is_some_and(|byte| byte & 1 << (part % 8) != 0);
        !self.has_inodes() && parts <= MAX_MAP_WORDS * 32 && (0..parts).all(logged)
    }

    /// Whether it is a part of a directory block.
    pub(super) fn role(&self, superblock: &Superblock) -> Role {
        let geometry = superblock.geometry();
        let bytes = u64::from(self.sectors) * SECTOR as u64;
        let whole = u64::from(geometry.dir_block_bytes());
        match BufferKind::of_flags(self.flags) {
            _ if bytes >= whole || self.has_inodes() || !superblock.features().has_crc() => Role::Whole,
            BufferKind::DIR_BLOCK
            | BufferKind::DIR_DATA
            | BufferKind::DIR_FREE
            | BufferKind::DIR_LEAF1
            | BufferKind::DIR_LEAFN => Role::Part,
            BufferKind::DA_NODE if bytes == u64::from(geometry.block_bytes()) => Role::Either,
            BufferKind::DA_NODE => Role::Part,
            _ => Role::Whole,
        }
    }

    /// Makes the change.
    ///
    /// # Errors
    /// `Corrupt` when the buffer cannot be there, or its parts do not match the map; as for [`Target::write`].
    pub(super) fn replay(&self, target: &mut Target, lsn: Lsn) -> Result<Outcome> {
        if self.flags & flags::QUOTA != 0 {
            return Ok(Outcome::Quota);
        }
        if self.map.iter().all(|byte| *byte == 0) {
            // Nothing changes.
            return Ok(Outcome::Replayed);
        }
        let before = target.read(self.daddr, self.sectors)?;
        let superblock = Arc::clone(&target.superblock);
        if superblock.features().has_crc() {
            let there = sealing::position(&before, *superblock.meta_uuid().as_bytes());
            if there.is_some_and(|there| there >= lsn) {
                return Ok(Outcome::Newer);
            }
        }
        let parts = self.parts(before.len()).map_err(|what| self.corrupt(&what))?;
        let mut bytes = before.clone();
        if self.has_inodes() {
            let inode_bytes = superblock.geometry().inode_bytes() as usize;
            let has_crc = superblock.features().has_crc();
            link_unlinked(&mut bytes, &parts, inode_bytes, has_crc).map_err(|what| self.corrupt(&what))?;
        } else {
            for (at, part) in parts {
                bytes[at..at + part.len()].copy_from_slice(part);
            }
            let kind = BufferKind::of_flags(self.flags);
            let is_sealed = match self.role(&superblock) {
                Role::Whole => true,
                Role::Part => false,
                Role::Either => sealing::is_at(&bytes, self.daddr, *superblock.meta_uuid().as_bytes()),
            };
            if is_sealed {
                target.seal_later(self.daddr, self.sectors * SECTOR as u32, kind)?;
            }
            if self.daddr == Daddr(0) {
                target.reload_superblock(&bytes, kind)?;
            }
        }
        target.write_changes(self.daddr, &before, &bytes)?;
        Ok(Outcome::Replayed)
    }

    fn corrupt(&self, what: &str) -> undercroft_vfs::Error {
        corrupt(STRUCTURE, format!("of {} sectors at sector {} {what}", self.sectors, self.daddr))
    }

    /// The changed parts and where they go in a buffer of `len` bytes.
    fn parts(&self, len: usize) -> Verdict<Vec<(usize, &'a [u8])>> {
        let changed = |part: usize| self.map[part / 8] & 1 << (part % 8) != 0;
        let all = self.map.len() * 8;
        let mut parts = Vec::new();
        let mut part = 0;
        let mut region = 1;
        while part < all {
            if !changed(part) {
                part += 1;
                continue;
            }
            let Some(bytes) = self.item.region(region) else {
                return Err("has fewer regions than changed parts".into());
            };
            // Parts after one another may lie in several regions, for a page ends between them.
            let here = (part..all).take(bytes.len() / PART).take_while(|part| changed(*part)).count();
            if here == 0 {
                return Err(format!("has a region of {} bytes", bytes.len()).into());
            }
            let at = part * PART;
            if at + here * PART > len {
                return Err("has changed parts past its end".into());
            }
            parts.push((at, &bytes[..here * PART]));
            part += here;
            region += 1;
        }
        Ok(parts)
    }
}

/// Takes over the pointers to the next unlinked inode that lie in the parts.
fn link_unlinked(
    bytes: &mut [u8],
    parts: &[(usize, &[u8])],
    inode_bytes: usize,
    has_crc: bool,
) -> Verdict<()> {
    for (index, inode) in bytes.chunks_exact_mut(inode_bytes).enumerate() {
        let at = index * inode_bytes + NEXT_UNLINKED;
        let logged =
            parts.iter().find_map(|(start, part)| part.get(at.checked_sub(*start)?..)?.first_chunk::<4>());
        let Some(next) = logged else { continue };
        if be32(next, 0) == 0 {
            return Err(format!("has 0 for the inode after its unlinked inode {index}").into());
        }
        if be16(inode, 0) != INODE_MAGIC {
            return Err(format!("should hold inodes, and its number {index} is none").into());
        }
        inode[NEXT_UNLINKED..NEXT_UNLINKED + 4].copy_from_slice(next);
        if has_crc && inode[4] >= 3 {
            crc::seal(inode, INODE_CRC);
        }
    }
    Ok(())
}
