//! Version 1 superblocks: validated once when read, and written back.
//!
//! Source of the rules: `drivers/md/md.c` (`super_1_load`, `super_1_validate`, `super_1_sync`), read for facts.

use uuid::Uuid;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::raw::{MAGIC, MAX_DEVICES, ROLE_FAULTY, ROLE_JOURNAL, ROLE_MAX, ROLE_SPARE};
use super::{
    Area, BadBlockLog, DeviceFlags, DeviceRole, Features, IN_SYNC, PplArea, RawSuperblock, Recovery,
    SUPERBLOCK_BYTES, Shape, Source, Superblock, Timestamp, Version, checksum, shape,
};
use crate::{Level, Result};

const SECTOR: u64 = 512;
const FIXED_BYTES: usize = size_of::<RawSuperblock>();
/// Of a partial parity log: a header, and at least one block of parity.
const SMALLEST_PPL_BYTES: u64 = 8192;
/// From this size on records take turns: two headers, each with 128 KiB.
const TWO_RECORDS_BYTES: u64 = 2 * ((128 << 10) + 4096);
/// Linux keeps one page of bad blocks.
const LARGEST_BAD_BLOCK_LOG_BYTES: u64 = 4096;

/// Whether these are the first bytes of a version 1 superblock, right or not.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    RawSuperblock::read_from_prefix(bytes)
        .is_ok_and(|(raw, _)| raw.magic.get() == MAGIC && raw.major_version.get() == 1)
}

impl Superblock {
    /// Validates the block of 4096 bytes that lies at `source.offset` of a device of `device_bytes`.
    pub(crate) fn decode_v1(
        block: &[u8],
        version: Version,
        device_bytes: u64,
        source: Source<'_>,
    ) -> Result<Self> {
        let (raw, _) = RawSuperblock::read_from_prefix(block).map_err(|_| source.corrupt("it is cut off"))?;
        if raw.magic.get() != MAGIC || raw.major_version.get() != 1 {
            return Err(source.corrupt("it does not begin with the magic number of version 1"));
        }
        let max_dev = raw.max_dev.get() as usize;
        if max_dev > MAX_DEVICES || block.len() < FIXED_BYTES + 2 * max_dev {
            return Err(
                source.corrupt(format!("its table of roles has {max_dev} entries, more than {MAX_DEVICES}"))
            );
        }
        let summed = FIXED_BYTES + 2 * max_dev;
        let (found, expected) = (raw.sb_csum.get(), checksum(&block[..summed]));
        if found != expected {
            return Err(source.corrupt(format!("its checksum is {found:#x}, expected {expected:#x}")));
        }
        if raw.super_offset.get().checked_mul(SECTOR) != Some(source.offset) {
            let at = raw.super_offset.get();
            return Err(source.corrupt(format!("it says that it lies in sector {at}")));
        }
        if raw.pad0.get() != 0 || raw.pad3 != [0; 32] {
            return Err(source.unsupported("a superblock with fields that are not known here"));
        }
        let features = supported(raw.feature_map.get(), source)?;
        let disks = raw.raid_disks.get();
        if disks == 0 || disks as usize > MAX_DEVICES {
            return Err(source.corrupt(format!("the array has {disks} devices")));
        }
        let has_raid0_layout = features.contains(Features::RAID0_LAYOUT);
        let shape = shape(raw.level.get(), raw.layout.get(), raw.chunksize.get(), disks, has_raid0_layout)
            .map_err(|refusal| source.refused(refusal))?;

        let superblock_area = Area { offset: source.offset, bytes: summed.next_multiple_of(512) as u64 };
        let data = data_area(&raw, version, superblock_area, device_bytes, source)?;
        let member_bytes = member_bytes(&raw, shape, data, source)?;
        let places = Places { device_bytes, superblock: superblock_area, data };
        let bad_blocks = places.bad_blocks(&raw, features, source)?;
        let bitmap = places.bitmap(&raw, features, bad_blocks, source)?;
        let ppl = places.ppl(&raw, features, shape.level, source)?;

        let (table, _) = <[U16]>::ref_from_prefix_with_elems(&block[FIXED_BYTES..], max_dev)
            .map_err(|_| source.corrupt("its table of roles is cut off"))?;
        let roles = table.iter().map(|entry| role(entry.get())).collect::<Option<Vec<_>>>();
        let roles =
            roles.ok_or_else(|| source.corrupt("its table of roles has an entry that means nothing"))?;
        let own = roles.get(raw.dev_number.get() as usize);
        match own {
            Some(DeviceRole::Active(role)) if *role >= disks => {
                return Err(source.corrupt(format!("its role is {role} of {disks}")));
            }
            Some(DeviceRole::Journal) => return Err(source.unsupported("a write journal")),
            _ => {}
        }
        let recovery = recovery(&raw, features, source)?;
        // A spare that is about to become one says so already.
        if features.contains(Features::REPLACEMENT)
            && !matches!(own, Some(DeviceRole::Active(_) | DeviceRole::Spare))
        {
            return Err(source.corrupt("it is a replacement and has no role"));
        }
        let resynced = match raw.resync_offset.get() {
            u64::MAX => IN_SYNC,
            sectors => bytes(sectors, "resync_offset", source)?,
        };
        let name_len = raw.set_name.iter().position(|&byte| byte == 0).unwrap_or(raw.set_name.len());
        Ok(Self {
            version,
            array_uuid: Uuid::from_bytes(raw.set_uuid),
            name: raw.set_name[..name_len].to_vec(),
            created: Timestamp::from_raw(raw.ctime.get()),
            level: shape.level,
            layout: shape.layout,
            chunk_bytes: shape.chunk_bytes,
            rounding_bytes: shape.rounding_bytes,
            raid_disks: disks,
            member_bytes,
            device_uuid: Uuid::from_bytes(raw.device_uuid),
            number: raw.dev_number.get(),
            offset: source.offset,
            data,
            recovery,
            is_replacement: features.contains(Features::REPLACEMENT),
            flags: DeviceFlags::from_bits_retain(raw.devflags),
            corrected_reads: raw.cnt_corrected_read.get(),
            bad_blocks,
            bitmap,
            ppl,
            updated: Timestamp::from_raw(raw.utime.get()),
            events: raw.events.get(),
            resynced,
            roles,
            raw: block[..superblock_area.bytes as usize].to_vec(),
        })
    }

