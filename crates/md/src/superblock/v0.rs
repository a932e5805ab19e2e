//! Version 0.90 superblocks: read only, so that old arrays can be looked at and copied.
//!
//! 4 KiB at the last multiple of 64 KiB that leaves 64 KiB to the device's end. Numbers are in the byte order of the
//! machine that made the array; little-endian is read here, big-endian refused by name.
//!
//! Source: `include/uapi/linux/raid/md_p.h`; members made by mdadm.

use std::mem::size_of;

use uuid::Uuid;
use zerocopy::byteorder::little_endian::{I32, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    Area, DeviceFlags, DeviceRole, IN_SYNC, SUPERBLOCK_BYTES, Source, Superblock, Timestamp, Version, shape,
};
use crate::{Level, Result};

const MAGIC: u32 = super::raw::MAGIC;
const DISKS: usize = 27;

/// One disk, as each superblock describes all of them.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDisk {
    number: U32,
    major: U32,
    minor: U32,
    raid_disk: U32,
    state: U32,
    reserved: [U32; 27],
}

/// Bits of a disk's state.
const FAULTY: u32 = 1;
const ACTIVE: u32 = 1 << 1;
const SYNC: u32 = 1 << 2;
/// Bit of the array's state: stopped, or idle, with its redundancy right.
const CLEAN: u32 = 1;

/// Field for field as on disk; the names are those of `md_p.h`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock090 {
    md_magic: U32,
    major_version: U32,
    minor_version: U32,
    patch_version: U32,
    gvalid_words: U32,
    set_uuid0: U32,
    ctime: U32,
    level: I32,
    /// In KiB.
    size: U32,
    nr_disks: U32,
    raid_disks: U32,
    md_minor: U32,
    not_persistent: U32,
    set_uuid: [U32; 3],
    gstate_creserved: [U32; 16],
    utime: U32,
    state: U32,
    active_disks: U32,
    working_disks: U32,
    failed_disks: U32,
    spare_disks: U32,
    sb_csum: U32,
    events_lo: U32,
    events_hi: U32,
    cp_events_lo: U32,
    cp_events_hi: U32,
    /// In sectors.
    recovery_cp: U32,
    gstate_sreserved: [U32; 20],
    layout: U32,
    /// In bytes.
    chunk_size: U32,
    root_pv: U32,
    root_block: U32,
    pstate_reserved: [U32; 60],
    disks: [RawDisk; DISKS],
    this_disk: RawDisk,
}
const _: () = assert!(size_of::<RawSuperblock090>() == SUPERBLOCK_BYTES);
const _: () = assert!(size_of::<RawDisk>() == 128);

/// Whether these are the first bytes of a version 0.90 superblock, right or not, in either byte order.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let Some(magic) = bytes.first_chunk::<4>() else { return false };
    let Some(version) = bytes.get(4..8).and_then(|bytes| bytes.first_chunk::<4>()) else { return false };
    u32::from_le_bytes(*magic) == MAGIC && u32::from_le_bytes(*version) == 0
        || u32::from_be_bytes(*magic) == MAGIC && u32::from_be_bytes(*version) == 0
}

