//! Superblocks: what each member says of the array, of itself and of the others.
//!
//! [`Superblock`] is validated: code that has one need not doubt its places and sizes, which lie within the device and
//! do not overlap, nor its numbers. `v1` validates and writes versions 1.0, 1.1 and 1.2, `v0` reads version 0.90, which
//! is assembled and never written. What is not understood is refused by name; bytes that mean nothing to us survive a
//! round trip. Called by assembly, by creation, and by the array, which keeps one per member and changes the fields
//! that change while it runs.

mod place;
mod raw;
mod shape;
#[cfg(test)]
mod tests;
mod v0;
mod v1;

pub(crate) use place::{Probed, found_at, place_of, probe, read};
pub(crate) use raw::{DeviceFlags, Features, MAX_DEVICES, RawSuperblock, SUPERBLOCK_BYTES, checksum};
pub(crate) use shape::{Refusal, Shape, layout_number, level_number, shape};
pub(crate) use v1::{expected_checksum, from_fields, table_of_roles};

use std::fmt;

use uuid::Uuid;

use crate::{Error, Layout, Level};

/// A point that lies beyond every other: all is in sync.
pub(crate) const IN_SYNC: u64 = u64::MAX;

/// Which kind of superblock, hence where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// The old one, near the end of the device; read only.
    V0_90,
    /// Near the end of the device.
    V1_0,
    /// At the beginning of the device.
    V1_1,
    /// 4 KiB into the device.
    V1_2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_90 => "0.90",
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
        })
    }
}

/// A time of day as superblocks keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970, 40 bits.
    pub seconds: u64,
    /// Microseconds, which most writers leave 0; 24 bits.
    pub microseconds: u32,
}

impl Timestamp {
    /// This moment, in whole seconds, as the kernel writes it.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self { seconds: since.map_or(0, |since| since.as_secs()), microseconds: 0 }
    }

    pub(crate) fn from_raw(raw: u64) -> Self {
        Self { seconds: raw & ((1 << 40) - 1), microseconds: (raw >> 40) as u32 }
    }

    pub(crate) fn to_raw(self) -> u64 {
        self.seconds & ((1 << 40) - 1) | u64::from(self.microseconds) << 40
    }
}

/// What the table of roles says of one device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceRole {
    /// It fills this role, or a part of it so far, or stands in beside the one that does.
    Active(u32),
    /// It has no role: a spare, or no member has this number.
    Spare,
    /// It failed, and its content must not be used.
    Faulty,
    /// It is a write journal.
    Journal,
}

/// A range of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Area {
    pub(crate) fn end(self) -> u64 {
        self.offset + self.bytes
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

/// Where the list of bad blocks lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBlockLog {
    pub(crate) area: Area,
    /// Its numbers count blocks of `512 << shift` bytes.
    pub(crate) shift: u8,
    /// Whether there is anything in it.
    pub(crate) in_use: bool,
}

/// Where the partial parity log lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PplArea {
    pub(crate) area: Area,
    /// Whether several records have room, and take turns.
    pub(crate) multiple: bool,
}

/// How far a member is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovery {
    /// So many bytes from the front of its data area are what its role wants.
    pub(crate) done: u64,
    /// Of what follows, it lacks only what the write-intent bitmap says.
    pub(crate) by_bitmap: bool,
}

/// What one member says; see the module. Offsets are on the device, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Superblock {
    pub(crate) version: Version,
    pub(crate) array_uuid: Uuid,
    /// `host:name`, or just the name; at most 32 bytes.
    pub(crate) name: Vec<u8>,
    pub(crate) created: Timestamp,
    pub(crate) level: Level,
    pub(crate) layout: Layout,
    /// 0 where the level has none.
    pub(crate) chunk_bytes: u32,
    /// Linear: each member counts in whole multiples of this, if not 0.
    pub(crate) rounding_bytes: u32,
    pub(crate) raid_disks: u32,
    /// Bytes used of each member's data area; 0 where they may differ (linear, RAID0).
    pub(crate) member_bytes: u64,

    pub(crate) device_uuid: Uuid,
    /// Which entry in the table of roles is this device's.
    pub(crate) number: u32,
    /// Where this superblock lies.
    pub(crate) offset: u64,
    pub(crate) data: Area,
    /// `None`: in sync, or of no role.
    pub(crate) recovery: Option<Recovery>,
    /// It stands in beside another member of its role.
    pub(crate) is_replacement: bool,
    pub(crate) flags: DeviceFlags,
    pub(crate) corrected_reads: u32,
    pub(crate) bad_blocks: Option<BadBlockLog>,
    /// Where the write-intent bitmap begins, and how far it may reach.
    pub(crate) bitmap: Option<Area>,
    pub(crate) ppl: Option<PplArea>,

    pub(crate) updated: Timestamp,
    pub(crate) events: u64,
    /// So many bytes of the sync space are known to be consistent: [`IN_SYNC`] when the array is clean, 0 while it is
    /// written to.
    pub(crate) resynced: u64,
    /// By device number.
    pub(crate) roles: Vec<DeviceRole>,

    /// As it was read: what has no field here keeps its bytes.
    raw: Vec<u8>,
}

impl Superblock {
    /// What this member says of its own role.
    pub(crate) fn role(&self) -> DeviceRole {
        self.role_of(self.number)
    }

    /// What this member says of the role of device number `number`.
    pub(crate) fn role_of(&self, number: u32) -> DeviceRole {
        self.roles.get(number as usize).copied().unwrap_or(DeviceRole::Spare)
    }

    /// Whether the array was stopped, or idle, with its redundancy right.
    pub(crate) fn is_clean(&self) -> bool {
        self.resynced == IN_SYNC
    }

    /// The name without the host that made the array.
    pub(crate) fn display_name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// The bytes as they were read or last made by [`encode`](Self::encode).
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }
}

/// Which device a structure was read from, for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) member: &'a str,
    pub(crate) structure: &'static str,
    /// First byte of the structure.
    pub(crate) offset: u64,
}

impl Source<'_> {
    pub(crate) fn corrupt(self, detail: impl Into<String>) -> Error {
        Error::Corrupt {
            structure: self.structure,
            member: self.member.to_owned(),
            offset: self.offset,
            detail: detail.into(),
        }
    }

    pub(crate) fn unsupported(self, what: impl Into<String>) -> Error {
        Error::Unsupported { what: what.into(), member: self.member.to_owned() }
    }

    pub(crate) fn refused(self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Corrupt(detail) => self.corrupt(detail),
            Refusal::Unsupported(what) => self.unsupported(what),
        }
    }
}