    /// The bytes to write at [`offset`](Self::offset), whole sectors: the fields that change while an array runs as
    /// they are now, all others as they were read.
    ///
    /// # Errors
    /// When it is of version 0.90, which is never written, or its table of roles has become too long.
    pub(crate) fn encode(&mut self, member: &str) -> Result<&[u8]> {
        let source = Source { member, structure: "md superblock", offset: self.offset };
        if self.version == Version::V0_90 {
            return Err(source.unsupported("writing to an array with superblocks of version 0.90"));
        }
        self.check_room(self.roles.len(), member)?;
        let needed = FIXED_BYTES + 2 * self.roles.len();
        self.raw.resize(needed.next_multiple_of(512).max(self.raw.len()), 0);
        let (fixed, table) = self.raw.split_at_mut(FIXED_BYTES);
        let Ok(raw) = RawSuperblock::mut_from_bytes(fixed) else {
            return Err(source.corrupt("it is cut off"));
        };
        let mut features = Features::from_bits_retain(raw.feature_map.get());
        features.set(Features::RECOVERY_OFFSET, self.recovery.is_some());
        features.set(Features::RECOVERY_BITMAP, self.recovery.is_some_and(|recovery| recovery.by_bitmap));
        features.set(Features::REPLACEMENT, self.is_replacement);
        if let Some(ppl) = self.ppl {
            features.set(Features::PPL, !ppl.multiple);
            features.set(Features::MULTIPLE_PPLS, ppl.multiple);
        }
        features.set(Features::BAD_BLOCKS, self.bad_blocks.is_some_and(|log| log.in_use));
        raw.feature_map = U32::new(features.bits());
        raw.recovery_offset = U64::new(self.recovery.map_or(0, |recovery| recovery.done / SECTOR));
        raw.dev_number = U32::new(self.number);
        raw.cnt_corrected_read = U32::new(self.corrected_reads);
        raw.device_uuid = self.device_uuid.into_bytes();
        raw.devflags = self.flags.bits();
        raw.utime = U64::new(self.updated.to_raw());
        raw.events = U64::new(self.events);
        raw.resync_offset =
            U64::new(if self.resynced == IN_SYNC { u64::MAX } else { self.resynced / SECTOR });
        raw.max_dev = U32::new(self.roles.len() as u32);
        for (entry, role) in table.chunks_exact_mut(2).zip(&self.roles) {
            entry.copy_from_slice(&role_number(*role).to_le_bytes());
        }
        let sum = checksum(&self.raw[..needed]);
        if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(&mut self.raw) {
            raw.sb_csum = U32::new(sum);
        }
        Ok(&self.raw)
    }

