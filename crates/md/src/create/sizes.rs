//! How much of each device goes to what.
//!
//! Source: `super1.c` of mdadm (the space for bitmaps by size, the room for a change of shape), read for facts, and
//! confirmed by arrays that mdadm made.

use uuid::Uuid;

use super::options::CreateOptions;
use crate::bitmap::BitmapHeader;
use crate::superblock::{Shape, Version, place_of};
use crate::{Error, Geometry, Level, Result};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A superblock of version 1, and a list of bad blocks, have so much room each.
pub(super) const BLOCK_BYTES: u64 = 4 * KIB;
/// A partial parity log has so much.
pub(super) const PPL_BYTES: u64 = MIB;
/// What a superblock of version 1.0 needs at most at the end of the device.
const END_BYTES: u64 = 8 * KIB;
/// Before the data, for the data to be moved to when the shape changes.
const MOST_HEADROOM_BYTES: u64 = 128 * MIB;
const DEFAULT_BITMAP_CHUNK_BYTES: u64 = 64 * MIB;
const SMALLEST_BITMAP_CHUNK_BYTES: u64 = 4 * KIB;
/// What a bitmap's bits wait for at least before they are cleared.
const BITMAP_DELAY_SECONDS: u32 = 5;
/// RAID1 may become a level with chunks one day.
const RAID1_ROUNDING_BYTES: u64 = 64 * KIB;

/// What goes where, the same on all devices.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) data_offset: u64,
    /// Bytes used of each data area; 0 where each gives what it has.
    pub(super) member_bytes: u64,
    /// By device: what linear and RAID0 use of it.
    own_bytes: Vec<u64>,
}

/// mdadm leaves so much room for a bitmap next to the superblock of a device, or of an array that uses so much of each.
pub(super) fn bitmap_room(bytes: u64) -> u64 {
    if bytes < 64 * KIB {
        0
    } else if bytes - 64 * KIB >= 200 * GIB {
        128 * KIB
    } else if bytes - 4 * KIB > 8 * GIB {
        64 * KIB
    } else {
        4 * KIB
    }
}

fn default_data_offset(device_bytes: u64, room: u64, chunk_bytes: u64) -> u64 {
    let mut headroom = MOST_HEADROOM_BYTES;
    while headroom << 10 > device_bytes
        && headroom > 0
        && (chunk_bytes == 0 || headroom / 2 >= 2 * chunk_bytes)
    {
        headroom /= 2;
    }
    (3 * BLOCK_BYTES + room + headroom).next_multiple_of(MIB)
}

pub(super) fn sizes(
    options: &CreateOptions,
    shape: &Shape,
    device_bytes: &[u64],
    names: &[String],
    disks: usize,
) -> Result<Sizes> {
    let chunk_bytes = u64::from(shape.chunk_bytes);
    let room_on = |bytes: u64| if options.ppl { PPL_BYTES } else { bitmap_room(bytes) };
    let first = device_bytes.first().copied().unwrap_or(0);
    let data_offset = match (options.data_offset, options.version) {
        (Some(offset), _) => offset,
        (None, Version::V1_0) => 0,
        (None, _) => default_data_offset(first, room_on(first), chunk_bytes),
    };
    check_data_offset(options, data_offset, room_on(first))?;
    let unit = match shape.level {
        Level::Raid1 => RAID1_ROUNDING_BYTES,
        Level::Linear => KIB,
        _ => chunk_bytes,
    };
    let mut own_bytes = Vec::new();
    for (&bytes, name) in device_bytes.iter().zip(names) {
        let overhead = match (options.version, shape.level) {
            // Nothing is left for a bitmap.
            (Version::V1_0, Level::Linear | Level::Raid0) => {
                data_offset + BLOCK_BYTES + bytes - place_of(Version::V1_0, bytes).unwrap_or(0)
            }
            (Version::V1_0, _) => {
                data_offset + END_BYTES + BLOCK_BYTES + room_on(bytes) + bytes % BLOCK_BYTES
            }
            _ => data_offset,
        };
        let free = bytes.saturating_sub(overhead);
        let free = free - free % unit;
        if free == 0 {
            return Err(Error::Invalid(format!(
                "{name} is too small: of its {bytes} bytes {overhead} are for other things than data, and the rest is \
                 less than {unit} bytes"
            )));
        }
        own_bytes.push(free);
    }
    let smallest = own_bytes.iter().copied().min().unwrap_or(0);
    let member_bytes = match (shape.level, options.member_bytes) {
        (Level::Linear | Level::Raid0, None) => 0,
        (Level::Linear | Level::Raid0, Some(_)) => {
            return Err(Error::Invalid(format!(
                "{:?} uses all of each device: it takes no size",
                shape.level
            )));
        }
        (_, None) => smallest,
        (_, Some(wanted)) => {
            let wanted = wanted - wanted % chunk_bytes.max(KIB);
            if wanted == 0 || wanted > smallest {
                return Err(Error::Invalid(format!(
                    "{wanted} bytes cannot be used of each device: the smallest has {smallest} for data"
                )));
            }
            wanted
        }
    };
    own_bytes.truncate(disks);
    Ok(Sizes { data_offset, member_bytes, own_bytes })
}

