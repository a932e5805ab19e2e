//! What can be said about a new array, and what it means where nothing is said.

use uuid::Uuid;

use crate::superblock::{Refusal, Shape, Timestamp, Version, layout_number, level_number, shape};
use crate::{Error, Layout, Level, ParityLayout, Raid10Copies, Result};

/// `mdadm`'s default.
const DEFAULT_CHUNK_BYTES: u32 = 512 << 10;
/// The longest name that a superblock holds, with a zero after it.
const LONGEST_NAME: usize = 31;
/// A partial parity log cannot tell more members apart.
const MOST_PPL_MEMBERS: u32 = 64;

/// A new array.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Its level.
    pub level: Level,
    /// The layout; otherwise left-symmetric for RAID5 and RAID6, two near copies for RAID10.
    pub layout: Option<Layout>,
    /// Bytes of a chunk, where the level has them; otherwise 512 KiB.
    pub chunk_bytes: Option<u32>,
    /// The name, to which the host is put in front if there is one: `host:name`.
    pub name: String,
    /// The host that the array belongs to.
    pub host: Option<String>,
    /// The array's UUID; otherwise random.
    pub uuid: Option<Uuid>,
    /// Where superblocks lie: 1.0, 1.1 or 1.2.
    pub version: Version,
    /// Bytes to use of each member (levels with redundancy); otherwise as many as the smallest has.
    pub member_bytes: Option<u64>,
    /// Where data begins on each member; otherwise as mdadm chooses it.
    pub data_offset: Option<u64>,
    /// With a write-intent bitmap on the members.
    pub bitmap: bool,
    /// Bytes of a chunk of the bitmap, a power of two; otherwise 64 MiB, or more on a large array.
    pub bitmap_chunk_bytes: Option<u32>,
    /// With a partial parity log (RAID5).
    pub ppl: bool,
    /// The members are consistent as they are: all zero, for example.
    pub assume_clean: bool,
    /// How many of the devices, the last, are spares.
    pub spares: u32,
    /// Roles that stay empty, for members that are added later; the devices fill the others in their order.
    pub missing: Vec<u32>,
    /// When it is made, for the superblock.
    pub created: Timestamp,
}

impl CreateOptions {
    /// An array of this level, with `mdadm`'s defaults, and made now.
    #[must_use]
    pub fn new(level: Level) -> Self {
        Self {
            level,
            layout: None,
            chunk_bytes: None,
            name: String::new(),
            host: None,
            uuid: None,
            version: Version::V1_2,
            member_bytes: None,
            data_offset: None,
            bitmap: false,
            bitmap_chunk_bytes: None,
            ppl: false,
            assume_clean: false,
            spares: 0,
            missing: Vec::new(),
            created: Timestamp::now(),
        }
    }

    /// The level, layout and chunk, validated as if they came from a superblock.
    pub(super) fn shape(&self, disks: u32, members: &[String]) -> Result<Shape> {
        let invalid = |sentence: String| Err(Error::Invalid(sentence));
        if self.version == Version::V0_90 {
            return invalid("arrays with superblocks of version 0.90 are not made; take 1.0".to_owned());
        }
        let layout = self.layout.unwrap_or(match self.level {
            Level::Raid5 | Level::Raid6 => Layout::Parity(ParityLayout::LeftSymmetric),
            Level::Raid10 => Layout::Copies(Raid10Copies { near: 2, far: 1, offset: false }),
            _ => Layout::None,
        });
        let fits = matches!(
            (self.level, layout),
            (Level::Raid5 | Level::Raid6, Layout::Parity(_))
                | (Level::Raid10, Layout::Copies(_))
                | (Level::Raid0, Layout::Zones(_))
                | (Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4, Layout::None)
        );
        if !fits {
            return invalid(format!("{layout:?} is no layout of {:?}", self.level));
        }
        let has_chunks = !matches!(self.level, Level::Raid1 | Level::Linear);
        if !has_chunks && self.chunk_bytes.is_some_and(|bytes| bytes != 0) {
            return invalid(format!(
                "{:?} has no chunks, so none of {} bytes",
                self.level,
                self.chunk_bytes.unwrap_or(0)
            ));
        }
        let chunk_bytes = if has_chunks { self.chunk_bytes.unwrap_or(DEFAULT_CHUNK_BYTES) } else { 0 };
        if !chunk_bytes.is_multiple_of(512) {
            return invalid(format!("chunks of {chunk_bytes} bytes are not whole sectors"));
        }
        if self.ppl && (self.level != Level::Raid5 || disks > MOST_PPL_MEMBERS) {
            return invalid(format!(
                "a partial parity log is for RAID5 of at most {MOST_PPL_MEMBERS} members"
            ));
        }
        if self.ppl && self.bitmap {
            return invalid("a partial parity log and a bitmap exclude each other".to_owned());
        }
        if self.bitmap && matches!(self.level, Level::Linear | Level::Raid0) {
            return invalid(format!("{:?} has no redundancy, so a bitmap is of no use", self.level));
        }
        if self.spares > 0 && matches!(self.level, Level::Linear | Level::Raid0) {
            return invalid(format!("{:?} has no redundancy, so a spare is of no use", self.level));
        }
        shape(
            level_number(self.level),
            layout_number(layout),
            chunk_bytes / 512,
            disks,
            matches!(layout, Layout::Zones(_)),
        )
        .map_err(|refusal| match refusal {
            Refusal::Corrupt(detail) => Error::Invalid(format!("such an array cannot be made: {detail}")),
            Refusal::Unsupported(what) => Error::Unsupported { what, member: members.join(", ") },
        })
    }

    /// As it goes into the superblock: with the host in front where there is room, and cut to what fits.
    pub(super) fn full_name(&self) -> Vec<u8> {
        let mut name = match &self.host {
            Some(host) if !self.name.contains(':') && host.len() + 1 + self.name.len() <= LONGEST_NAME => {
                format!("{host}:{}", self.name)
            }
            _ => self.name.clone(),
        };
        while name.len() > LONGEST_NAME {
            name.pop();
        }
        name.into_bytes()
    }
}
