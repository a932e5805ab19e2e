//! One member's superblock: of a new array, or of a device that joins one.

use uuid::Uuid;
use zerocopy::byteorder::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes as _, FromZeros as _};

use super::options::CreateOptions;
use super::random_uuid;
use super::sizes::{BLOCK_BYTES, PPL_BYTES, Sizes, bitmap_room};
use crate::bitmap::BitmapHeader;
use crate::superblock::{
    DeviceRole, Features, IN_SYNC, RawSuperblock, Shape, Superblock, Version, from_fields, layout_number,
    level_number, place_of,
};
use crate::{Error, Layout, Result};

const SECTOR: u64 = 512;
/// A table of roles fills up the sector that the fixed part begins.
const FEWEST_ROLES: usize = 128;

/// All that one superblock is made of.
pub(super) struct NewMember<'a> {
    pub(super) options: &'a CreateOptions,
    pub(super) shape: &'a Shape,
    pub(super) sizes: &'a Sizes,
    pub(super) array_uuid: Uuid,
    pub(super) roles: &'a [DeviceRole],
    pub(super) bitmap: Option<&'a BitmapHeader>,
    /// So much of the redundancy is right.
    pub(super) resynced: u64,
    pub(super) number: u32,
    pub(super) device_bytes: u64,
}

impl NewMember<'_> {
    pub(super) fn superblock(&self, member: &str) -> Result<Superblock> {
        let version = self.options.version;
        let super_offset = place_of(version, self.device_bytes).ok_or_else(|| {
            Error::Invalid(format!("{member} is too small: it has {} bytes", self.device_bytes))
        })?;
        let mut raw = RawSuperblock::new_zeroed();
        raw.set_uuid = self.array_uuid.into_bytes();
        let name = self.options.full_name();
        raw.set_name[..name.len()].copy_from_slice(&name);
        raw.ctime = U64::new(self.options.created.to_raw());
        raw.utime = raw.ctime;
        raw.level = I32::new(level_number(self.shape.level));
        raw.layout = U32::new(layout_number(self.shape.layout));
        raw.size = U64::new(self.sizes.member_bytes / SECTOR);
        raw.chunksize = U32::new(self.shape.chunk_bytes / SECTOR as u32);
        raw.raid_disks = U32::new(self.roles.len() as u32);
        raw.super_offset = U64::new(super_offset / SECTOR);
        raw.dev_number = U32::new(self.number);
        raw.device_uuid = random_uuid()?.into_bytes();
        let resynced = self.resynced;
        raw.resync_offset = U64::new(if resynced == IN_SYNC { u64::MAX } else { resynced / SECTOR });
        self.place(&mut raw, super_offset);
        let mut roles = self.roles.to_vec();
        roles.resize(FEWEST_ROLES.max(roles.len()).max(self.number as usize + 1), DeviceRole::Spare);
        from_fields(raw, &roles, version, self.device_bytes, member)
    }

    /// Says where data, bitmap or log, and the list of bad blocks are.
    fn place(&self, raw: &mut RawSuperblock, super_offset: u64) {
        let at_end = self.options.version == Version::V1_0;
        let data_offset = self.sizes.data_offset;
        let mut features = Features::empty();
        features.set(Features::RAID0_LAYOUT, matches!(self.shape.layout, Layout::Zones(_)));
        // What lies between the superblock and the list of bad blocks, in the order of the list below.
        let mut room = if let Some(bitmap) = self.bitmap {
            features |= Features::BITMAP;
            bitmap.bytes().next_multiple_of(BLOCK_BYTES)
        } else if self.options.ppl {
            features |= Features::MULTIPLE_PPLS;
            PPL_BYTES
        } else {
            bitmap_room(self.sizes.member_bytes)
        };
        let near = if at_end { -((room + BLOCK_BYTES) as i64) } else { BLOCK_BYTES as i64 } / SECTOR as i64;
        if self.bitmap.is_some() {
            raw.bitmap_offset = U32::new(near as i32 as u32);
        } else if self.options.ppl {
            raw.bitmap_offset = U32::new(u32::from(near as i16 as u16) | ((PPL_BYTES / SECTOR) as u32) << 16);
        }
        raw.feature_map = U32::new(features.bits());
        raw.data_offset = U64::new(data_offset / SECTOR);
        raw.bblog_size = U16::new((BLOCK_BYTES / SECTOR) as u16);
        if at_end {
            room = (room + BLOCK_BYTES).min(super_offset - data_offset - self.sizes.member_bytes);
            raw.data_size = U64::new((super_offset - data_offset - room) / SECTOR);
            raw.bblog_offset = I32::new(-((BLOCK_BYTES / SECTOR) as i32));
        } else {
            raw.data_size = U64::new((self.device_bytes - data_offset) / SECTOR);
            let behind = BLOCK_BYTES + room;
            let fits = data_offset >= super_offset + behind + BLOCK_BYTES;
            let at = if fits { behind } else { data_offset - BLOCK_BYTES - super_offset };
            raw.bblog_offset = I32::new((at / SECTOR) as i32);
        }
    }
}

/// The superblock of a device that joins an array as a spare, made after that of a member. Its bitmap or log must be
/// written to the places that it tells of before it is.
///
/// # Errors
/// When the device is too small.
pub(crate) fn new_member(
    like: &Superblock,
    number: u32,
    device_bytes: u64,
    member: &str,
) -> Result<Superblock> {
    let too_small = || {
        Error::Invalid(format!(
            "{member} is too small for the array: of its {device_bytes} bytes fewer than {} would be for data",
            like.member_bytes
        ))
    };
    let (mut raw, _) = RawSuperblock::read_from_prefix(like.raw()).map_err(|_| too_small())?;
    let super_offset = place_of(like.version, device_bytes).ok_or_else(too_small)?;
    let data_bytes = if like.version == Version::V1_0 {
        let behind = like.offset - like.data.offset - like.data.bytes;
        super_offset.checked_sub(like.data.offset + behind)
    } else {
        device_bytes.checked_sub(like.data.offset)
    };
    let data_bytes = data_bytes.filter(|&bytes| bytes >= like.member_bytes).ok_or_else(too_small)?;
    raw.super_offset = U64::new(super_offset / SECTOR);
    raw.data_size = U64::new(data_bytes / SECTOR);
    let mut features = Features::from_bits_retain(raw.feature_map.get());
    features -=
        Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP | Features::REPLACEMENT | Features::BAD_BLOCKS;
    raw.feature_map = U32::new(features.bits());
    raw.recovery_offset = U64::new(0);
    raw.cnt_corrected_read = U32::new(0);
    raw.devflags = 0;
    raw.dev_number = U32::new(number);
    raw.device_uuid = random_uuid()?.into_bytes();
    raw.events = U64::new(like.events);
    let mut roles = like.roles.clone();
    if roles.len() <= number as usize {
        roles.resize(number as usize + 1, DeviceRole::Spare);
    }
    roles[number as usize] = DeviceRole::Spare;
    let mut superblock = from_fields(raw, &roles, like.version, device_bytes, member)?;
    superblock.updated = like.updated;
    superblock.resynced = like.resynced;
    Ok(superblock)
}
