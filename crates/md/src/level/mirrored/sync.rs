//! Background work: comparing copies, making them equal, and filling members that are being rebuilt.
//!
//! A step takes its range of the array, so that no thread writes there, and reads go on. Comparing goes through the array;
//! the first copy that can be read counts as right, as in Linux, and what differs from it is counted in the units of
//! Linux's own requests: 64 KiB, cut at chunks in RAID10. Copies that cannot be read are written again, also when it
//! was only asked to compare. Recovery goes through the members' data areas.

use std::ops::Range;
use std::sync::Arc;

use undercroft_block::Request;

use super::read::Rewritten;
use super::{BLOCK_BYTES, Mirrored, SECTOR_BYTES, pieces};
use crate::level::batch::Batches;
use crate::level::{SyncStep, SyncWork};
use crate::member::{Lineup, Member, Role};
use crate::{Error, Result};

/// What a step does at most: few requests to each member, and no thread waits long for the range.
const STEP_BYTES: u64 = 1 << 20;
/// How Linux counts what differs.
const UNIT_BYTES: u64 = 64 << 10;

/// What was found of one copy in one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// No member, or not written so far.
    None,
    /// Not read, because the member's list says that there are bad blocks.
    Bad,
    /// It could not be read.
    Unreadable,
    Read,
}

/// A part of a run that is compared at once.
#[derive(Debug)]
struct Unit {
    offset: u64,
    len: u64,
    /// By copy.
    found: Vec<Found>,
}

impl Mirrored {
    /// One step of comparing, and of making equal if `work` says so.
    pub(super) fn compare(&self, position: u64, len: u64, work: SyncWork) -> Result<SyncStep> {
        let end = position.saturating_add(len.min(STEP_BYTES)).min(self.map.array_bytes());
        if position >= end {
            return Ok(SyncStep { done: len, mismatched: 0 });
        }
        let _taken = self.ranges.take(position..end);
        let lineup = self.shared.lineup();
        let mut units = self.units(position..end);
        let mut copies = vec![vec![0; (end - position) as usize]; self.map.copies()];
        self.read_copies(&lineup, position, &mut units, &mut copies);
        let mut step = SyncStep { done: end - position, mismatched: 0 };
        for unit in &units {
            self.finish_unit(&lineup, position, unit, &copies, work, &mut step)?;
        }
        Ok(step)
    }

    fn units(&self, range: Range<u64>) -> Vec<Unit> {
        let mut units = Vec::new();
        let mut offset = range.start;
        while offset < range.end {
            let len = self.map.run_bytes(offset).min(UNIT_BYTES).min(range.end - offset);
            units.push(Unit { offset, len, found: vec![Found::None; self.map.copies()] });
            offset += len;
        }
        units
    }

    /// Reads all copies that are there; `copies[number]` begins at `position` of the array.
    fn read_copies(&self, lineup: &Lineup, position: u64, units: &mut [Unit], copies: &mut [Vec<u8>]) {
        let mut batches = Batches::default();
        for (number, bytes) in copies.iter_mut().enumerate() {
            let mut rest = &mut bytes[..];
            for unit in units.iter_mut() {
                let piece;
                (piece, rest) = rest.split_at_mut(unit.len as usize);
                let copy = self.map.copy(unit.offset, number);
                let Some(member) = lineup.readable(copy.role, copy.member_offset, unit.len) else { continue };
                let range = copy.member_offset..copy.member_offset + unit.len;
                if self.shared.recorder.has_bad_blocks(member, range) {
                    unit.found[number] = Found::Bad;
                    continue;
                }
                unit.found[number] = Found::Read;
                let request = Request::Read { offset: copy.member_offset, buf: piece };
                batches.push(copy.role, member, unit.offset, request);
            }
        }
        let mut again = Vec::new();
        for task in batches.run() {
            if task.outcome.is_err() {
                let (role, member) = (task.role, task.member);
                again.extend(task.into_requests().map(|(offset, _)| (offset, role, member)));
            }
        }
        // Not all that a member was asked at once need have failed.
        for (offset, role, member) in again {
            let Ok(at) = units.binary_search_by_key(&offset, |unit| unit.offset) else { continue };
            let unit = &mut units[at];
            let begin = (unit.offset - position) as usize;
            for (number, bytes) in copies.iter_mut().enumerate() {
                let copy = self.map.copy(unit.offset, number);
                let bytes = &mut bytes[begin..begin + unit.len as usize];
                if copy.role == role && member.read_at(copy.member_offset, bytes).is_err() {
                    unit.found[number] = Found::Unreadable;
                }
            }
        }
    }

