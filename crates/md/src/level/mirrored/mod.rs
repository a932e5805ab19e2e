//! RAID1 and RAID10: each byte in several copies.
//!
//! A read goes to one copy, chosen by its place; if that cannot be read, to the others, and what could not be read is
//! written again (`read`). A write goes to all copies and replacements, also to members that are being rebuilt
//! (`write`); what a member does not take is recorded, and the write succeeds if all of it can be read. Background work
//! compares and copies (`sync`). Which copies there are says `map`; that copies of a byte are written in one order, and
//! not while they are compared, see to `ranges`.
//!
//! Bad blocks, which a member's list names, are not read; writing them takes them off the list.

mod map;
mod ranges;
mod read;
mod sync;
mod write;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use undercroft_block::Request;

use self::map::CopyMap;
use self::ranges::Ranges;
use super::write_errors::BLOCK_BYTES;
use super::{Personality, Shared, SyncStep, SyncWork};
use crate::member::{Lineup, Member, Role};
use crate::{Error, Result};

/// What a member may lack of a block, it lacks in units of this.
const SECTOR_BYTES: u64 = 512;

/// A RAID1 or RAID10 at work.
#[derive(Debug)]
pub(crate) struct Mirrored {
    shared: Arc<Shared>,
    map: CopyMap,
    ranges: Ranges,
}

/// A copy that is there.
#[derive(Clone, Copy, Debug)]
struct Present<'m> {
    role: Role,
    member: &'m Arc<Member>,
    member_offset: u64,
}

impl Mirrored {
    /// The level of a checked geometry of one of these two.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let map = CopyMap::new(&shared.geometry);
        Self { shared, map, ranges: Ranges::new() }
    }

    /// The copies of a range within a run that may be read, the one to be read first in front, some of them twice. Where copies may differ
    /// and blocks are bad, sectors have copies of their own and longer ranges have none: however a byte is read, and
    /// when copies are made equal, it comes from the same copy.
    fn readable<'m>(
        &self,
        lineup: &'m Lineup,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = Present<'m>> + use<'m, '_> {
        let copies = self.map.copies();
        let is_resynced = self.shared.is_resynced(offset, len);
        // Copies that may differ are all read from the first, so that what was read once stays so.
        let first = if is_resynced { self.map.preferred(offset) } else { 0 };
        let present = move |number| {
            let copy = self.map.copy(offset, (first + number) % copies);
            let member = lineup.readable(copy.role, copy.member_offset, len)?;
            Some(Present { role: copy.role, member, member_offset: copy.member_offset })
        };
        let is_good = move |present: &Present<'_>| {
            let range = present.member_offset..present.member_offset + len;
            !self.shared.recorder.has_bad_blocks(present.member, range)
        };
        let is_one_sector = offset % SECTOR_BYTES + len <= SECTOR_BYTES;
        let is_whole =
            is_resynced || is_one_sector || (0..copies).filter_map(present).all(|one| is_good(&one));
        let all = move || (0..if is_whole { copies } else { 0 }).filter_map(present).filter(is_good);
        // A member that does not answer is asked when no other is left. Copies that may differ are waited for.
        let in_time = move |present: &Present<'_>| !is_resynced || !present.member.is_late();
        all().filter(in_time).chain(all())
    }

    /// A range made of whole blocks, as far as the array goes.
    fn whole_blocks(&self, offset: u64, len: u64) -> Range<u64> {
        let begin = offset - offset % BLOCK_BYTES;
        begin..(offset + len).next_multiple_of(BLOCK_BYTES).min(self.map.array_bytes())
    }

    /// Whether a member can read each byte of a range within a run, now that it has been written.
    fn is_kept(&self, lineup: &Lineup, offset: u64, len: u64) -> bool {
        let is_readable = |offset, len| self.readable(lineup, offset, len).next().is_some();
        is_readable(offset, len)
            || pieces(offset, len, BLOCK_BYTES).all(|(offset, len)| {
                is_readable(offset, len)
                    || pieces(offset, len, SECTOR_BYTES).all(|(offset, len)| is_readable(offset, len))
            })
    }
}

/// A range, cut at the multiples of a unit.
fn pieces(offset: u64, len: u64, unit: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + len;
    let first = offset - offset % unit;
    (first..end).step_by(unit as usize).map(move |begin| {
        let start = begin.max(offset);
        (start, (begin + unit).min(end) - start)
    })
}

fn no_copy_left(offset: u64, len: u64) -> Error {
    Error::TooFewMembers(format!("no copy of bytes {offset}..{} of the array can be read", offset + len))
}

impl Personality for Mirrored {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        if buf.len() as u64 <= self.map.run_bytes(offset) {
            return self.read_run(offset, buf, false);
        }
        self.read_many([(offset, buf)].into_iter(), false)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _taken = self.ranges.take(offset..offset + data.len() as u64);
        if data.is_empty() || data.len() as u64 > self.map.run_bytes(offset) {
            return self.write_many([(offset, data)].into_iter());
        }
        self.write_run(offset, data)
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let mut taken: Vec<Range<u64>> = batch
            .iter()
            .filter(|request| matches!(request, Request::Write { .. }))
            .map(|request| request.offset()..request.offset() + request.len())
            .collect();
        if !taken.is_empty() {
            taken.sort_unstable_by_key(|range| (range.start, range.end));
            let _taken = self.ranges.take_all(taken);
            self.write_many(batch.iter().filter_map(|request| match request {
                Request::Write { offset, data } => Some((*offset, *data)),
                Request::Read { .. } => None,
            }))?;
        }
        let reads = batch.iter_mut().filter_map(|request| match request {
            Request::Read { offset, buf } => Some((*offset, &mut **buf)),
            Request::Write { .. } => None,
        });
        self.read_many(reads, false)
    }

    fn sync(&self, position: u64, len: u64, work: SyncWork) -> Result<SyncStep> {
        match work {
            SyncWork::Recover => self.recover(position, len),
            SyncWork::Resync | SyncWork::Check | SyncWork::Repair => self.compare(position, len, work),
        }
    }
}
