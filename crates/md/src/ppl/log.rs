//! The log of one member while the array runs.
//!
//! One record is under way at a time: it is written, then the stripes that it tells of are, and only when all of these
//! are durable does the next record follow, since after a crash only the last one counts. Writes that come meanwhile
//! gather in the next record and go together.
//!
//! ```text
//! gathering ──first thread that finds no record under way──▶ being written ──flush──▶ durable
//!                                                                                       │ every Logged dropped
//! next record, after a flush of all members that these stripes touched ◀────────────────┘
//! ```
//!
//! What a crash leaves: the record before, with all its stripes durable; or a torn one, none of whose stripes was
//! written; or a whole one. So what the last whole record says is all that may be half done.
//!
//! A thread holds a [`Logged`] of one log at a time and finishes its stripes before it logs again, or threads could
//! wait for each other.
//!
//! Locks: `PPL`, never held while a device is called.

use undercroft_block::Device;
use undercroft_sync::{Mutex, WaitQueue, order};
use uuid::Uuid;
use zerocopy::IntoBytes as _;
use zerocopy::byteorder::little_endian::{U32, U64};

use super::raw::{self, HEADER_BYTES, MAX_ENTRIES, RawEntry};
use crate::superblock::PplArea;
use crate::{Error, Result};

/// Where several records have room, Linux lets each have so much partial parity.
const SHARE_BYTES: usize = 128 << 10;

/// One write to part of a stripe: whole blocks of 4 KiB, the same rows of one or several data chunks that follow each
/// other in the array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEntry<'a> {
    /// First byte of the array that is written.
    pub(crate) array_offset: u64,
    /// Bytes that are written, in all chunks together.
    pub(crate) data_bytes: u32,
    /// The XOR of all data chunks that are not written, in these rows; empty if all are.
    pub(crate) partial_parity: &'a [u8],
    /// Members that will be written, as bits by role, that of the parity among them.
    pub(crate) roles: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    device: Device,
    area: PplArea,
    /// The member's role, which is that of the parity of all that is logged here.
    role: u32,
    signature: u32,
    capacity: usize,
    state: Mutex<State>,
    turn: WaitQueue,
}

#[derive(Debug)]
struct State {
    gathering: Record,
    under_way: Option<UnderWay>,
    generation: u64,
    /// Where the next record goes, from the log's beginning.
    next: u64,
    /// Members that stripes of earlier records were written to, and that were not flushed since.
    unflushed: u64,
    /// Why nothing can be logged any more.
    broken: Option<String>,
}

#[derive(Debug)]
struct Record {
    number: u64,
    entries: Vec<RawEntry>,
    /// Room for the header, then the partial parity.
    bytes: Vec<u8>,
    roles: u64,
    writes: u32,
}

#[derive(Debug)]
struct UnderWay {
    number: u64,
    roles: u64,
    /// Writes whose stripes are not finished.
    unfinished: u32,
    is_durable: bool,
}

impl Record {
    fn new(number: u64) -> Self {
        Self { number, entries: Vec::new(), bytes: vec![0; HEADER_BYTES], roles: 0, writes: 0 }
    }
}

/// Says that a write is in the log. Dropped when its stripes have been written, or cannot be.
#[derive(Debug)]
#[must_use]
pub(crate) struct Logged<'a> {
    log: &'a Log,
}

/// What a thread that waits for its record finds.
enum Turn {
    /// It is durable.
    Durable,
    /// No thread writes: the caller does, for all that are in it.
    Write(Record, u64, u64, u64),
    Broken(String),
}

impl Log {
    /// The log of the member that fills `role`; it must have been written empty, see [`format`](super::format).
    pub(crate) fn new(device: Device, area: PplArea, role: u32, array_uuid: Uuid, chunk_bytes: u32) -> Self {
        let room = area.area.bytes as usize - HEADER_BYTES;
        let capacity = if area.multiple { SHARE_BYTES.max(chunk_bytes as usize).min(room) } else { room };
        Self {
            device,
            area,
            role,
            signature: raw::signature(array_uuid),
            capacity: capacity - capacity % 4096,
            state: Mutex::new(
                &order::PPL,
                State {
                    gathering: Record::new(1),
                    under_way: None,
                    generation: 0,
                    next: 0,
                    unflushed: 0,
                    broken: None,
                },
            ),
            turn: WaitQueue::new(),
        }
    }