    /// Counts what differs in a unit, and writes what has to be written.
    fn finish_unit(
        &self,
        lineup: &Lineup,
        position: u64,
        unit: &Unit,
        copies: &[Vec<u8>],
        work: SyncWork,
        step: &mut SyncStep,
    ) -> Result<()> {
        if work != SyncWork::Check && unit.found.contains(&Found::Bad) {
            return self.mend_by_sectors(lineup, unit);
        }
        let begin = (unit.offset - position) as usize;
        let range = begin..begin + unit.len as usize;
        let Some(first) = unit.found.iter().position(|&found| found == Found::Read) else {
            return self.heal_among_themselves(lineup, unit);
        };
        let right = &copies[first][range.clone()];
        for (number, bytes) in copies.iter().enumerate() {
            let copy = self.map.copy(unit.offset, number);
            let found = unit.found[number];
            let differs = match found {
                Found::None | Found::Bad => false,
                Found::Unreadable => true,
                Found::Read => bytes[range.clone()] != *right,
            };
            if differs {
                step.mismatched += unit.len;
            }
            if let Some(member) = lineup.member(copy.role) {
                if found == Found::Unreadable {
                    self.mend(copy.role, member, copy.member_offset, right, work)?;
                } else if work != SyncWork::Check && differs {
                    self.write_copy(copy.role, member, copy.member_offset, right)?;
                }
            }
            // A replacement was never read so far, so what it holds is unknown.
            if work != SyncWork::Check
                && let Some(replacement) = lineup.replacement(copy.role)
                && replacement.is_right(copy.member_offset, unit.len)
            {
                self.write_copy(copy.role, replacement, copy.member_offset, right)?;
            }
        }
        Ok(())
    }

    /// Makes copies equal of which some have bad blocks, each sector after the copy from which it is read, and so takes
    /// those off the lists that can be written again.
    fn mend_by_sectors(&self, lineup: &Lineup, unit: &Unit) -> Result<()> {
        let mut right = vec![0; unit.len as usize];
        // What no member can read stays as it is.
        let mut known: Vec<Range<usize>> = Vec::new();
        for (sector, len) in pieces(unit.offset, unit.len, SECTOR_BYTES) {
            let at = (sector - unit.offset) as usize;
            let bytes = at..at + len as usize;
            if self.read_block(sector, &mut right[bytes.clone()], None).is_err() {
                continue;
            }
            match known.last_mut() {
                Some(last) if last.end == bytes.start => last.end = bytes.end,
                _ => known.push(bytes),
            }
        }
        for (number, &found) in unit.found.iter().enumerate() {
            let copy = self.map.copy(unit.offset, number);
            let member = lineup.member(copy.role).filter(|_| found != Found::None);
            let replacement = lineup.replacement(copy.role);
            let replacement = replacement.filter(|new| new.is_right(copy.member_offset, unit.len));
            for target in member.into_iter().chain(replacement) {
                for bytes in &known {
                    let place = copy.member_offset + bytes.start as u64;
                    self.write_copy(copy.role, target, place, &right[bytes.clone()])?;
                }
            }
        }
        Ok(())
    }

    /// Writes the blocks that a member cannot read, and, unless it is only compared, those that differ.
    fn mend(&self, role: Role, member: &Arc<Member>, place: u64, right: &[u8], work: SyncWork) -> Result<()> {
        if !self.shared.may_heal(member) {
            return Ok(());
        }
        let mut block = [0; BLOCK_BYTES as usize];
        let mut is_corrected = false;
        let begin = place;
        for (number, right) in (0..).zip(right.chunks(BLOCK_BYTES as usize)) {
            let place = place + number * BLOCK_BYTES;
            let found = &mut block[..right.len()];
            let is_read = member.read_at(place, found).is_ok();
            if is_read && (found == right || work == SyncWork::Check) {
                continue;
            }
            match self.rewrite(role, member, place, right)? {
                Rewritten::Corrected => is_corrected |= !is_read,
                Rewritten::Bad => {}
                Rewritten::Failed => break,
            }
        }
        if is_corrected { self.shared.note_corrected(role, member, begin) } else { Ok(()) }
    }

    /// No copy could be read whole: what one can read of it heals the others.
    fn heal_among_themselves(&self, lineup: &Lineup, unit: &Unit) -> Result<()> {
        for (number, &found) in unit.found.iter().enumerate() {
            let role = self.map.copy(unit.offset, number).role;
            if found == Found::Unreadable
                && let Some(member) = lineup.member(role)
            {
                self.heal(unit.offset, unit.len, role, member, true)?;
            }
        }
        Ok(())
    }

    /// Writes to a member what it should hold.
    fn write_copy(&self, role: Role, member: &Arc<Member>, place: u64, data: &[u8]) -> Result<()> {
        let outcome = member.write_at(place, data);
        self.shared.handle_write_errors(role, member, [(place, data)], &outcome)
    }

