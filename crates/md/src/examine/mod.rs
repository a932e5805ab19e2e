//! Looking at one member: all that its superblock says, also where the array could not be assembled from it.
//!
//! [`examine`] reads and writes nothing. Its result prints itself much as `mdadm --examine` does (`text`), with times
//! in UTC.

mod text;

use std::ops::Range;

use undercroft_block::BlockDevice;
use uuid::Uuid;
use zerocopy::FromBytes as _;

use crate::bad_blocks::BadBlocks;
use crate::bitmap::{self, Bitmap};
use crate::superblock::{
    self, DeviceFlags, DeviceRole, Features, Probed, RawSuperblock, Superblock, Timestamp, Version,
};
use crate::{Error, Layout, Level, Result};

/// What a member says of itself and of its array. Offsets are bytes on the device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Examined {
    /// The device.
    pub member: String,
    /// Why the array cannot be assembled from this member, if so. What follows is then as it was found.
    pub problem: Option<String>,
    /// Of its superblock.
    pub version: Version,
    /// Where the superblock lies.
    pub superblock_offset: u64,
    /// The bits of its feature map; 0 for version 0.90.
    pub features: u32,
    /// Of the array.
    pub array_uuid: Uuid,
    /// Of this member.
    pub device_uuid: Uuid,
    /// The array's name, with the host in front: `host:name`.
    pub name: String,
    /// When the array was made.
    pub created: Timestamp,
    /// When this superblock was written.
    pub updated: Timestamp,
    /// How often superblocks were written.
    pub events: u64,
    /// The level's number, as it was found.
    pub level_number: i32,
    /// The level and layout, where they are known.
    pub shape: Option<(Level, Layout)>,
    /// Bytes of a chunk; of linear, the unit that members are rounded to.
    pub chunk_bytes: u64,
    /// Number of roles.
    pub raid_disks: u32,
    /// Bytes of the array, if they can be known from one member.
    pub array_bytes: Option<u64>,
    /// Bytes of this member's data area.
    pub data_bytes: u64,
    /// Bytes that the array uses of it; 0 where each gives what it has.
    pub member_bytes: u64,
    /// Where data begins.
    pub data_offset: u64,
    /// So many bytes of the data area are right, if not all are.
    pub recovered_bytes: Option<u64>,
    /// So many bytes of the array's redundancy are right; `None`: it is clean.
    pub resynced_bytes: Option<u64>,
    /// This device's entry in the table of roles.
    pub number: u32,
    /// What it says of its own role.
    pub role: DeviceRole,
    /// It stands in beside another member, and will take its place.
    pub is_replacement: bool,
    /// What it says of all device numbers.
    pub roles: Vec<DeviceRole>,
    /// It is read only when no other can be.
    pub is_write_mostly: bool,
    /// It fails rather than retry.
    pub is_fail_fast: bool,
    /// The write-intent bitmap.
    pub bitmap: Option<ExaminedBitmap>,
    /// The partial parity log: where it begins, and its bytes.
    pub ppl: Option<(u64, u64)>,
    /// The list of bad blocks.
    pub bad_blocks: Option<ExaminedBadBlocks>,
    /// The checksum in the superblock.
    pub checksum: u32,
    /// The checksum over the superblock.
    pub expected_checksum: u32,
}

/// The write-intent bitmap of a member.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExaminedBitmap {
    /// Where it begins.
    pub offset: u64,
    /// When it was written last.
    pub events: u64,
    /// When bits were cleared last.
    pub events_cleared: u64,
    /// Bytes that one bit stands for.
    pub chunk_bytes: u64,
    /// Bytes that all bits stand for.
    pub sync_bytes: u64,
    /// Number of bits.
    pub bits: u64,
    /// Number of bits that are set.
    pub dirty_bits: u64,
}

/// The list of bad blocks of a member.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExaminedBadBlocks {
    /// Where it begins.
    pub offset: u64,
    /// Entries that it has room for.
    pub room: u64,
    /// Bad ranges of the data area.
    pub ranges: Vec<Range<u64>>,
}

