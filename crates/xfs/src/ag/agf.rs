//! The header of a group's free space (AGF).

use undercroft_vfs::Result;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Agfl, HeaderSector, corrupt_header, validate_crc_and_uuid, validate_length};
use crate::btree::{Btree, BySize, BySpace, RefcountBt};
use crate::error::Verdict;
use crate::format::{AgBlock, AgNumber, Superblock};
use crate::volume::Volume;

/// `XAGF`.
pub(crate) const MAGIC: u32 = 0x5841_4746;

const STRUCTURE: &str = "header of free space (AGF)";

/// The header as it lies on the disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawAgf {
    pub(crate) agf_magicnum: U32,
    pub(crate) agf_versionnum: U32,
    pub(crate) agf_seqno: U32,
    pub(crate) agf_length: U32,
    pub(crate) agf_bno_root: U32,
    pub(crate) agf_cnt_root: U32,
    pub(crate) agf_rmap_root: U32,
    pub(crate) agf_bno_level: U32,
    pub(crate) agf_cnt_level: U32,
    pub(crate) agf_rmap_level: U32,
    pub(crate) agf_flfirst: U32,
    pub(crate) agf_fllast: U32,
    pub(crate) agf_flcount: U32,
    pub(crate) agf_freeblks: U32,
    pub(crate) agf_longest: U32,
    pub(crate) agf_btreeblks: U32,
    pub(crate) agf_uuid: [u8; 16],
    pub(crate) agf_rmap_blocks: U32,
    pub(crate) agf_refcount_blocks: U32,
    pub(crate) agf_refcount_root: U32,
    pub(crate) agf_refcount_level: U32,
    pub(crate) agf_spare64: [U64; 14],
    pub(crate) agf_lsn: U64,
    pub(crate) agf_crc: [u8; 4],
    pub(crate) agf_spare2: U32,
}

const _: () = assert!(size_of::<RawAgf>() == 224);
/// Where the checksum lies, and the position of the last change.
pub(crate) const CRC_OFFSET: usize = core::mem::offset_of!(RawAgf, agf_crc);
pub(crate) const LSN_OFFSET: usize = core::mem::offset_of!(RawAgf, agf_lsn);
const _: () = assert!(CRC_OFFSET == 216);

/// A validated header of a group's free space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agf {
    pub(crate) ag: AgNumber,
    raw: RawAgf,
}

impl Agf {
    /// Reads and validates the header of a group.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn read(volume: &Volume, ag: AgNumber) -> Result<Self> {
        let sector = HeaderSector::read(volume, ag, 1)?;
        Self::validate(&sector, volume.superblock(), ag)
            .map_err(|detail| corrupt_header(STRUCTURE, volume.geometry(), ag, detail))
    }

    /// Validates a header's sector.
    pub(crate) fn validate(sector: &[u8], superblock: &Superblock, ag: AgNumber) -> Verdict<Self> {
        let geometry = superblock.geometry();
        let Ok((raw, _)) = RawAgf::read_from_prefix(sector) else {
            return Err("is cut off".into());
        };
        if raw.agf_magicnum.get() != MAGIC {
            return Err(format!("magic number is {:#010x}", raw.agf_magicnum).into());
        }
        validate_crc_and_uuid(sector, superblock, CRC_OFFSET, &raw.agf_uuid)?;
        if raw.agf_versionnum.get() != 1 {
            return Err(format!("version is {}", raw.agf_versionnum).into());
        }
        if raw.agf_seqno.get() != ag.0 {
            return Err(
                format!("says that it is that of group {}, and is that of {ag}", raw.agf_seqno).into()
            );
        }
        validate_length(raw.agf_length.get(), geometry, ag)?;
        let room = Agfl::capacity(geometry);
        let (first, last, count) = (raw.agf_flfirst.get(), raw.agf_fllast.get(), raw.agf_flcount.get());
        if first >= room || last >= room || count > room {
            return Err(format!(
                "the free list goes from {first} to {last} with {count} blocks; it has {room}"
            )
            .into());
        }
        let (free, longest) = (raw.agf_freeblks.get(), raw.agf_longest.get());
        if free > geometry.ag_len(ag) || longest > free {
            return Err(format!("counts {free} free blocks, of which {longest} lie together").into());
        }
        Ok(Self { ag, raw })
    }

    pub(crate) const fn raw(&self) -> &RawAgf {
        &self.raw
    }

    /// Free blocks in both trees of free space.
    pub(crate) const fn free_blocks(&self) -> u32 {
        self.raw.agf_freeblks.get()
    }

    /// Blocks of the longest run of free ones.
    pub(crate) const fn longest(&self) -> u32 {
        self.raw.agf_longest.get()
    }

    /// Blocks on the free list.
    pub(crate) const fn free_list_blocks(&self) -> u32 {
        self.raw.agf_flcount.get()
    }

    /// Blocks of the trees of free space and of reverse mappings, without the roots of the trees of free space.
    pub(crate) const fn btree_blocks(&self) -> u32 {
        self.raw.agf_btreeblks.get()
    }

    /// Blocks that the superblock counts as free: the free list and [`btree_blocks`](Self::btree_blocks) are included.
    pub(crate) fn counted_free_blocks(&self) -> u64 {
        [self.free_blocks(), self.free_list_blocks(), self.btree_blocks()].map(u64::from).iter().sum()
    }

    /// The tree of free space by place.
    ///
    /// # Errors
    /// Corruption of its root's address or of its depth; so for the other trees.
    pub(crate) fn by_space<'a>(&self, volume: &'a Volume) -> Result<Btree<'a, BySpace>> {
        Btree::in_ag(volume, self.ag, AgBlock(self.raw.agf_bno_root.get()), self.raw.agf_bno_level.get())
    }

    /// The tree of free space by size.
    pub(crate) fn by_size<'a>(&self, volume: &'a Volume) -> Result<Btree<'a, BySize>> {
        Btree::in_ag(volume, self.ag, AgBlock(self.raw.agf_cnt_root.get()), self.raw.agf_cnt_level.get())
    }

    /// The tree of reference counts, in a filesystem that has it.
    pub(crate) fn reference_counts<'a>(&self, volume: &'a Volume) -> Result<Option<Btree<'a, RefcountBt>>> {
        if !volume.superblock().features().has_reflink() {
            return Ok(None);
        }
        let (root, levels) = (self.raw.agf_refcount_root.get(), self.raw.agf_refcount_level.get());
        Btree::in_ag(volume, self.ag, AgBlock(root), levels).map(Some)
    }
}