    /// Bytes of partial parity that one call of [`write`](Self::write) may log.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Logs what belongs to one write, all in one record, and returns when that is durable. `flush` makes members
    /// durable, as bits by role, and leaves out those that fail.
    ///
    /// # Errors
    /// When the member fails, which then has to be left out, or `flush` cannot go on. It stays so.
    pub(crate) fn write(
        &self,
        entries: &[LogEntry<'_>],
        flush: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Logged<'_>> {
        let parity_bytes: usize = entries.iter().map(|entry| entry.partial_parity.len()).sum();
        if entries.len() > MAX_ENTRIES || parity_bytes > self.capacity {
            return Err(Error::Invalid(format!(
                "{} writes with {parity_bytes} bytes of partial parity are more than the log takes at once",
                entries.len()
            )));
        }
        let checksums: Vec<u32> = entries.iter().map(|entry| crc32c::crc32c(entry.partial_parity)).collect();
        let number = self.join(entries, &checksums, parity_bytes)?;
        match self.wait_for(number) {
            Turn::Durable => {}
            Turn::Broken(cause) => return Err(Error::Invalid(cause)),
            Turn::Write(record, generation, offset, unflushed) => {
                self.lead(record, generation, offset, unflushed, flush)?;
            }
        }
        Ok(Logged { log: self })
    }

    /// Writes that wait for the next record.
    #[cfg(test)]
    pub(super) fn gathered(&self) -> u32 {
        self.state.lock().gathering.writes
    }

    /// Adds the entries to the record that is gathering, once they have room there. Returns the record's number.
    fn join(&self, entries: &[LogEntry<'_>], checksums: &[u32], parity_bytes: usize) -> Result<u64> {
        let mut joined = Ok(0);
        self.turn.wait(|| {
            let mut state = self.state.lock();
            if let Some(cause) = &state.broken {
                joined = Err(Error::Invalid(cause.clone()));
                return true;
            }
            let record = &mut state.gathering;
            let fits = record.entries.len() + entries.len() <= MAX_ENTRIES
                && record.bytes.len() - HEADER_BYTES + parity_bytes <= self.capacity;
            if !fits {
                return false;
            }
            for (entry, &checksum) in entries.iter().zip(checksums) {
                record.entries.push(RawEntry {
                    data_sector: U64::new(entry.array_offset / 512),
                    pp_size: U32::new(entry.partial_parity.len() as u32),
                    data_size: U32::new(entry.data_bytes),
                    parity_disk: U32::new(self.role),
                    checksum: U32::new(checksum),
                });
                record.bytes.extend_from_slice(entry.partial_parity);
                record.roles |= entry.roles;
            }
            record.writes += 1;
            joined = Ok(record.number);
            true
        });
        joined
    }

    fn wait_for(&self, number: u64) -> Turn {
        let mut turn = None;
        self.turn.wait(|| {
            turn = self.state.lock().turn(number, self.area);
            turn.is_some()
        });
        turn.unwrap_or(Turn::Durable)
    }

    fn lead(
        &self,
        mut record: Record,
        generation: u64,
        offset: u64,
        unflushed: u64,
        flush: &dyn Fn(u64) -> Result<()>,
    ) -> Result<()> {
        let header = raw::encode(self.signature, generation, &record.entries);
        record.bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let written = if unflushed == 0 { Ok(()) } else { flush(unflushed) };
        let written = written.and_then(|()| {
            self.device.write_at(self.area.area.offset + offset, &record.bytes)?;
            Ok(self.device.flush()?)
        });
        let mut state = self.state.lock();
        match &written {
            Ok(()) => {
                if let Some(under_way) = &mut state.under_way {
                    under_way.is_durable = true;
                }
            }
            Err(error) => {
                state.under_way = None;
                state.broken =
                    Some(format!("the partial parity log of {} failed: {error}", self.device.name()));
            }
        }
        drop(state);
        self.turn.wake_all();
        written
    }
}

impl State {
    fn turn(&mut self, number: u64, area: PplArea) -> Option<Turn> {
        if let Some(under_way) = &self.under_way {
            return (under_way.number == number && under_way.is_durable).then_some(Turn::Durable);
        }
        if let Some(cause) = &self.broken {
            return Some(Turn::Broken(cause.clone()));
        }
        let record = std::mem::replace(&mut self.gathering, Record::new(number + 1));
        debug_assert_eq!(record.number, number, "a record waits for itself only");
        self.under_way =
            Some(UnderWay { number, roles: record.roles, unfinished: record.writes, is_durable: false });
        self.generation += 1;
        let len = record.bytes.len() as u64;
        if !area.multiple || self.next + len > area.area.bytes {
            self.next = 0;
        }
        let offset = self.next;
        self.next += len;
        let unflushed = std::mem::take(&mut self.unflushed);
        Some(Turn::Write(record, self.generation, offset, unflushed))
    }
}

impl Drop for Logged<'_> {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        let Some(under_way) = &mut state.under_way else { return };
        under_way.unfinished -= 1;
        if under_way.unfinished == 0 {
            state.unflushed |= under_way.roles;
            state.under_way = None;
            drop(state);
            self.log.turn.wake_all();
        }
    }
}
