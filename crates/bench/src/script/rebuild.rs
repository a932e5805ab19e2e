//! Rebuilding a lost member, and the same bytes read and written plainly.

use std::time::Duration;

use undercroft_block::Device;
use undercroft_md::{Array, Duty};

use super::Script;
use crate::BenchError;
use crate::members::Members;
use crate::sizes::MEMBERS;

/// A rebuild that takes longer than this has gone wrong.
const TIMEOUT: Duration = Duration::from_secs(600);
/// What is read and written at once where nothing is computed.
const PLAIN_BYTES: usize = 256 << 10;

/// Fails a member and rebuilds it onto a fresh device.
pub(crate) struct Rebuild<'a> {
    array: &'a Array,
    members: Members,
    member_bytes: u64,
}

/// Reads what a rebuild reads and writes as much as it writes, with one thread and requests of a good size.
pub(crate) struct PlainRebuild {
    others: Vec<Device>,
    members: Members,
    member_bytes: u64,
    buffer: Vec<u8>,
}

impl<'a> Rebuild<'a> {
    pub(crate) const fn new(array: &'a Array, members: Members, member_bytes: u64) -> Self {
        Self { array, members, member_bytes }
    }
}

impl Script for Rebuild<'_> {
    fn step(&mut self) -> Result<(), BenchError> {
        let refused = |what| move |source| BenchError::Array { what, source };
        let members = self.array.status().members;
        let Some(lost) = members.iter().find(|member| matches!(member.duty, Duty::Active(_))) else {
            return Err(BenchError::NotRebuilt(self.array.status().state()));
        };
        self.array.fail(lost.number).map_err(refused("fail a member of"))?;
        self.array.remove(lost.number).map_err(refused("remove a member of"))?;
        self.array.add(self.members.make(self.member_bytes)?).map_err(refused("add a member to"))?;
        let is_over = self.array.wait_for_sync(TIMEOUT);
        let status = self.array.status();
        if is_over && status.degraded == 0 { Ok(()) } else { Err(BenchError::NotRebuilt(status.state())) }
    }
}

impl PlainRebuild {
    pub(crate) fn new(members: Members, member_bytes: u64) -> Result<Self, BenchError> {
        let others = (1..MEMBERS).map(|_| members.make(member_bytes)).collect::<Result<Vec<_>, _>>()?;
        let buffer = vec![1; PLAIN_BYTES];
        for device in &others {
            for begin in (0..member_bytes).step_by(PLAIN_BYTES) {
                let len = PLAIN_BYTES.min((member_bytes - begin) as usize);
                device.write_at(begin, &buffer[..len]).map_err(BenchError::Device)?;
            }
        }
        Ok(Self { others, members, member_bytes, buffer })
    }
}

impl Script for PlainRebuild {
    fn step(&mut self) -> Result<(), BenchError> {
        let new = self.members.make(self.member_bytes)?;
        for begin in (0..self.member_bytes).step_by(PLAIN_BYTES) {
            let bytes = &mut self.buffer[..PLAIN_BYTES.min((self.member_bytes - begin) as usize)];
            for device in &self.others {
                device.read_at(begin, bytes).map_err(BenchError::Device)?;
            }
            new.write_at(begin, bytes).map_err(BenchError::Device)?;
        }
        new.flush().map_err(BenchError::Device)
    }
}
