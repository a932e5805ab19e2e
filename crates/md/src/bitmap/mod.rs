//! The write-intent bitmap: which parts of the members may differ.
//!
//! `raw` has the bytes and validates them, `chunk` the state of one chunk in memory, `live` the bitmap of a running
//! array.

mod chunk;
mod live;
mod raw;
#[cfg(test)]
mod tests;

pub(crate) use live::{Bitmap, BitmapStore, Failures};
pub(crate) use raw::{BitmapHeader, HEADER_BYTES};

use undercroft_block::BlockDevice;

use crate::Result;
use crate::superblock::{Area, Source, Superblock};

pub(crate) const STRUCTURE: &str = "write-intent bitmap";

/// Reads the superblock of the bitmap that a member's superblock tells of.
///
/// # Errors
/// When it is corrupt or not supported, or the device fails.
pub(crate) fn read_header(
    device: &dyn BlockDevice,
    superblock: &Superblock,
) -> Result<Option<(Area, BitmapHeader)>> {
    let Some(area) = superblock.bitmap else { return Ok(None) };
    let member = device.name();
    let source = Source { member: &member, structure: STRUCTURE, offset: area.offset };
    let mut bytes = [0; HEADER_BYTES];
    device.read_at(area.offset, &mut bytes)?;
    let header = BitmapHeader::decode(&bytes, area.bytes, source)?;
    Ok(Some((area, header)))
}

/// Reads the bits that follow the header: as many bytes as they take.
///
/// # Errors
/// When the device fails.
pub(crate) fn read_bits(device: &dyn BlockDevice, area: Area, header: &BitmapHeader) -> Result<Vec<u8>> {
    let mut bits = vec![0; header.chunks().div_ceil(8) as usize];
    device.read_at(area.offset + HEADER_BYTES as u64, &mut bits)?;
    Ok(bits)
}