impl Superblock {
    pub(super) fn decode_v0(block: &[u8], source: Source<'_>) -> Result<Self> {
        let (raw, _) =
            RawSuperblock090::ref_from_prefix(block).map_err(|_| source.corrupt("it is cut off"))?;
        if raw.md_magic.get() == MAGIC.swap_bytes() {
            return Err(source.unsupported("an array of version 0.90 made on a big-endian machine"));
        }
        let (found, expected) = (raw.sb_csum.get(), checksum(raw));
        if found != expected {
            return Err(source.corrupt(format!("its checksum is {found:#x}, expected {expected:#x}")));
        }
        match (raw.major_version.get(), raw.minor_version.get()) {
            (0, 90) => {}
            (0, 91) => {
                return Err(source.unsupported(
                    "an array that is changing its shape (finish the reshape with Linux first)",
                ));
            }
            (major, minor) => return Err(source.unsupported(format!("superblock version {major}.{minor}"))),
        }
        let disks = raw.raid_disks.get();
        if disks == 0 || disks as usize > DISKS {
            return Err(source.corrupt(format!("the array has {disks} devices")));
        }
        let chunk_bytes = raw.chunk_size.get();
        let shape = shape(raw.level.get(), raw.layout.get(), chunk_bytes / 512, disks, false)
            .map_err(|refusal| source.refused(refusal))?;
        let data = Area { offset: 0, bytes: source.offset };
        let size = u64::from(raw.size.get()) * 1024;
        let member_bytes = match shape.level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid1 => size,
            _ => size - size % u64::from(shape.chunk_bytes),
        };
        if !matches!(shape.level, Level::Linear | Level::Raid0) && (member_bytes == 0 || size > data.bytes) {
            return Err(source.corrupt(format!("{size} bytes are used of a data area of {}", data.bytes)));
        }
        let number = raw.this_disk.number.get();
        let mut roles: Vec<DeviceRole> = raw.disks.iter().map(role).collect();
        // A device that was added says so of itself only.
        if let Some(own) = roles.get_mut(number as usize) {
            *own = role(&raw.this_disk);
        }
        if let Some(DeviceRole::Active(role)) = roles.get(number as usize)
            && *role >= disks
        {
            return Err(source.corrupt(format!("its role is {role} of {disks}")));
        }
        Ok(Self {
            version: Version::V0_90,
            array_uuid: uuid(raw),
            name: Vec::new(),
            created: seconds(raw.ctime),
            level: shape.level,
            layout: shape.layout,
            chunk_bytes: shape.chunk_bytes,
            rounding_bytes: shape.rounding_bytes,
            raid_disks: disks,
            member_bytes,
            // There is none: made of the array's and the number, so that no two members have the same.
            device_uuid: Uuid::from_u128(uuid(raw).as_u128() ^ (u128::from(number) + 1)),
            number,
            offset: source.offset,
            data,
            recovery: None,
            is_replacement: false,
            flags: DeviceFlags::empty(),
            corrected_reads: 0,
            bad_blocks: None,
            bitmap: None,
            ppl: None,
            updated: seconds(raw.utime),
            events: wide(raw.events_hi, raw.events_lo),
            resynced: resynced(raw),
            roles,
            raw: block[..SUPERBLOCK_BYTES].to_vec(),
        })
    }
}

/// The sum of all words, but for the one that holds it.
fn checksum(raw: &RawSuperblock090) -> u32 {
    let words = raw.as_bytes().chunks_exact(4).map(|word| {
        let word = [word[0], word[1], word[2], word[3]];
        u64::from(u32::from_le_bytes(word))
    });
    let sum = words.sum::<u64>() - u64::from(raw.sb_csum.get());
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

fn wide(high: U32, low: U32) -> u64 {
    u64::from(high.get()) << 32 | u64::from(low.get())
}

fn seconds(raw: U32) -> Timestamp {
    Timestamp { seconds: raw.get().into(), microseconds: 0 }
}

/// As mdadm shows it: each word as a number.
fn uuid(raw: &RawSuperblock090) -> Uuid {
    let words = [raw.set_uuid0, raw.set_uuid[0], raw.set_uuid[1], raw.set_uuid[2]];
    Uuid::from_u128(words.iter().fold(0, |sum, word| sum << 32 | u128::from(word.get())))
}

fn role(disk: &RawDisk) -> DeviceRole {
    let state = disk.state.get();
    if state & FAULTY != 0 {
        DeviceRole::Faulty
    } else if state & (ACTIVE | SYNC) == ACTIVE | SYNC {
        DeviceRole::Active(disk.raid_disk.get())
    } else {
        DeviceRole::Spare
    }
}

fn resynced(raw: &RawSuperblock090) -> u64 {
    if raw.state.get() & CLEAN != 0 {
        return IN_SYNC;
    }
    // The mark counts only if it was written together with the rest.
    let is_current = wide(raw.events_hi, raw.events_lo) == wide(raw.cp_events_hi, raw.cp_events_lo);
    if is_current { u64::from(raw.recovery_cp.get()) * 512 } else { 0 }
}