/// Reads all that a member says.
///
/// # Errors
/// When the device has no superblock, fails, or has one of version 0.90 that cannot be read. A superblock of version 1
/// that makes no sense, or is not supported, is no error here: see [`Examined::problem`].
pub fn examine(device: &dyn BlockDevice) -> Result<Examined> {
    let member = device.name();
    let Some(probed) = superblock::probe(device)? else { return Err(Error::NoSuperblock { member }) };
    let validated = probed.validate(&member, device.size_bytes());
    match (validated, probed.version) {
        (Ok(superblock), Version::V0_90) => Ok(believed(member, &superblock)),
        (Err(error), Version::V0_90) => Err(error),
        (Ok(superblock), _) => {
            let mut examined = found(member, &probed);
            let known = believed(examined.member.clone(), &superblock);
            examined = Examined {
                features: examined.features,
                checksum: examined.checksum,
                expected_checksum: examined.expected_checksum,
                chunk_bytes: examined.chunk_bytes,
                ..known
            };
            examined.add_areas(device, &superblock)?;
            Ok(examined)
        }
        (Err(error), _) => Ok(Examined { problem: Some(error.to_string()), ..found(member, &probed) }),
    }
}

/// What a superblock says that makes sense.
fn believed(member: String, superblock: &Superblock) -> Examined {
    let array_bytes = match superblock.level {
        Level::Linear | Level::Raid0 => None,
        level => {
            let geometry = crate::Geometry {
                level,
                layout: superblock.layout,
                members: superblock.raid_disks,
                chunk_bytes: superblock.chunk_bytes,
                member_bytes: vec![superblock.member_bytes; superblock.raid_disks as usize],
            };
            geometry.check().is_ok().then(|| geometry.array_bytes())
        }
    };
    Examined {
        member,
        problem: None,
        version: superblock.version,
        superblock_offset: superblock.offset,
        features: 0,
        array_uuid: superblock.array_uuid,
        device_uuid: superblock.device_uuid,
        name: superblock.display_name(),
        created: superblock.created,
        updated: superblock.updated,
        events: superblock.events,
        level_number: superblock::level_number(superblock.level),
        shape: Some((superblock.level, superblock.layout)),
        chunk_bytes: superblock.chunk_bytes.max(superblock.rounding_bytes).into(),
        raid_disks: superblock.raid_disks,
        array_bytes,
        data_bytes: superblock.data.bytes,
        member_bytes: superblock.member_bytes,
        data_offset: superblock.data.offset,
        recovered_bytes: superblock.recovery.map(|recovery| recovery.done),
        resynced_bytes: (!superblock.is_clean()).then_some(superblock.resynced),
        number: superblock.number,
        role: superblock.role(),
        is_replacement: superblock.is_replacement,
        roles: superblock.roles.clone(),
        is_write_mostly: superblock.flags.contains(DeviceFlags::WRITE_MOSTLY),
        is_fail_fast: superblock.flags.contains(DeviceFlags::FAIL_FAST),
        bitmap: None,
        ppl: superblock.ppl.map(|ppl| (ppl.area.offset, ppl.area.bytes)),
        bad_blocks: None,
        checksum: 0,
        expected_checksum: 0,
    }
}

