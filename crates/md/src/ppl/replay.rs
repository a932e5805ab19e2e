//! Making the parity of an unclean array right from its logs.
//!
//! For each entry of the last record of each member: partial parity and all data that was written, as it is found, give
//! the new parity. An entry whose data lies on a member that is missing is left alone: its parity is as good as it
//! gets. So are rows whose data, or parity, is on a member's list of bad blocks: what lies there is not what was
//! written. When all parity is durable the logs are emptied. Replaying twice equals replaying once, so a crash within
//! is mended by the next replay. Called by the array as it opens, alone, so it takes no locks.
//!
//! Source: the comments of `drivers/md/raid5-ppl.c` on recovery; logs that Linux left after power cuts.

use std::ops::Range;
use std::sync::Arc;

use uuid::Uuid;

use super::raw::{self, Entry, HEADER_BYTES, Header};
use crate::layout::ParityMap;
use crate::member::{Lineup, Member, Role};
use crate::superblock::PplArea;
use crate::{Geometry, Result, parity};

/// Unit of what is read and written where everything is aligned to it, which it always is in our own logs.
const BLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// The log of one member that takes part.
#[derive(Clone, Debug)]
pub(crate) struct MemberLog {
    pub(crate) role: Role,
    pub(crate) member: Arc<Member>,
    pub(crate) area: PplArea,
}

/// What a replay found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Entries whose parity is right now, or was left alone because data is missing.
    pub(crate) entries: u64,
    /// Logs without a record of this array, and entries that make no sense: the parity of some rows may not match.
    pub(crate) mismatches: u64,
}

impl Replayed {
    /// Whether the parity of every row matches, so that no resync is needed.
    pub(crate) fn is_consistent(&self) -> bool {
        self.mismatches == 0
    }
}

/// Replays and empties the logs of an array that was not stopped cleanly. `is_bad`: whether any byte of a range of a
/// member's data area is on its list of bad blocks.
///
/// # Errors
/// When a member fails. Nothing is lost: the logs are as they were.
pub(crate) fn replay(
    geometry: &Geometry,
    lineup: &Lineup,
    logs: &[MemberLog],
    array_uuid: Uuid,
    is_bad: &dyn Fn(&Member, Range<u64>) -> bool,
) -> Result<Replayed> {
    let replay =
        Replay { map: ParityMap::new(geometry), array_bytes: geometry.array_bytes(), lineup, is_bad };
    let mut replayed = Replayed::default();
    for log in logs {
        let Some((header, offset)) = last_record(log, array_uuid)? else {
            replayed.mismatches += 1;
            continue;
        };
        let mut at = offset + HEADER_BYTES as u64;
        for entry in &header.entries {
            // Within the log: the record was found to fit.
            let mut partial = vec![0; entry.parity_bytes as usize];
            log.member.device().read_at(at, &mut partial)?;
            at += entry.parity_bytes;
            if crc32c::crc32c(&partial) == entry.checksum && replay.entry(log, entry, &partial)? {
                replayed.entries += 1;
            } else {
                replayed.mismatches += 1;
            }
        }
    }
    for log in logs {
        log.member.flush()?;
    }
    empty(logs, array_uuid)?;
    Ok(replayed)
}

/// Empties the logs, which is also what an array does that was stopped cleanly, before it logs anything.
///
/// # Errors
/// When a member fails.
pub(crate) fn empty(logs: &[MemberLog], array_uuid: Uuid) -> Result<()> {
    for log in logs {
        super::format(&**log.member.device(), log.area.area, array_uuid)?;
    }
    for log in logs {
        log.member.flush()?;
    }
    Ok(())
}

/// The record that was written last, and where it begins on the device. Records follow each other from the log's
/// beginning, by rising generation; behind the last one there is garbage, or an older one.
pub(super) fn last_record(log: &MemberLog, array_uuid: Uuid) -> Result<Option<(Header, u64)>> {
    let (signature, area) = (raw::signature(array_uuid), log.area.area);
    let mut last: Option<(Header, u64)> = None;
    let mut at = 0;
    let mut bytes = [0; HEADER_BYTES];
    while at + (HEADER_BYTES as u64) < area.bytes {
        log.member.device().read_at(area.offset + at, &mut bytes)?;
        let Some(header) = Header::decode(&bytes, signature) else { break };
        let len = header.record_bytes();
        let is_older = last.as_ref().is_some_and(|(last, _)| last.generation > header.generation);
        if is_older || at + len > area.bytes {
            break;
        }
        last = Some((header, area.offset + at));
        at += len;
    }
    Ok(last)
}

