//! Where the copies are: the one difference between RAID1 and RAID10.

use crate::layout::{Copy, Raid10Map};
use crate::member::Role;
use crate::{Geometry, Level};

/// Neighbouring reads of RAID1 go to the same member up to this size, so that a member that reads ahead may do so.
const BALANCE_BYTES: u64 = 128 << 10;

/// Where the copies of a byte are.
#[derive(Debug)]
pub(super) enum CopyMap {
    /// All members are the same.
    Raid1 {
        members: usize,
        bytes: u64,
    },
    Raid10(Raid10Map),
}

impl CopyMap {
    pub(super) fn new(geometry: &Geometry) -> Self {
        if geometry.level == Level::Raid10 {
            return Self::Raid10(Raid10Map::new(geometry));
        }
        Self::Raid1 { members: geometry.members as usize, bytes: geometry.array_bytes() }
    }

    /// Bytes of the array.
    pub(super) fn array_bytes(&self) -> u64 {
        match self {
            Self::Raid1 { bytes, .. } => *bytes,
            Self::Raid10(map) => map.array_bytes(),
        }
    }

    /// Copies of each byte.
    pub(super) fn copies(&self) -> usize {
        match self {
            Self::Raid1 { members, .. } => *members,
            Self::Raid10(map) => map.copies(),
        }
    }

    /// Bytes from `offset` on that lie without a gap in each copy.
    pub(super) fn run_bytes(&self, offset: u64) -> u64 {
        match self {
            Self::Raid1 { bytes, .. } => bytes - offset,
            Self::Raid10(map) => map.run_bytes(offset),
        }
    }

    pub(super) fn copy(&self, offset: u64, number: usize) -> Copy {
        match self {
            Self::Raid1 { .. } => Copy { role: Role(number as u32), member_offset: offset },
            Self::Raid10(map) => map.copy(offset, number),
        }
    }

    /// The copy that is read if all are as good, so chosen that reads spread over the members without a counter.
    pub(super) fn preferred(&self, offset: u64) -> usize {
        match self {
            Self::Raid1 { members, .. } => (offset / BALANCE_BYTES) as usize % members,
            Self::Raid10(map) => map.preferred_copy(offset),
        }
    }

    /// Bytes of each member's data area that recovery goes through.
    pub(super) fn member_bytes(&self) -> u64 {
        match self {
            Self::Raid1 { bytes, .. } => *bytes,
            Self::Raid10(map) => map.used_member_bytes(),
        }
    }

    /// The run of the array that lies at a place of a member's data area: where it begins, if anything of the array is
    /// there, and how far it goes on.
    pub(super) fn run_on_member(&self, role: Role, member_offset: u64) -> (Option<u64>, u64) {
        match self {
            Self::Raid1 { bytes, .. } => (Some(member_offset), bytes - member_offset),
            Self::Raid10(map) => match map.array_offset(role, member_offset) {
                Some(offset) => (Some(offset), map.run_bytes(offset)),
                None => (None, map.chunk_bytes() - member_offset % map.chunk_bytes()),
            },
        }
    }
}