    /// Says in the table what device number `number` is, and makes the table longer where it must be.
    ///
    /// # Errors
    /// When the table cannot grow any more.
    pub(crate) fn set_role(&mut self, number: u32, role: DeviceRole, member: &str) -> Result<()> {
        let wanted = number as usize + 1;
        if wanted > self.roles.len() {
            self.check_room(wanted, member)?;
            self.roles.resize(wanted, DeviceRole::Spare);
        }
        self.roles[number as usize] = role;
        Ok(())
    }

    /// Refuses a table of roles of so many entries that it meets what lies behind it.
    ///
    /// # Errors
    /// When it is longer than that.
    pub(crate) fn check_room(&self, entries: usize, member: &str) -> Result<()> {
        let room = self.room_for_roles();
        if entries <= room {
            return Ok(());
        }
        let source = Source { member, structure: "md superblock", offset: self.offset };
        Err(source.unsupported(format!("more than {room} devices, for which its superblock has no room,")))
    }

    /// How many entries fit into the sectors that the superblock has already. A longer table adds a sector, and a crash
    /// may tear it there.
    pub(crate) fn roles_within_sectors(&self) -> usize {
        (self.raw.len().saturating_sub(FIXED_BYTES) / 2).min(self.room_for_roles())
    }

    /// How many entries the table of roles may have before it meets what lies behind it.
    pub(crate) fn room_for_roles(&self) -> usize {
        let behind = [
            self.bitmap.map(|area| area.offset),
            self.ppl.map(|ppl| ppl.area.offset),
            self.bad_blocks.map(|log| log.area.offset),
            Some(self.data.offset),
        ];
        let end = behind.into_iter().flatten().filter(|&offset| offset > self.offset).min();
        let bytes =
            end.map_or(SUPERBLOCK_BYTES as u64, |end| (end - self.offset).min(SUPERBLOCK_BYTES as u64));
        (bytes as usize).saturating_sub(FIXED_BYTES) / 2
    }
}

/// The features, all of which are known and can be dealt with.
fn supported(feature_map: u32, source: Source<'_>) -> Result<Features> {
    let features = Features::from_bits_retain(feature_map);
    let refused = [
        (Features::RESHAPE, "an array that is changing its shape (finish the reshape with Linux first)"),
        (
            Features::RESHAPE_BACKWARDS,
            "an array that is changing its shape (finish the reshape with Linux first)",
        ),
        (Features::NEW_OFFSET, "an array whose data is being moved (finish the reshape with Linux first)"),
        (Features::CLUSTERED, "an array of a cluster"),
        (Features::JOURNAL, "an array with a write journal"),
    ];
    if let Some((_, what)) = refused.into_iter().find(|(feature, _)| features.contains(*feature)) {
        return Err(source.unsupported(what));
    }
    // The last bit of the map that has a meaning today.
    let unknown = feature_map & !(Features::RAID0_LAYOUT.bits() * 2 - 1);
    if unknown != 0 {
        return Err(source.unsupported(format!("a superblock with unknown features {unknown:#x}")));
    }
    if features.contains(Features::PPL | Features::MULTIPLE_PPLS) {
        return Err(source.corrupt("it has a partial parity log of two kinds"));
    }
    if features.intersects(Features::PPL | Features::MULTIPLE_PPLS) && features.contains(Features::BITMAP) {
        return Err(source.corrupt("it has both a bitmap and a partial parity log"));
    }
    Ok(features)
}

fn bytes(sectors: u64, what: &str, source: Source<'_>) -> Result<u64> {
    // Half of the numbers are enough for every device, and sums of two then never overflow.
    sectors
        .checked_mul(SECTOR)
        .filter(|&bytes| bytes <= i64::MAX as u64)
        .ok_or_else(|| source.corrupt(format!("{what} is {sectors} sectors")))
}

fn data_area(
    raw: &RawSuperblock,
    version: Version,
    superblock: Area,
    device_bytes: u64,
    source: Source<'_>,
) -> Result<Area> {
    let offset = bytes(raw.data_offset.get(), "data_offset", source)?;
    let data = Area { offset, bytes: bytes(raw.data_size.get(), "data_size", source)? };
    if data.bytes < 10 * SECTOR {
        return Err(source.corrupt(format!("its data area is {} bytes", data.bytes)));
    }
    let end = if version == Version::V1_0 { superblock.offset } else { device_bytes };
    if data.end() > end {
        return Err(source.corrupt(format!(
            "its data area goes to byte {}, past byte {end}, where it must end: was the device cut off?",
            data.end()
        )));
    }
    if version != Version::V1_0 && data.offset < superblock.end() {
        return Err(source.corrupt(format!("its data begins in byte {}, within the superblock", data.offset)));
    }
    Ok(data)
}

