//! Which part of the log must be replayed: from its tail to its head.
//!
//! The last record before the head names the tail. If it says that the filesystem was unmounted, the log is clean.
//! Otherwise the records that may have been under way at the crash are checked, eight at most: at the first that is
//! damaged the log ends. Such a record may already have overwritten records at the tail, so the tail moves past damaged
//! records there, as far as records under way may have reached. All of this is as in Linux.

use undercroft_vfs::{Error, Result};

use super::area::LogArea;
use super::format::{BASIC_BLOCK, Lsn, MAX_IN_FLIGHT, MAX_RECORD_BYTES, begins_record, flags};
use super::head::find_head;
use super::record::{Checksum, RecordHeader};
use super::walk::{Records, WalkError};
use crate::error::corrupt;

const STRUCTURE: &str = "log";

/// The part of a log that holds changes. There are none where both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnds {
    /// First block of the first record.
    pub(crate) tail: u32,
    /// The block after the last record.
    pub(crate) head: u32,
    /// First block of the last record, whose damage made the log end there.
    pub(crate) torn_at: Option<u32>,
    /// The cycle and block at which the log would go on.
    pub(crate) next: Lsn,
    /// Whether the last record says that the filesystem was unmounted.
    pub(crate) unmounted: bool,
}

impl LogEnds {
    pub(crate) fn is_clean(&self) -> bool {
        self.tail == self.head
    }

    /// Finds both ends.
    ///
    /// # Errors
    /// `Corrupt`; `Io`.
    pub(super) fn find(area: &LogArea) -> Result<Self> {
        let mut head = find_head(area)?;
        if head == 0 && super::format::cycle_of(&area.read_block(0)?) == 0 {
            return Ok(Self { tail: 0, head: 0, torn_at: None, next: Lsn(0), unmounted: false });
        }
        let last =
            last_record(area, head, head, 1)?.ok_or_else(|| corrupt(STRUCTURE, "holds no record at all"))?;
        let unmounted = last.is_unmount(area, head)?;
        let mut ends = Self { tail: head, head, torn_at: None, next: last.next(head), unmounted };
        if unmounted {
            return Ok(ends);
        }
        let mut newest = last;
        let mut tail = last.header.tail_lsn().block();
        let torn_at = first_torn(area, head, tail)?;
        if let Some(block) = torn_at {
            newest = last_record(area, block, tail, 1)?.ok_or_else(|| {
                corrupt(STRUCTURE, format!("the record in block {block} is damaged, and none precedes it"))
            })?;
            head = block;
            tail = newest.header.tail_lsn().block();
            ends = Self { tail, head, torn_at, next: newest.next(head), unmounted: false };
            if newest.is_unmount(area, head)? {
                return Ok(Self { tail: head, unmounted: true, ..ends });
            }
            if head == tail {
                return Err(corrupt(
                    STRUCTURE,
                    format!("the first of its records, in block {block}, is damaged"),
                ));
            }
        }
        ends.tail = verify_tail(area, head, tail, newest.header.record_bytes())?;
        newest.check_order(area, head)?;
        Ok(ends)
    }
}

/// A record that was found by searching backward.
#[derive(Clone, Copy)]
struct Found {
    block: u32,
    header: RecordHeader,
    /// Whether the ring's end lies between it and where the search began.
    wrapped: bool,
}

impl Found {
    /// Where a log whose head is at `head`, after this record, goes on.
    fn next(&self, head: u32) -> Lsn {
        let cycle = self.header.cycle().wrapping_add(u32::from(self.wrapped));
        Lsn(u64::from(cycle) << 32 | u64::from(head))
    }

    /// Whether the record ends at the head and holds one operation, which says that the filesystem was unmounted.
    fn is_unmount(&self, area: &LogArea, head: u32) -> Result<bool> {
        let headers = self.header.header_blocks(area);
        let Some(blocks) = headers.checked_add(self.header.data_blocks()) else { return Ok(false) };
        if blocks > area.blocks() || area.after(self.block, blocks) != head || self.header.operations() != 1 {
            return Ok(false);
        }
        let operation = area.read_block(area.after(self.block, headers))?;
        Ok(operation[9] & flags::UNMOUNT != 0)
    }

