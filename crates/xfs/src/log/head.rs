//! Where the log ends.
//!
//! The head is where the next record would go. Each block is stamped with the cycle in which it was written, so the
//! head is where the stamps fall by one (or to nothing, in a log that was never filled); a binary search finds that
//! place. Records under way at a crash reach the disk in any order, so what lies shortly before that place is searched
//! for older stamps, and the head moves back to the first of them, and then to the start of a record that would be cut
//! off there. This is how Linux finds it, and both must find the same.

use undercroft_vfs::Result;

use super::area::LogArea;
use super::format::{BASIC_BLOCK, MAX_IN_FLIGHT, MAX_RECORD_BYTES, RECORD_BYTES, cycle_of};
use super::record::RecordHeader;
use crate::error::corrupt;

const STRUCTURE: &str = "log";

/// The log's head before its last records are checked.
pub(super) fn find_head(area: &LogArea) -> Result<u32> {
    let last = area.blocks() - 1;
    let (first_cycle, last_cycle) = (cycle_of(&area.read_block(0)?), cycle_of(&area.read_block(last)?));
    if first_cycle == 0 {
        return Ok(0);
    }
    if last_cycle == 0 {
        return find_first_unwritten(area, last);
    }
    let blocks = area.blocks();
    let in_flight = in_flight_blocks(area).min(blocks);
    let (estimate, older) = if first_cycle == last_cycle {
        // All of the log has one stamp, but for what was under way.
        (blocks, last_cycle.wrapping_sub(1))
    } else {
        (find_cycle(area, 0, last, last_cycle)?, last_cycle)
    };
    let mut head = estimate;
    if let Some(start) = head.checked_sub(in_flight) {
        if let Some(hole) = find_stamp(area, start, in_flight, older)? {
            head = hole;
        }
    } else {
        let before_end = in_flight - head;
        if let Some(hole) = find_stamp(area, blocks - before_end, before_end, older.wrapping_sub(1))? {
            head = hole;
        } else if let Some(hole) = find_stamp(area, 0, head, older)? {
            head = hole;
        }
    }
    let head = leave_cut_off_record(area, head)?;
    Ok(if head == blocks { 0 } else { head })
}

/// Basic blocks of the largest record.
fn largest_record_blocks(area: &LogArea) -> u32 {
    (if area.version_2 { MAX_RECORD_BYTES } else { RECORD_BYTES }) / BASIC_BLOCK as u32
}

/// Basic blocks that may be under way at once.
pub(super) fn in_flight_blocks(area: &LogArea) -> u32 {
    largest_record_blocks(area) * MAX_IN_FLIGHT
}

/// The head of a log that was never filled.
fn find_first_unwritten(area: &LogArea, last: u32) -> Result<u32> {
    let mut head = find_cycle(area, 0, last, 0)?;
    let scan = in_flight_blocks(area).min(head);
    let start = head - scan;
    if let Some(hole) = find_stamp(area, start, scan, 0)? {
        head = hole;
    }
    match cut_off_record(area, start, head, 0)? {
        Search::Whole => Ok(head),
        Search::CutOffAt(block) => Ok(block),
        Search::NoRecord => Err(no_record(start, head)),
    }
}

/// The first block with this stamp, as far as a binary search finds it: block `first` has another one, `last` has it.
fn find_cycle(area: &LogArea, mut first: u32, mut last: u32, cycle: u32) -> Result<u32> {
    while last - first > 1 {
        let middle = first + (last - first) / 2;
        if cycle_of(&area.read_block(middle)?) == cycle {
            last = middle;
        } else {
            first = middle;
        }
    }
    Ok(last)
}

fn find_stamp(area: &LogArea, start: u32, count: u32, cycle: u32) -> Result<Option<u32>> {
    area.find_forward(start, count, |block| cycle_of(block) == cycle)
}

/// The head, or the start of the record that reaches past it.
fn leave_cut_off_record(area: &LogArea, head: u32) -> Result<u32> {
    let blocks = area.blocks();
    let scan = largest_record_blocks(area);
    if let Some(start) = head.checked_sub(scan) {
        return match cut_off_record(area, start, head, 0)? {
            Search::Whole => Ok(head),
            Search::CutOffAt(block) => Ok(block),
            Search::NoRecord => Err(no_record(start, head)),
        };
    }
    match cut_off_record(area, 0, head, 0)? {
        Search::Whole => return Ok(head),
        Search::CutOffAt(block) => return Ok(block),
        Search::NoRecord => {}
    }
    // The record before the head began at the end of the ring.
    let start = blocks.saturating_sub(scan - head);
    match cut_off_record(area, start, blocks, head)? {
        Search::Whole => Ok(head),
        Search::CutOffAt(block) => Ok(block),
        Search::NoRecord => Err(no_record(start, blocks)),
    }
}

fn no_record(start: u32, end: u32) -> undercroft_vfs::Error {
    corrupt(STRUCTURE, format!("no record begins in blocks {start} to {end}, before its head"))
}

enum Search {
    /// A record ends where it should.
    Whole,
    /// A record begins here and does not end there.
    CutOffAt(u32),
    NoRecord,
}

/// Looks at the last record that begins in `start..end`, which should end at `end`, or `beyond` blocks further on at the
/// ring's start.
fn cut_off_record(area: &LogArea, start: u32, end: u32, beyond: u32) -> Result<Search> {
    let Some((block, bytes)) = area.find_record_backward(start, end)? else { return Ok(Search::NoRecord) };
    let header = RecordHeader::of(&bytes);
    header
        .check_owner(area)
        .map_err(|what| corrupt(STRUCTURE, format!("the record in block {block} {what}")))?;
    let expected = u64::from(end - block) + u64::from(beyond);
    let blocks = u64::from(header.data_blocks()) + u64::from(header.header_blocks(area));
    Ok(if blocks == expected { Search::Whole } else { Search::CutOffAt(block) })
}
