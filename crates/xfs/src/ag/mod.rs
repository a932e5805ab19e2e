//! The headers of an allocation group, in its second to fourth sectors (the first holds a superblock): free space,
//! inodes, and the list of blocks that the trees of free space grow into.
//!
//! Each is validated when it is read: magic number, version, group, checksum, UUID, and every number that leads
//! somewhere. They are read through the cache, so reading one again costs a checksum of one sector.

pub(crate) mod agf;
pub(crate) mod agfl;
pub(crate) mod agi;

use undercroft_vfs::{Error, Result};
use uuid::Uuid;

use crate::error::{Verdict, corrupt_block};
use crate::format::{AgBlock, AgNumber, FsBlock, Geometry, Superblock, crc};
use crate::volume::{Blocks, Volume};
pub(crate) use agf::Agf;
pub(crate) use agfl::Agfl;
pub(crate) use agi::Agi;

/// The blocks of a group's headers and which sector of them is meant.
struct HeaderSector {
    bytes: Blocks,
    range: std::ops::Range<usize>,
}

impl std::ops::Deref for HeaderSector {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl HeaderSector {
    fn read(volume: &Volume, ag: AgNumber, sector: usize) -> Result<Self> {
        let sector_bytes = volume.geometry().sector_bytes() as usize;
        let bytes = volume.read_ag_headers(ag)?;
        Ok(Self { bytes, range: sector * sector_bytes..(sector + 1) * sector_bytes })
    }
}

/// A corruption in a group's headers.
fn corrupt_header(
    structure: &'static str,
    geometry: &Geometry,
    ag: AgNumber,
    detail: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    corrupt_block(structure, geometry.join(ag, AgBlock(0)).unwrap_or(FsBlock::NULL), detail)
}

/// Validates the checksum and the UUID of a header of version 5.
fn validate_crc_and_uuid(
    sector: &[u8],
    superblock: &Superblock,
    crc_field: usize,
    uuid: &[u8; 16],
) -> Verdict<()> {
    if !superblock.features().has_crc() {
        return Ok(());
    }
    crc::verify(sector, crc_field)?;
    let uuid = Uuid::from_bytes(*uuid);
    if uuid != superblock.meta_uuid() {
        return Err(format!("UUID is {uuid}, the filesystem's is {}", superblock.meta_uuid()).into());
    }
    Ok(())
}

/// Validates a group's own length: only the last one may be short.
fn validate_length(length: u32, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
    if length != geometry.ag_len(ag) {
        return Err(
            format!("says that the group has {length} blocks, and it has {}", geometry.ag_len(ag)).into()
        );
    }
    Ok(())
}