    /// Whether the ring can have its tail where the record has it.
    fn check_order(&self, area: &LogArea, head: u32) -> Result<()> {
        let (tail, next) = (self.header.tail_lsn(), self.next(head));
        let possible = if next.cycle() == tail.cycle() {
            head >= tail.block() && head < area.blocks()
        } else {
            head < tail.block() && next.cycle() == tail.cycle().wrapping_add(1)
        };
        if possible {
            return Ok(());
        }
        Err(corrupt(
            STRUCTURE,
            format!("goes on at {next}, and its last record in block {} has the tail at {tail}", self.block),
        ))
    }
}

/// The record that is the `count`th before `head`, or the furthest there is back to `tail`, going round where the tail
/// is not before the head.
fn last_record(area: &LogArea, head: u32, tail: u32, count: u32) -> Result<Option<Found>> {
    let mut found = None;
    let mut left = count;
    let ranges = [
        (if head > tail { tail } else { 0 }, head, false),
        (if tail >= head { tail } else { area.blocks() }, area.blocks(), true),
    ];
    for (start, mut end, wrapped) in ranges {
        while left > 0 && end > start {
            let Some((block, bytes)) = area.find_record_backward(start, end)? else { break };
            found = Some(Found { block, header: RecordHeader::of(&bytes), wrapped });
            end = block;
            left -= 1;
        }
    }
    Ok(found)
}

/// The `count`th block from `tail` on and before `head` that begins a record.
fn first_record(area: &LogArea, head: u32, tail: u32, count: u32) -> Result<Option<u32>> {
    let mut found = None;
    let mut left = count;
    let ranges =
        [(tail, if head > tail { head } else { area.blocks() }), (0, if tail > head { head } else { 0 })];
    for (mut start, end) in ranges {
        while left > 0 && start < end {
            let Some(block) = area.find_forward(start, end - start, begins_record)? else { break };
            found = Some(block);
            start = block + 1;
            left -= 1;
        }
    }
    Ok(if left == 0 { found } else { None })
}

/// The first damaged record among those that may have been under way.
fn first_torn(area: &LogArea, head: u32, tail: u32) -> Result<Option<u32>> {
    let Some(oldest) = last_record(area, head, tail, MAX_IN_FLIGHT)? else { return Ok(None) };
    match check_records(area, head, oldest.block) {
        Ok(()) => Ok(None),
        Err(WalkError::Bad { block, .. }) => Ok(Some(block)),
        Err(WalkError::Failed(error)) => Err(error),
    }
}

/// Reads all records up to the head and checks their checksums.
fn check_records(area: &LogArea, head: u32, from: u32) -> std::result::Result<(), WalkError> {
    let mut records = Records::new(area, from, head)?;
    while let Some(record) = records.next()? {
        let data = &record.data[..record.header.data_bytes() as usize];
        if record.header.checksum(record.headers, data) == Checksum::Wrong {
            return Err(WalkError::Bad { block: record.block, what: "has a wrong checksum".into() });
        }
    }
    Ok(())
}

/// The tail, past records that the last ones may have overwritten.
fn verify_tail(area: &LogArea, head: u32, tail: u32, record_bytes: u32) -> Result<u32> {
    if tail >= area.blocks() {
        return Err(corrupt(STRUCTURE, format!("its tail is block {tail}, and it has {}", area.blocks())));
    }
    let mut tail = first_record(area, head, tail, 1)?.unwrap_or(tail);
    loop {
        let (block, what) = match check_records(area, head, tail) {
            Ok(()) => return Ok(tail),
            Err(WalkError::Failed(error)) => return Err(error),
            Err(WalkError::Bad { block, what }) => (block, what),
        };
        let reach = reach(record_bytes);
        let from_head = area.distance(head, block);
        let next = first_record(area, head, block, 2)?
            .filter(|next| area.distance(tail, *next) > area.distance(tail, block));
        match next {
            Some(next) if from_head <= reach => tail = next,
            _ => return Err(damaged(block, &what)),
        }
    }
}

/// Blocks that records under way may have overwritten: as many as their header says, or less when it says more than
/// records ever have.
pub(super) fn reach(record_bytes: u32) -> u32 {
    MAX_IN_FLIGHT * record_bytes.min(MAX_RECORD_BYTES) / BASIC_BLOCK as u32
}

/// A damaged record where none may be.
pub(super) fn damaged(block: u32, what: &str) -> Error {
    corrupt(
        STRUCTURE,
        format!("block {block} {what}; let xfs_repair discard the log (-L), which loses what it holds"),
    )
}
