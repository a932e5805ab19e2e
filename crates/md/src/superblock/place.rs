//! Finding the superblock of a device.

use undercroft_block::BlockDevice;

use super::{SUPERBLOCK_BYTES, Source, Superblock, Version, v0, v1};
use crate::{Error, Result};

const STRUCTURE: &str = "md superblock";
/// Version 1.0 wants 8 KiB at the end, and version 0.90 rounds down to as much.
const END_1_0_BYTES: u64 = 8 << 10;
const END_0_90_BYTES: u64 = 64 << 10;

/// A block that begins like a superblock of one version and lies where that version has it.
pub(crate) struct Probed {
    pub(crate) version: Version,
    pub(crate) offset: u64,
    pub(crate) block: Vec<u8>,
}

impl Probed {
    /// Validates it.
    ///
    /// # Errors
    /// When it is corrupt, or of an array that is not supported.
    pub(crate) fn validate(&self, member: &str, device_bytes: u64) -> Result<Superblock> {
        let source = Source { member, structure: STRUCTURE, offset: self.offset };
        match self.version {
            Version::V0_90 => Superblock::decode_v0(&self.block, source),
            version => Superblock::decode_v1(&self.block, version, device_bytes, source),
        }
    }

    /// Whether it says that it lies where it does. One that does not may belong to something that is stored in the
    /// member's data.
    fn is_at_home(&self) -> bool {
        self.version == Version::V0_90 || v1::says_offset(&self.block) == Some(self.offset)
    }
}

/// Where the superblock of this version lies on a device of this size, if it has room for one.
pub(crate) fn place_of(version: Version, device_bytes: u64) -> Option<u64> {
    let last = match version {
        Version::V1_2 => Some(4096),
        Version::V1_1 => Some(0),
        Version::V1_0 => (device_bytes & !511).checked_sub(END_1_0_BYTES).map(|place| place & !4095),
        Version::V0_90 => (device_bytes & !(END_0_90_BYTES - 1)).checked_sub(END_0_90_BYTES),
    };
    last.filter(|place| place.checked_add(SUPERBLOCK_BYTES as u64).is_some_and(|end| end <= device_bytes))
}

/// Whether a superblock of this version lies where such lie, and where that is.
///
/// # Errors
/// When the device fails.
pub(crate) fn found_at(device: &dyn BlockDevice, version: Version) -> Result<Option<u64>> {
    let Some(offset) = place_of(version, device.size_bytes()) else { return Ok(None) };
    let mut block = vec![0; SUPERBLOCK_BYTES];
    device.read_at(offset, &mut block)?;
    let looks_right = if version == Version::V0_90 { v0::is_one(&block) } else { v1::is_one(&block) };
    Ok(looks_right.then_some(offset))
}

/// Finds the superblock, without validating it: the first that says it lies where it was found, or else the first.
///
/// # Errors
/// When the device fails.
pub(crate) fn probe(device: &dyn BlockDevice) -> Result<Option<Probed>> {
    let mut stray = None;
    for version in [Version::V1_2, Version::V1_1, Version::V1_0, Version::V0_90] {
        let Some(offset) = place_of(version, device.size_bytes()) else { continue };
        let mut block = vec![0; SUPERBLOCK_BYTES];
        device.read_at(offset, &mut block)?;
        let looks_right = if version == Version::V0_90 { v0::is_one(&block) } else { v1::is_one(&block) };
        if !looks_right {
            continue;
        }
        let probed = Probed { version, offset, block };
        if probed.is_at_home() {
            return Ok(Some(probed));
        }
        stray.get_or_insert(probed);
    }
    Ok(stray)
}

/// Reads the superblock of a device.
///
/// # Errors
/// When it has none, or one that is corrupt or not supported, or fails.
pub(crate) fn read(device: &dyn BlockDevice) -> Result<Superblock> {
    let member = device.name();
    match probe(device)? {
        Some(probed) => probed.validate(&member, device.size_bytes()),
        None => Err(Error::NoSuperblock { member }),
    }
}
