//! The bytes of a write-intent bitmap: a superblock of 256 bytes, then one bit for each chunk of the sync space.
//!
//! The same on every member. A set bit says that members may differ in that chunk. All numbers are little-endian; bit
//! 0 of a byte comes first.
//!
//! Source: the comments of `drivers/md/md-bitmap.h`; members made by mdadm.

use std::mem::size_of;

use uuid::Uuid;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Result;
use crate::superblock::Source;

pub(crate) const MAGIC: u32 = 0x6d74_6962;
pub(crate) const HEADER_BYTES: usize = size_of::<RawBitmapSuperblock>();
/// Version whose bits are little-endian on every machine.
const VERSION: u32 = 4;
const VERSION_HOST_ENDIAN: u32 = 3;
const VERSION_CLUSTERED: u32 = 5;
const VERSION_LOCKLESS: u32 = 6;

/// Bit of `state`: the bits are not valid.
pub(crate) const STALE: u32 = 1 << 1;

/// No bitmap has more chunks: its bits then fill the space that mdadm gives it at most, many times over.
const MOST_CHUNKS: u64 = 1 << 25;

/// Field for field as on disk; the names are those of `md-bitmap.h`.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawBitmapSuperblock {
    pub(crate) magic: U32,
    pub(crate) version: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) events: U64,
    pub(crate) events_cleared: U64,
    /// In sectors.
    pub(crate) sync_size: U64,
    pub(crate) state: U32,
    /// In bytes.
    pub(crate) chunksize: U32,
    /// In seconds.
    pub(crate) daemon_sleep: U32,
    pub(crate) write_behind: U32,
    pub(crate) sectors_reserved: U32,
    pub(crate) nodes: U32,
    pub(crate) cluster_name: [u8; 64],
    pub(crate) pad: [u8; 120],
}
const _: () = assert!(size_of::<RawBitmapSuperblock>() == 256);

/// What a bitmap says of itself, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitmapHeader {
    pub(crate) array_uuid: Uuid,
    /// The array's event count when it was last written.
    pub(crate) events: u64,
    /// The array's event count when a bit was last cleared: a member that left the array after that lacks nothing but
    /// what the bits say.
    pub(crate) events_cleared: u64,
    /// Bytes that the bits stand for.
    pub(crate) sync_bytes: u64,
    pub(crate) chunk_bytes: u64,
    /// How long a bit stays set after the last write, at least.
    pub(crate) delay_seconds: u32,
    pub(crate) state: u32,
}

impl BitmapHeader {
    /// Validates the bytes that a bitmap begins with; `room` is how far it may reach.
    pub(crate) fn decode(bytes: &[u8], room: u64, source: Source<'_>) -> Result<Self> {
        let (raw, _) =
            RawBitmapSuperblock::read_from_prefix(bytes).map_err(|_| source.corrupt("it is cut off"))?;
        if raw.magic.get() != MAGIC {
            return Err(
                source.corrupt(format!("its magic number is {:#x}, expected {MAGIC:#x}", raw.magic.get()))
            );
        }
        match raw.version.get() {
            VERSION => {}
            VERSION_HOST_ENDIAN => {
                return Err(source.unsupported("a bitmap in the byte order of another machine"));
            }
            VERSION_CLUSTERED => return Err(source.unsupported("the bitmap of a cluster")),
            VERSION_LOCKLESS => return Err(source.unsupported("a lockless bitmap")),
            other => return Err(source.unsupported(format!("version {other} of the bitmap"))),
        }
        if raw.nodes.get() != 0 {
            return Err(source.unsupported("the bitmap of a cluster"));
        }
        let chunk_bytes = u64::from(raw.chunksize.get());
        if chunk_bytes < 512 || !chunk_bytes.is_power_of_two() {
            return Err(source.corrupt(format!("its chunks are of {chunk_bytes} bytes")));
        }
        let sectors = raw.sync_size.get();
        let sync_bytes = sectors.checked_mul(512).filter(|&bytes| bytes > 0 && bytes <= i64::MAX as u64);
        let sync_bytes = sync_bytes.ok_or_else(|| source.corrupt(format!("it covers {sectors} sectors")))?;
        let header = Self {
            array_uuid: Uuid::from_bytes(raw.uuid),
            events: raw.events.get(),
            events_cleared: raw.events_cleared.get(),
            sync_bytes,
            chunk_bytes,
            delay_seconds: raw.daemon_sleep.get(),
            state: raw.state.get(),
        };
        let (chunks, needed) = (header.chunks(), header.bytes());
        if chunks > MOST_CHUNKS || needed > room {
            return Err(
                source.corrupt(format!("its {chunks} bits do not fit into the {room} bytes that it has"))
            );
        }
        Ok(header)
    }

    /// Whether its bits cannot be believed: it was not written together with superblocks of so many events, or says so
    /// itself.
    pub(crate) fn is_stale(&self, array_events: u64) -> bool {
        self.state & STALE != 0 || self.events < array_events
    }

    /// Number of bits.
    pub(crate) fn chunks(&self) -> u64 {
        self.sync_bytes.div_ceil(self.chunk_bytes)
    }

    /// Length of all, whole sectors.
    pub(crate) fn bytes(&self) -> u64 {
        (HEADER_BYTES as u64 + self.chunks().div_ceil(8)).next_multiple_of(512)
    }

    /// The bytes that a bitmap begins with. What has no field here is zero.
    pub(crate) fn encode(&self) -> RawBitmapSuperblock {
        RawBitmapSuperblock {
            magic: U32::new(MAGIC),
            version: U32::new(VERSION),
            uuid: self.array_uuid.into_bytes(),
            events: U64::new(self.events),
            events_cleared: U64::new(self.events_cleared),
            sync_size: U64::new(self.sync_bytes / 512),
            state: U32::new(self.state),
            chunksize: U32::new(self.chunk_bytes as u32),
            daemon_sleep: U32::new(self.delay_seconds),
            write_behind: U32::new(0),
            sectors_reserved: U32::new(0),
            nodes: U32::new(0),
            cluster_name: [0; 64],
            pad: [0; 120],
        }
    }
}