    /// One step of filling members, and replacements, that are not recovered so far, from `position` of the members'
    /// data areas.
    pub(super) fn recover(&self, position: u64, len: u64) -> Result<SyncStep> {
        let end = position.saturating_add(len.min(STEP_BYTES)).min(self.map.member_bytes());
        if position >= end {
            return Ok(SyncStep { done: len, mismatched: 0 });
        }
        let lineup = self.shared.lineup();
        let targets: Vec<(Role, &Arc<Member>)> =
            lineup.all().filter(|(_, member)| !member.is_right(position, end - position)).collect();
        // Members of RAID1 are the same: what is read once is written to all. Those of RAID10 are not.
        let mut groups: Vec<(Role, Vec<&Arc<Member>>)> = Vec::new();
        for (role, member) in targets {
            let same = |group: &Role| *group == role || matches!(self.map, super::CopyMap::Raid1 { .. });
            match groups.iter_mut().find(|(group, _)| same(group)) {
                Some((_, members)) => members.push(member),
                None => groups.push((role, vec![member])),
            }
        }
        for (role, members) in groups {
            self.fill(&lineup, role, &members, position, end)?;
        }
        Ok(SyncStep { done: end - position, mismatched: 0 })
    }

    /// Writes to members, all of which hold the same, what a range of their data areas should hold.
    fn fill(
        &self,
        lineup: &Lineup,
        role: Role,
        members: &[&Arc<Member>],
        position: u64,
        end: u64,
    ) -> Result<()> {
        // Where the runs are: in the array, on the members, in the buffer.
        let mut runs = Vec::new();
        let mut place = position;
        while place < end {
            let (offset, run) = self.map.run_on_member(role, place);
            let len = run.min(end - place);
            runs.extend(offset.map(|offset| (offset, place, len)));
            place += len;
        }
        runs.sort_unstable();
        let _taken = self
            .ranges
            .take_all(runs.iter().map(|&(offset, _, len)| offset..offset + len).collect::<Vec<_>>());
        let mut bytes = vec![0; runs.iter().map(|&(_, _, len)| len as usize).sum()];
        let is_read =
            self.read_many(with_slices(&runs, &mut bytes).map(|(run, buf)| (run.0, buf)), true).is_ok();
        if is_read {
            let mut batches = Batches::default();
            for &member in members {
                let mut rest = &bytes[..];
                for &(offset, place, len) in &runs {
                    let data;
                    (data, rest) = rest.split_at(len as usize);
                    let role = role_of(lineup, member).unwrap_or(role);
                    batches.push(role, member, offset, Request::Write { offset: place, data });
                }
            }
            for task in batches.run() {
                self.finish_task(&task)?;
            }
            return Ok(());
        }
        for ((offset, place, _), buf) in with_slices(&runs, &mut bytes) {
            self.fill_by_blocks(lineup, role, members, (offset, place), buf)?;
        }
        Ok(())
    }

    /// The same for one run of which not everything can be read: what cannot is recorded as bad.
    fn fill_by_blocks(
        &self,
        lineup: &Lineup,
        role: Role,
        members: &[&Arc<Member>],
        (offset, place): (u64, u64),
        buf: &mut [u8],
    ) -> Result<()> {
        for (number, buf) in (0..).zip(buf.chunks_mut(BLOCK_BYTES as usize)) {
            let place = place + number * BLOCK_BYTES;
            let outcome = self.read_run(offset + number * BLOCK_BYTES, buf, true);
            for &member in members.iter().filter(|member| !member.has_failed()) {
                let Err(cause) = &outcome else {
                    self.write_copy(role_of(lineup, member).unwrap_or(role), member, place, buf)?;
                    continue;
                };
                let range = place..place + buf.len() as u64;
                if !self.shared.recorder.bad_blocks_found(member, &[range])? {
                    return Err(Error::TooFewMembers(format!(
                        "what {} is to hold cannot be read, and it cannot record that: {cause}",
                        undercroft_block::BlockDevice::name(&**member.device()),
                    )));
                }
            }
        }
        Ok(())
    }
}

/// A run: where it begins in the array and on the members, and how long it is.
type Placed = (u64, u64, u64);

/// The runs, with the parts of a buffer in which they lie one after the other.
fn with_slices<'b>(runs: &[Placed], mut bytes: &'b mut [u8]) -> impl Iterator<Item = (Placed, &'b mut [u8])> {
    runs.iter().map(move |&run| {
        let (piece, rest) = std::mem::take(&mut bytes).split_at_mut(run.2 as usize);
        bytes = rest;
        (run, piece)
    })
}

fn role_of(lineup: &Lineup, member: &Arc<Member>) -> Option<Role> {
    lineup.all().find(|(_, other)| Arc::ptr_eq(other, member)).map(|(role, _)| role)
}