struct Replay<'a> {
    map: ParityMap,
    array_bytes: u64,
    lineup: &'a Lineup,
    is_bad: &'a dyn Fn(&Member, Range<u64>) -> bool,
}

/// Which rows of which chunks an entry tells of, in bytes of the array.
struct Rows {
    first: u64,
    /// All data lies before this.
    end: u64,
    /// Rows of one chunk.
    strip: u64,
    chunks: u64,
}

impl Replay<'_> {
    fn rows(&self, entry: &Entry) -> Option<Rows> {
        let chunk = self.map.chunk_bytes();
        let all = u64::from(self.map.data_members());
        let (first, parity, data) = (entry.array_offset, entry.parity_bytes, entry.data_bytes);
        let aligned = [first, parity, data].iter().all(|bytes| bytes.is_multiple_of(SECTOR_BYTES));
        if !aligned || parity > chunk || data == 0 || data > all * chunk {
            return None;
        }
        let rows = if parity == chunk {
            Rows { first, end: first.checked_add(data)?, strip: chunk, chunks: all }
        } else {
            let strip = if parity > 0 { parity } else { data / all };
            let chunks = data.checked_div(strip)?;
            if data != strip * chunks || chunks > all || strip > chunk {
                return None;
            }
            Rows { first, end: first.checked_add((chunks - 1) * chunk + strip)?, strip, chunks }
        };
        (rows.end <= self.array_bytes && rows.strip.is_multiple_of(SECTOR_BYTES)).then_some(rows)
    }

    /// Makes the parity right that an entry tells of. Returns whether the entry makes sense.
    fn entry(&self, log: &MemberLog, entry: &Entry, partial: &[u8]) -> Result<bool> {
        let Some(rows) = self.rows(entry) else { return Ok(false) };
        if entry.parity_role != log.role.0 || !self.is_one_stripe(log.role, &rows) {
            return Ok(false);
        }
        let is_aligned =
            [rows.first, rows.end, rows.strip].iter().all(|bytes| bytes.is_multiple_of(BLOCK_BYTES));
        let block = if is_aligned { BLOCK_BYTES } else { SECTOR_BYTES };
        let (mut parity, mut data) = (vec![0; block as usize], vec![0; block as usize]);
        for row in (0..rows.strip).step_by(block as usize) {
            match partial.get(row as usize..(row + block) as usize) {
                Some(partial) => parity.copy_from_slice(partial),
                None => parity.fill(0),
            }
            if self.add_data(&rows, row, &mut parity, &mut data)? {
                let offset = self.map.locate(rows.first + row).member_offset;
                if !(self.is_bad)(&log.member, offset..offset + block) {
                    log.member.write_at(offset, &parity)?;
                }
                if let Some(replacement) = self.lineup.replacement(log.role) {
                    replacement.write_at(offset, &parity)?;
                }
            }
        }
        Ok(true)
    }

    /// The offsets in the array of what was written in this row, one for each chunk.
    fn written<'a>(&self, rows: &'a Rows, row: u64) -> impl Iterator<Item = u64> + use<'a> {
        let chunk = self.map.chunk_bytes();
        (0..rows.chunks)
            .map(move |index| rows.first + row + index * chunk)
            .filter(|&offset| offset < rows.end)
    }

    /// No row leads into another stripe, and the parity of all lies where the log does.
    fn is_one_stripe(&self, role: Role, rows: &Rows) -> bool {
        let stripe = self.map.locate(rows.first).stripe;
        self.map.p_role(stripe) == role
            && (0..rows.strip)
                .step_by(SECTOR_BYTES as usize)
                .flat_map(|row| self.written(rows, row))
                .all(|offset| self.map.locate(offset).stripe == stripe)
    }

    /// Adds all that was written in this row. Returns whether all of it is there.
    fn add_data(&self, rows: &Rows, row: u64, parity: &mut [u8], data: &mut [u8]) -> Result<bool> {
        let mut is_any = false;
        for offset in self.written(rows, row) {
            let place = self.map.locate(offset);
            let (role, at) = (place.role, place.member_offset);
            let len = data.len() as u64;
            let Some(member) = self.lineup.readable(role, at, len) else { return Ok(false) };
            if (self.is_bad)(member, at..at + len) {
                return Ok(false);
            }
            member.read_at(at, data)?;
            parity::xor_into(parity, data);
            is_any = true;
        }
        Ok(is_any)
    }
}