fn member_bytes(raw: &RawSuperblock, shape: Shape, data: Area, source: Source<'_>) -> Result<u64> {
    if matches!(shape.level, Level::Linear | Level::Raid0) {
        return Ok(0);
    }
    let size = bytes(raw.size.get(), "size", source)?;
    if size > data.bytes {
        return Err(source.corrupt(format!("{size} bytes are used of a data area of {}", data.bytes)));
    }
    let used = match shape.level {
        Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            size - size % u64::from(shape.chunk_bytes)
        }
        _ => size,
    };
    if used == 0 {
        return Err(source.corrupt(format!("{size} bytes are used of each device")));
    }
    Ok(used)
}

fn recovery(raw: &RawSuperblock, features: Features, source: Source<'_>) -> Result<Option<Recovery>> {
    if !features.contains(Features::RECOVERY_OFFSET) {
        return Ok(None);
    }
    // All is recovered, and that is not recorded yet.
    let done = match raw.recovery_offset.get() {
        u64::MAX => i64::MAX as u64,
        sectors => bytes(sectors, "recovery_offset", source)?,
    };
    Ok(Some(Recovery { done, by_bitmap: features.contains(Features::RECOVERY_BITMAP) }))
}

/// What must not overlap.
struct Places {
    device_bytes: u64,
    superblock: Area,
    data: Area,
}

impl Places {
    /// So many sectors from the superblock.
    fn near(&self, sectors: i64) -> Option<u64> {
        self.superblock.offset.checked_add_signed(sectors.checked_mul(SECTOR as i64)?)
    }

    fn check(&self, area: Area, what: &str, source: Source<'_>) -> Result<Area> {
        let fits = area.offset.checked_add(area.bytes).is_some_and(|end| end <= self.device_bytes);
        if !fits || area.overlaps(self.superblock) || area.overlaps(self.data) {
            return Err(source.corrupt(format!(
                "{what} of {} bytes at byte {} overlaps other things or ends past the device",
                area.bytes, area.offset
            )));
        }
        Ok(area)
    }

    fn bad_blocks(
        &self,
        raw: &RawSuperblock,
        features: Features,
        source: Source<'_>,
    ) -> Result<Option<BadBlockLog>> {
        let (sectors, in_use) = (raw.bblog_offset.get(), features.contains(Features::BAD_BLOCKS));
        if sectors == 0 || raw.bblog_size.get() == 0 {
            return if in_use {
                Err(source.corrupt("it has bad blocks, and no list of them"))
            } else {
                Ok(None)
            };
        }
        let what = "the list of bad blocks";
        let offset = self
            .near(sectors.into())
            .ok_or_else(|| source.corrupt(format!("{what} lies before the device")))?;
        let area =
            self.check(Area { offset, bytes: u64::from(raw.bblog_size.get()) * SECTOR }, what, source)?;
        if area.bytes > LARGEST_BAD_BLOCK_LOG_BYTES {
            return Err(source.unsupported(format!("a list of bad blocks of {} bytes", area.bytes)));
        }
        if raw.bblog_shift > 32 {
            return Err(source.corrupt(format!("its bad blocks are of 2^{} sectors", raw.bblog_shift)));
        }
        Ok(Some(BadBlockLog { area, shift: raw.bblog_shift, in_use }))
    }

    /// The bitmap may reach up to whatever comes next.
    fn bitmap(
        &self,
        raw: &RawSuperblock,
        features: Features,
        bad_blocks: Option<BadBlockLog>,
        source: Source<'_>,
    ) -> Result<Option<Area>> {
        if !features.contains(Features::BITMAP) {
            return Ok(None);
        }
        let what = "the write-intent bitmap";
        let sectors = i64::from(raw.bitmap_offset.get() as i32);
        let offset =
            self.near(sectors).ok_or_else(|| source.corrupt(format!("{what} lies before the device")))?;
        let next =
            [Some(self.superblock.offset), Some(self.data.offset), bad_blocks.map(|log| log.area.offset)];
        let end =
            next.into_iter().flatten().filter(|&place| place > offset).fold(self.device_bytes, u64::min);
        let area = Area { offset, bytes: end.saturating_sub(offset) };
        if area.bytes < SECTOR {
            return Err(source.corrupt(format!("{what} has no room at byte {offset}")));
        }
        if bad_blocks.is_some_and(|log| log.area.overlaps(area)) {
            return Err(source.corrupt(format!("{what} at byte {offset} lies in the list of bad blocks")));
        }
        self.check(area, what, source).map(Some)
    }

