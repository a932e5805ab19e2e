//! The header of a group's inodes (AGI).

use undercroft_vfs::Result;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{HeaderSector, corrupt_header, validate_crc_and_uuid, validate_length};
use crate::btree::{Btree, Finobt, Inobt};
use crate::error::Verdict;
use crate::format::{AgBlock, AgIno, AgNumber, Superblock};
use crate::volume::Volume;

/// `XAGI`.
pub(crate) const MAGIC: u32 = 0x5841_4749;

/// Lists of unlinked inodes that are still open, or were when the system stopped.
pub(crate) const UNLINKED_BUCKETS: usize = 64;

const STRUCTURE: &str = "header of inodes (AGI)";

/// The header as it lies on the disk. What follows `agi_unlinked` is of version 5.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawAgi {
    pub(crate) agi_magicnum: U32,
    pub(crate) agi_versionnum: U32,
    pub(crate) agi_seqno: U32,
    pub(crate) agi_length: U32,
    pub(crate) agi_count: U32,
    pub(crate) agi_root: U32,
    pub(crate) agi_level: U32,
    pub(crate) agi_freecount: U32,
    pub(crate) agi_newino: U32,
    pub(crate) agi_dirino: U32,
    pub(crate) agi_unlinked: [U32; UNLINKED_BUCKETS],
    pub(crate) agi_uuid: [u8; 16],
    pub(crate) agi_crc: [u8; 4],
    pub(crate) agi_pad32: U32,
    pub(crate) agi_lsn: U64,
    pub(crate) agi_free_root: U32,
    pub(crate) agi_free_level: U32,
    pub(crate) agi_iblocks: U32,
    pub(crate) agi_fblocks: U32,
}

const _: () = assert!(size_of::<RawAgi>() == 344);
/// Where the checksum lies, and the position of the last change.
pub(crate) const CRC_OFFSET: usize = core::mem::offset_of!(RawAgi, agi_crc);
pub(crate) const LSN_OFFSET: usize = core::mem::offset_of!(RawAgi, agi_lsn);
const _: () = assert!(CRC_OFFSET == 312);

/// A validated header of a group's inodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agi {
    pub(crate) ag: AgNumber,
    raw: RawAgi,
}

impl Agi {
    /// Reads and validates the header of a group.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn read(volume: &Volume, ag: AgNumber) -> Result<Self> {
        let sector = HeaderSector::read(volume, ag, 2)?;
        Self::validate(&sector, volume.superblock(), ag)
            .map_err(|detail| corrupt_header(STRUCTURE, volume.geometry(), ag, detail))
    }

    /// Validates a header's sector.
    pub(crate) fn validate(sector: &[u8], superblock: &Superblock, ag: AgNumber) -> Verdict<Self> {
        let geometry = superblock.geometry();
        let Ok((raw, _)) = RawAgi::read_from_prefix(sector) else {
            return Err("is cut off".into());
        };
        if raw.agi_magicnum.get() != MAGIC {
            return Err(format!("magic number is {:#010x}", raw.agi_magicnum).into());
        }
        validate_crc_and_uuid(sector, superblock, CRC_OFFSET, &raw.agi_uuid)?;
        if raw.agi_versionnum.get() != 1 {
            return Err(format!("version is {}", raw.agi_versionnum).into());
        }
        if raw.agi_seqno.get() != ag.0 {
            return Err(
                format!("says that it is that of group {}, and is that of {ag}", raw.agi_seqno).into()
            );
        }
        validate_length(raw.agi_length.get(), geometry, ag)?;
        let (count, free) = (raw.agi_count.get(), raw.agi_freecount.get());
        let most = u64::from(geometry.ag_len(ag)) << geometry.inodes_per_block_log();
        if u64::from(count) > most || free > count {
            return Err(format!("counts {count} inodes, {free} of them free").into());
        }
        for (bucket, ino) in raw.agi_unlinked.iter().enumerate() {
            let ino = AgIno(ino.get());
            if ino != AgIno::NULL && geometry.join_ino(ag, ino).is_none() {
                return Err(format!("bucket {bucket} of the unlinked inodes begins with inode {ino}").into());
            }
        }
        Ok(Self { ag, raw })
    }

    pub(crate) const fn raw(&self) -> &RawAgi {
        &self.raw
    }

    /// Inodes in all chunks.
    pub(crate) const fn inodes(&self) -> u32 {
        self.raw.agi_count.get()
    }

    /// Free inodes in all chunks.
    pub(crate) const fn free_inodes(&self) -> u32 {
        self.raw.agi_freecount.get()
    }

    /// The first inode of each bucket of unlinked ones that is not empty, with the bucket's number.
    pub(crate) fn unlinked(&self) -> impl Iterator<Item = (usize, AgIno)> + '_ {
        let heads = self.raw.agi_unlinked.iter().enumerate().map(|(bucket, ino)| (bucket, AgIno(ino.get())));
        heads.filter(|&(_, ino)| ino != AgIno::NULL)
    }

    /// The tree of all inode chunks.
    ///
    /// # Errors
    /// Corruption of its root's address or of its depth; so for the other tree.
    pub(crate) fn chunks<'a>(&self, volume: &'a Volume) -> Result<Btree<'a, Inobt>> {
        Btree::in_ag(volume, self.ag, AgBlock(self.raw.agi_root.get()), self.raw.agi_level.get())
    }

    /// The tree of inode chunks with free inodes, in a filesystem that has it.
    pub(crate) fn free_chunks<'a>(&self, volume: &'a Volume) -> Result<Option<Btree<'a, Finobt>>> {
        if !volume.superblock().features().has_finobt() {
            return Ok(None);
        }
        let (root, levels) = (self.raw.agi_free_root.get(), self.raw.agi_free_level.get());
        Btree::in_ag(volume, self.ag, AgBlock(root), levels).map(Some)
    }
}
