//! The free list of a group (AGFL): a ring of blocks that the trees of free space grow into and shrink out of.

use undercroft_vfs::Result;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Agf, HeaderSector, corrupt_header, validate_crc_and_uuid};
use crate::error::Verdict;
use crate::format::{AgBlock, AgNumber, Geometry, Superblock};
use crate::volume::Volume;

/// `XAFL`.
pub(crate) const MAGIC: u32 = 0x5841_464c;

const STRUCTURE: &str = "free list (AGFL)";

/// The header of version 5, before the ring. Version 4 has only the ring.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawAgfl {
    pub(crate) agfl_magicnum: U32,
    pub(crate) agfl_seqno: U32,
    pub(crate) agfl_uuid: [u8; 16],
    pub(crate) agfl_lsn: U64,
    pub(crate) agfl_crc: [u8; 4],
}

const _: () = assert!(size_of::<RawAgfl>() == 36);
/// Where the checksum lies, and the position of the last change.
pub(crate) const CRC_OFFSET: usize = core::mem::offset_of!(RawAgfl, agfl_crc);
pub(crate) const LSN_OFFSET: usize = core::mem::offset_of!(RawAgfl, agfl_lsn);

/// The blocks of a group's free list, validated.
#[derive(Clone, Debug)]
pub(crate) struct Agfl {
    pub(crate) blocks: Vec<AgBlock>,
}

impl Agfl {
    /// Places in the ring.
    pub(crate) const fn capacity(geometry: &Geometry) -> u32 {
        let header = if geometry.has_crc() { size_of::<RawAgfl>() as u32 } else { 0 };
        (geometry.sector_bytes() - header) / 4
    }

    /// Reads the blocks that are on the list, as the group's header bounds it.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn read(volume: &Volume, agf: &Agf) -> Result<Self> {
        let sector = HeaderSector::read(volume, agf.ag, 3)?;
        Self::validate(&sector, volume.superblock(), agf)
            .map_err(|detail| corrupt_header(STRUCTURE, volume.geometry(), agf.ag, detail))
    }

    fn validate(sector: &[u8], superblock: &Superblock, agf: &Agf) -> Verdict<Self> {
        let geometry = superblock.geometry();
        let ring = if geometry.has_crc() { validate_header(sector, superblock, agf.ag)? } else { sector };
        let capacity = Self::capacity(geometry);
        let (first, last) = (agf.raw().agf_flfirst.get(), agf.raw().agf_fllast.get());
        let count = agf.free_list_blocks();
        // An empty list has its end before its start.
        let within = (last + capacity - first) % capacity + 1;
        if count > capacity || count != within && !(count == 0 && within == capacity) {
            return Err(format!("{count} blocks from place {first} to {last} of {capacity}").into());
        }
        let mut blocks = Vec::with_capacity(count as usize);
        for n in 0..count {
            let at = ((first + n) % capacity) as usize * 4;
            let block = ring
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map_or(u32::MAX, |b| u32::from_be_bytes(*b));
            if geometry.join(agf.ag, AgBlock(block)).is_none() {
                return Err(format!("place {} holds block {block}", (first + n) % capacity).into());
            }
            blocks.push(AgBlock(block));
        }
        Ok(Self { blocks })
    }
}

/// Validates the header of version 5; returns the ring.
fn validate_header<'a>(sector: &'a [u8], superblock: &Superblock, ag: AgNumber) -> Verdict<&'a [u8]> {
    let Ok((raw, ring)) = RawAgfl::read_from_prefix(sector) else {
        return Err("is cut off".into());
    };
    if raw.agfl_magicnum.get() != MAGIC {
        return Err(format!("magic number is {:#010x}", raw.agfl_magicnum).into());
    }
    validate_crc_and_uuid(sector, superblock, CRC_OFFSET, &raw.agfl_uuid)?;
    if raw.agfl_seqno.get() != ag.0 {
        return Err(format!("says that it is that of group {}, and is that of {ag}", raw.agfl_seqno).into());
    }
    Ok(ring)
}