    fn ppl(
        &self,
        raw: &RawSuperblock,
        features: Features,
        level: Level,
        source: Source<'_>,
    ) -> Result<Option<PplArea>> {
        if !features.intersects(Features::PPL | Features::MULTIPLE_PPLS) {
            return Ok(None);
        }
        if level != Level::Raid5 {
            return Err(source.corrupt("it has a partial parity log and is not of RAID5"));
        }
        let what = "the partial parity log";
        let field = raw.bitmap_offset.get();
        let offset = self
            .near(i64::from(field as u16 as i16))
            .ok_or_else(|| source.corrupt(format!("{what} lies before the device")))?;
        let area = Area { offset, bytes: u64::from(field >> 16) * SECTOR };
        if area.bytes < SMALLEST_PPL_BYTES {
            return Err(source.corrupt(format!("{what} is {} bytes", area.bytes)));
        }
        // As Linux does, whichever feature is set: mdadm sets that of a single record, whatever the size.
        let multiple = area.bytes >= TWO_RECORDS_BYTES;
        Ok(Some(PplArea { area: self.check(area, what, source)?, multiple }))
    }
}

fn role(number: u16) -> Option<DeviceRole> {
    Some(match number {
        0..=ROLE_MAX => DeviceRole::Active(number.into()),
        ROLE_JOURNAL => DeviceRole::Journal,
        ROLE_FAULTY => DeviceRole::Faulty,
        ROLE_SPARE => DeviceRole::Spare,
        _ => return None,
    })
}

fn role_number(role: DeviceRole) -> u16 {
    match role {
        DeviceRole::Active(role) => role as u16,
        DeviceRole::Journal => ROLE_JOURNAL,
        DeviceRole::Faulty => ROLE_FAULTY,
        DeviceRole::Spare => ROLE_SPARE,
    }
}

/// A superblock that was put together field by field, with its table of roles: validated like one that was read.
///
/// # Errors
/// When it does not make sense.
pub(crate) fn from_fields(
    mut raw: RawSuperblock,
    roles: &[DeviceRole],
    version: Version,
    device_bytes: u64,
    member: &str,
) -> Result<Superblock> {
    let mut block = vec![0; SUPERBLOCK_BYTES];
    let source = Source { member, structure: "md superblock", offset: raw.super_offset.get() * SECTOR };
    if roles.len() > MAX_DEVICES {
        return Err(source.unsupported(format!("an array of {} devices", roles.len())));
    }
    raw.magic = U32::new(MAGIC);
    raw.major_version = U32::new(1);
    raw.max_dev = U32::new(roles.len() as u32);
    raw.sb_csum = U32::new(0);
    for (entry, role) in block[FIXED_BYTES..].chunks_exact_mut(2).zip(roles) {
        entry.copy_from_slice(&role_number(*role).to_le_bytes());
    }
    block[..FIXED_BYTES].copy_from_slice(raw.as_bytes());
    raw.sb_csum = U32::new(checksum(&block[..FIXED_BYTES + 2 * roles.len()]));
    block[..FIXED_BYTES].copy_from_slice(raw.as_bytes());
    Superblock::decode_v1(&block, version, device_bytes, source)
}

/// Where the superblock in this block says that it lies.
pub(super) fn says_offset(block: &[u8]) -> Option<u64> {
    let (raw, _) = RawSuperblock::read_from_prefix(block).ok()?;
    raw.super_offset.get().checked_mul(SECTOR)
}

/// The table of roles of a superblock that may make no sense, as far as it can be read.
pub(crate) fn table_of_roles(block: &[u8], max_dev: u32) -> Vec<DeviceRole> {
    let table = block.get(FIXED_BYTES..).unwrap_or_default();
    let entries = table.chunks_exact(2).take(max_dev as usize);
    entries.map(|entry| role(u16::from_le_bytes([entry[0], entry[1]])).unwrap_or(DeviceRole::Spare)).collect()
}

/// What the checksum should be.
pub(crate) fn expected_checksum(block: &[u8], max_dev: u32) -> u32 {
    checksum(&block[..(FIXED_BYTES + 2 * (max_dev as usize).min(MAX_DEVICES)).min(block.len())])
}