/// What a version 1 superblock says, whether it makes sense or not.
fn found(member: String, probed: &Probed) -> Examined {
    let raw = RawSuperblock::read_from_prefix(&probed.block).map_or_else(|_| empty(), |(raw, _)| raw);
    let features = Features::from_bits_retain(raw.feature_map.get());
    let flags = DeviceFlags::from_bits_retain(raw.devflags);
    let roles = superblock::table_of_roles(&probed.block, raw.max_dev.get());
    let bytes = |sectors: u64| sectors.saturating_mul(512);
    let name_len = raw.set_name.iter().position(|&byte| byte == 0).unwrap_or(raw.set_name.len());
    Examined {
        member,
        problem: None,
        version: probed.version,
        superblock_offset: probed.offset,
        features: features.bits(),
        array_uuid: Uuid::from_bytes(raw.set_uuid),
        device_uuid: Uuid::from_bytes(raw.device_uuid),
        name: String::from_utf8_lossy(&raw.set_name[..name_len]).into_owned(),
        created: Timestamp::from_raw(raw.ctime.get()),
        updated: Timestamp::from_raw(raw.utime.get()),
        events: raw.events.get(),
        level_number: raw.level.get(),
        shape: None,
        chunk_bytes: u64::from(raw.chunksize.get()) * 512,
        raid_disks: raw.raid_disks.get(),
        array_bytes: None,
        data_bytes: bytes(raw.data_size.get()),
        member_bytes: bytes(raw.size.get()),
        data_offset: bytes(raw.data_offset.get()),
        recovered_bytes: features
            .contains(Features::RECOVERY_OFFSET)
            .then(|| bytes(raw.recovery_offset.get())),
        resynced_bytes: (raw.resync_offset.get() != u64::MAX).then(|| bytes(raw.resync_offset.get())),
        number: raw.dev_number.get(),
        role: roles.get(raw.dev_number.get() as usize).copied().unwrap_or(DeviceRole::Spare),
        is_replacement: features.contains(Features::REPLACEMENT),
        roles,
        is_write_mostly: flags.contains(DeviceFlags::WRITE_MOSTLY),
        is_fail_fast: flags.contains(DeviceFlags::FAIL_FAST),
        bitmap: None,
        ppl: None,
        bad_blocks: None,
        checksum: raw.sb_csum.get(),
        expected_checksum: superblock::expected_checksum(&probed.block, raw.max_dev.get()),
    }
}

fn empty() -> RawSuperblock {
    zerocopy::FromZeros::new_zeroed()
}

impl Examined {
    fn add_areas(&mut self, device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
        match bitmap::read_header(device, superblock) {
            Ok(Some((area, header))) => {
                let bits = bitmap::read_bits(device, area, &header)?;
                let live = Bitmap::new(header, &bits, header.events, 0);
                let (dirty_bits, bits) = live.counts();
                self.bitmap = Some(ExaminedBitmap {
                    offset: area.offset,
                    events: header.events,
                    events_cleared: header.events_cleared,
                    chunk_bytes: header.chunk_bytes,
                    sync_bytes: header.sync_bytes,
                    bits,
                    dirty_bits,
                });
            }
            Ok(None) => {}
            Err(error @ Error::Device(_)) => return Err(error),
            Err(error) => self.problem = Some(error.to_string()),
        }
        if let Some(log) = superblock.bad_blocks {
            let ranges = match BadBlocks::read(device, superblock) {
                Ok(list) => list.ranges().to_vec(),
                Err(error @ Error::Device(_)) => return Err(error),
                Err(error) => {
                    self.problem = Some(error.to_string());
                    Vec::new()
                }
            };
            self.bad_blocks =
                Some(ExaminedBadBlocks { offset: log.area.offset, room: log.area.bytes / 8, ranges });
        }
        Ok(())
    }

    /// Whether the array was stopped, or idle, with its redundancy right.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.resynced_bytes.is_none()
    }

    /// One sign for each role: `A` if it is filled, `R` if it is filled twice, since its member is being replaced, and
    /// `.` if it is not.
    #[must_use]
    pub fn array_state(&self) -> String {
        // What makes no sense may claim any number of roles.
        let shown = self.raid_disks.min(superblock::MAX_DEVICES as u32);
        let sign =
            |role: u32| match self.roles.iter().filter(|&&other| other == DeviceRole::Active(role)).count() {
                0 => '.',
                1 => 'A',
                2 => 'R',
                _ => '?',
            };
        (0..shown).map(sign).collect()
    }
}