fn check_data_offset(options: &CreateOptions, data_offset: u64, room: u64) -> Result<()> {
    let room = if options.ppl || options.bitmap { room } else { 0 };
    let least = match options.version {
        Version::V1_0 => 0,
        Version::V1_1 => 2 * BLOCK_BYTES + room,
        _ => 3 * BLOCK_BYTES + room,
    };
    if data_offset < least || !data_offset.is_multiple_of(BLOCK_BYTES) {
        return Err(Error::Invalid(format!(
            "data cannot begin in byte {data_offset} of each member: it must be a multiple of {BLOCK_BYTES}, and at \
             least {least}"
        )));
    }
    Ok(())
}

impl Sizes {
    pub(super) fn geometry(&self, shape: &Shape, disks: usize) -> Geometry {
        let member_bytes =
            if self.member_bytes == 0 { self.own_bytes.clone() } else { vec![self.member_bytes; disks] };
        Geometry {
            level: shape.level,
            layout: shape.layout,
            members: disks as u32,
            chunk_bytes: shape.chunk_bytes,
            member_bytes,
        }
    }

    /// The bitmap's chunks are as small as they may be and no smaller than asked for.
    pub(super) fn bitmap(&self, options: &CreateOptions, geometry: &Geometry) -> Result<BitmapHeader> {
        let sync_bytes = geometry.sync_bytes();
        let room = bitmap_room(self.member_bytes);
        if room == 0 {
            return Err(Error::Invalid(format!(
                "members of {} bytes have no room for a bitmap",
                self.member_bytes
            )));
        }
        let most_bits = (room - 256) * 8;
        let mut smallest = SMALLEST_BITMAP_CHUNK_BYTES;
        while sync_bytes / smallest + 1 > most_bits {
            smallest *= 2;
        }
        let chunk_bytes = match options.bitmap_chunk_bytes {
            None => smallest.max(DEFAULT_BITMAP_CHUNK_BYTES),
            Some(wanted) if u64::from(wanted) >= smallest && wanted.is_power_of_two() => wanted.into(),
            Some(wanted) => {
                return Err(Error::Invalid(format!(
                    "a bitmap cannot have chunks of {wanted} bytes: it must be a power of two, and {smallest} at least"
                )));
            }
        };
        if u32::try_from(chunk_bytes).is_err() {
            return Err(Error::Invalid("the array is too large for a bitmap".to_owned()));
        }
        Ok(BitmapHeader {
            array_uuid: Uuid::nil(),
            events: 0,
            events_cleared: 0,
            sync_bytes,
            chunk_bytes,
            delay_seconds: BITMAP_DELAY_SECONDS,
            state: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_begins_where_mdadm_has_it() {
        // With chunks of 512 KiB; the same arrays are in tests/fixtures/created.txt.
        let chunk = 512 * KIB;
        for (device_bytes, mib) in [(64 * MIB, 2), (GIB, 2), (3 * GIB, 3), (10 * GIB, 9), (1024 * GIB, 129)] {
            let room = bitmap_room(device_bytes);
            let offset = default_data_offset(device_bytes, room, chunk);
            assert_eq!(offset, mib * MIB, "{device_bytes}");
        }
        assert_eq!(default_data_offset(8 * MIB, 4 * KIB, 0), MIB);
        assert_eq!(default_data_offset(64 * MIB, PPL_BYTES, 64 * KIB), 2 * MIB);
    }
}
