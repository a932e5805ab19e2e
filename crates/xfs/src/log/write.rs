//! Writing the log: checkpoints as records behind its head.
//!
//! A checkpoint is one transaction: its operations lie in records of its own, the last of which ends with the commit.
//! Each record is padded to the log's unit (its stripe unit, its sector), as Linux pads them. The number of a checkpoint
//! is the block at which it begins, which no other one between tail and head has: Linux and this writer may go on
//! behind a checkpoint that a crash cut short.
//!
//! What always holds:
//!
//! - a checkpoint is durable before its commit: the device is flushed before the last record is written, and again
//!   behind it;
//! - no more than [`IN_FLIGHT`] records are written without a flush between them: a recovery looks for damage in that
//!   many, and in as many bytes as those have at most;
//! - no record overwrites a block between the tail that a *durable* record names and the head, for the next recovery may
//!   begin with that record. Where the tail has moved since and its space is needed, a record that does nothing but name
//!   the new tail goes first ([`LogWriter::cover`]). As much space as that takes is kept free;
//! - where the log announces work that a crash interrupted, the first checkpoint is the one that finishes it. All of its
//!   records but the last name the tail that the log had, so that a recovery which finds the checkpoint cut short begins
//!   where the last one began and finds the same work;
//! - the blocks behind the head do not carry the head's cycle. When writing begins, those that a crash may have left so
//!   are stamped anew.
//!
//! All records between tail and head have the same maximum size (`h_size`), which decides how many header blocks each has.
//! Where the first record names itself as the tail, that size is the one that Linux chooses: a Linux that recovers this log
//! names its last record as the tail of its own first one, and reads both with one number of header blocks. Otherwise it
//! is the one that the log had.
//!
//! No locks: its owner has one.

use undercroft_block::{Device, Request};
use undercroft_vfs::Result;
use zerocopy::IntoBytes;
use zerocopy::byteorder::{LE, U16, U32, U64};

use super::area::LogArea;
use super::ends::LogEnds;
use super::format::{
    BASIC_BLOCK, CYCLE_DATA_BYTES, FORMAT_LITTLE_ENDIAN, Lsn, MAX_IN_FLIGHT, MAX_RECORD_BYTES, RECORD_BYTES,
    RECORD_CRC, RECORD_MAGIC, RawOperationHeader, RawRecordHeader, RawTransactionHeader, TRANSACTION_MAGIC,
    client, cycle_of, flags, next_cycle, pack,
};
use super::head::in_flight_blocks;
use super::record::RecordHeader;
use crate::error::corrupt;
use crate::format::Superblock;

/// Records that are written without a flush between them, at most.
const IN_FLIGHT: usize = MAX_IN_FLIGHT as usize - 1;

/// What a checkpoint's header says that it is (`XFS_TRANS_CHECKPOINT`).
const CHECKPOINT: u32 = 40;

/// What an unmount record holds (`XLOG_UNMOUNT_TYPE`).
const UNMOUNT: u64 = 0x556e;

const OPERATION_HEADER: usize = size_of::<RawOperationHeader>();

/// What the end of a record and the continuation of an operation in the next one cost, at most.
const SPLIT_BYTES: u64 = 2 * OPERATION_HEADER as u64 + 8;

/// What a checkpoint has beside its regions: start, header, and commit.
const FRAME_BYTES: u64 = 3 * OPERATION_HEADER as u64 + size_of::<RawTransactionHeader>() as u64;

/// The number of a block that does not exist.
const NO_BLOCK: u32 = u32::MAX;

/// Sizes of a log's records, in basic blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    /// Of a record, headers and data.
    record: u32,
    headers: u32,
    /// Records are multiples of it.
    unit: u32,
    /// What their headers name as their size at most, in bytes.
    named_bytes: u32,
}

impl Form {
    /// Sizes for a log; `None` where its stripe unit is larger than a record.
    fn of(superblock: &Superblock) -> Option<Self> {
        let unit = unit_of(superblock)?;
        let record = RECORD_BYTES.max(unit) / unit * unit;
        Some(Self::new(record, record, unit))
    }

    /// As the records are that the log has from `tail` on. `None` where no such record can be made.
    fn of_log(superblock: &Superblock, area: &LogArea, tail: u32) -> Result<Option<Self>> {
        let named = RecordHeader::of(&area.read_block(tail)?).record_bytes();
        let Some(unit) = unit_of(superblock).filter(|_| named <= MAX_RECORD_BYTES) else { return Ok(None) };
        let form = Self::new(named / unit * unit, named, unit);
        Ok((form.record > form.headers).then_some(form))
    }

    fn new(record: u32, named_bytes: u32, unit: u32) -> Self {
        let block = BASIC_BLOCK as u32;
        let headers = named_bytes.div_ceil(CYCLE_DATA_BYTES);
        Self { record: record / block, headers, unit: unit / block, named_bytes }
    }

    /// Bytes of data in a record.
    fn data_bytes(&self) -> usize {
        (self.record - self.headers) as usize * BASIC_BLOCK
    }

    /// Blocks of a record with so many bytes of data.
    fn blocks_with(&self, bytes: u64) -> u64 {
        (u64::from(self.headers) + bytes.div_ceil(BASIC_BLOCK as u64)).next_multiple_of(self.unit.into())
    }
}

/// What a log's records are multiples of, in bytes.
fn unit_of(superblock: &Superblock) -> Option<u32> {
    // A stripe unit of 1 stands for none.
    let unit = superblock.log_stripe_bytes().max(superblock.log_sector_bytes()).max(BASIC_BLOCK as u32);
    (unit.is_multiple_of(BASIC_BLOCK as u32) && unit <= MAX_RECORD_BYTES).then_some(unit)
}

/// Whether a log can be written.
pub(crate) fn can_write(superblock: &Superblock) -> bool {
    Form::of(superblock).is_some()
}

/// A log that is being written.
pub(crate) struct LogWriter {
    area: LogArea,
    /// The filesystem's device, where the log lies on another one.
    data: Option<Device>,
    form: Form,
    /// Where the next record goes.
    head: Lsn,
    /// The block of the last record.
    previous: u32,
    /// The first block that must stay: a recovery may begin there. The head's where the log is empty.
    durable_tail: u32,
    /// The tail that stays until the next checkpoint is durable: the log announces work that this one finishes.
    kept_tail: Option<Lsn>,
}

impl LogWriter {
    /// Begins to write past the end of a log whose changes are all in place. Where it ends in the middle of work, the
    /// first checkpoint is the one that finishes it, and until that is durable a recovery finds the log as it was.
    ///
    /// # Errors
    /// `Unsupported` for records that cannot be written; `Io`.
    pub(super) fn begin(
        area: LogArea,
        ends: &LogEnds,
        superblock: &Superblock,
        is_finished: bool,
    ) -> Result<Self> {
        let form =
            if is_finished { Form::of(superblock) } else { Form::of_log(superblock, &area, ends.tail)? };
        let Some(form) = form else {
            let bytes = superblock.log_stripe_bytes();
            let what = format!("writing to XFS with a log whose stripe unit is {bytes} bytes");
            return Err(undercroft_vfs::Error::Unsupported(what.into()));
        };
        let head = Self::head_behind(ends);
        let durable_tail = if ends.is_clean() { head.block() } else { ends.tail };
        let tail_cycle = head.cycle().wrapping_sub(u32::from(ends.tail >= head.block()));
        let kept_tail = (!is_finished).then(|| Lsn::new(tail_cycle, ends.tail));
        let mut writer = Self { area, data: None, form, head, previous: NO_BLOCK, durable_tail, kept_tail };
        writer.stamp_stale_blocks()?;
        if !ends.is_clean() {
            if writer.free_blocks() <= writer.cover_blocks() {
                return Err(corrupt("log", "is full to its last blocks; mount the filesystem once"));
            }
            if is_finished {
                writer.cover(None)?;
            }
        }
        Ok(writer)
    }

    /// The same for a filesystem on a device of its own.
    pub(super) fn beside(self, data: &Device) -> Self {
        Self { data: Some(Device::clone(data)), ..self }
    }

    /// Where the first record goes past the end of a log. A log of zeroes has no cycle yet.
    pub(super) fn head_behind(ends: &LogEnds) -> Lsn {
        if ends.next.cycle() == 0 { Lsn::new(1, ends.next.block()) } else { ends.next }
    }

    /// Basic blocks that transactions may take: a record that names a new tail fits beside them, and then the one that
    /// says that the filesystem was unmounted; and the ring is never full to its last block, for it would look empty.
    pub(crate) fn usable_blocks(&self) -> u64 {
        u64::from(self.area.blocks()).saturating_sub(3 * self.cover_blocks() + 1)
    }

    /// Basic blocks that a checkpoint takes at most with `regions` regions of `bytes` together, and the record that may
    /// have to go before it.
    pub(crate) fn blocks_for(&self, regions: u64, bytes: u64) -> u64 {
        let bytes = FRAME_BYTES + bytes + regions * OPERATION_HEADER as u64;
        let per_record = self.form.data_bytes() as u64 - SPLIT_BYTES;
        let full = bytes / per_record;
        full * u64::from(self.form.record)
            + self.form.blocks_with(bytes % per_record + SPLIT_BYTES)
            + self.cover_blocks()
    }

    /// Where the next record goes.
    pub(crate) fn head(&self) -> Lsn {
        self.head
    }

    /// Makes room for `blocks`, of which [`blocks_for`](Self::blocks_for) told: the log's changes begin at `tail`, or at
    /// the head.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn make_room(&mut self, blocks: u64, tail: Option<Lsn>) -> Result<()> {
        if self.free_blocks() <= blocks + self.cover_blocks() {
            if self.kept_tail.is_some() {
                let what = "an XFS log that ends in the middle of work and has no room to finish it: let Linux mount \
                            the filesystem once";
                return Err(undercroft_vfs::Error::Unsupported(what.into()));
            }
            self.cover(tail)?;
        }
        Ok(())
    }

    /// Writes a checkpoint and makes it durable, with everything that was written to the device before. The log's changes
    /// begin at `tail`, or with this checkpoint.
    ///
    /// # Errors
    /// `Io`, and what `regions` returns; the log is not to be written any more then.
    pub(crate) fn checkpoint(
        &mut self,
        tail: Option<Lsn>,
        items: u32,
        regions: impl FnOnce(&mut Checkpoint<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut checkpoint = Checkpoint::new(self, tail);
        let number = checkpoint.number;
        checkpoint.operation(flags::START, &[])?;
        // Linux refuses a log with a header that no item follows.
        if items > 0 {
            let header = RawTransactionHeader {
                th_magic: TRANSACTION_MAGIC.into(),
                th_type: CHECKPOINT.into(),
                th_tid: number.into(),
                th_num_items: items.into(),
            };
            checkpoint.region(header.as_bytes())?;
        }
        regions(&mut checkpoint)?;
        checkpoint.operation(flags::COMMIT, &[])?;
        checkpoint.finish()?;
        self.kept_tail = None;
        Ok(())
    }

    /// Says that the filesystem was unmounted: everything is in place, and durable on return.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn unmount(&mut self) -> Result<()> {
        let mut checkpoint = Checkpoint::new(self, None);
        checkpoint.push(client::LOG, flags::UNMOUNT, &UNMOUNT.to_le_bytes());
        checkpoint.finish()
    }

    /// Writes a transaction without changes, for the sake of the tail that its record names.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn cover(&mut self, tail: Option<Lsn>) -> Result<()> {
        let mut checkpoint = Checkpoint::new(self, tail);
        checkpoint.operation(flags::START, &[])?;
        checkpoint.operation(flags::COMMIT, &[])?;
        checkpoint.finish()
    }

    /// Makes durable what was written, to the log and to the filesystem.
    fn flush(&self) -> Result<()> {
        if let Some(data) = &self.data {
            data.flush()?;
        }
        Ok(self.area.device().flush()?)
    }

    fn cover_blocks(&self) -> u64 {
        self.form.blocks_with(1)
    }

    /// Blocks that may be overwritten.
    fn free_blocks(&self) -> u64 {
        match self.area.distance(self.head.block(), self.durable_tail) {
            0 => self.area.blocks().into(),
            distance => distance.into(),
        }
    }

    /// Blocks that records under way at a crash may have reached get the stamp of a block that was not written yet: the
    /// next recovery would take them for a continuation of what is written now.
    fn stamp_stale_blocks(&self) -> Result<()> {
        let (area, head) = (&self.area, self.head);
        let empty = self.durable_tail == head.block();
        let count = match empty {
            // The last record lies before the head.
            true => in_flight_blocks(area).min(area.blocks() / 2),
            false => in_flight_blocks(area).min(area.distance(head.block(), self.durable_tail)),
        };
        let mut changed = false;
        let mut done = 0;
        while done < count {
            let at = area.after(head.block(), done);
            // Not past the ring's end, where the stamp changes.
            let now = (count - done).min(super::area::SEARCH_BLOCKS).min(area.blocks() - at);
            let cycle = if at >= head.block() { head.cycle().wrapping_sub(1) } else { head.cycle() };
            let mut bytes = vec![0; now as usize * BASIC_BLOCK];
            area.read(at, &mut bytes)?;
            let mut requests = Vec::new();
            let mut stale = false;
            for (block, bytes) in (at..).zip(bytes.chunks_exact_mut(BASIC_BLOCK)) {
                if cycle_of(bytes) != cycle {
                    stale = true;
                    self.fill_stale(block, cycle, bytes);
                }
            }
            if stale {
                area.write_requests(at, &bytes, &mut requests);
                area.device().run_batch(&mut requests)?;
                changed = true;
            }
            done += now;
        }
        if changed {
            area.device().flush()?;
        }
        Ok(())
    }

    /// A block with the stamp of a cycle: the header of a record without data, as Linux writes it.
    fn fill_stale(&self, block: u32, cycle: u32, bytes: &mut [u8]) {
        bytes.fill(0);
        if cycle == 0 {
            return;
        }
        let header = RawRecordHeader {
            h_len: 0.into(),
            h_size: 0.into(),
            ..self.header(Lsn::new(cycle, block), Lsn(0), 0, 0)
        };
        bytes[..size_of::<RawRecordHeader>()].copy_from_slice(header.as_bytes());
    }

    fn header(&self, lsn: Lsn, tail: Lsn, len: u32, operations: u32) -> RawRecordHeader {
        RawRecordHeader {
            h_magicno: RECORD_MAGIC.into(),
            h_cycle: lsn.cycle().into(),
            h_version: 2.into(),
            h_len: len.into(),
            h_lsn: lsn.0.into(),
            h_tail_lsn: tail.0.into(),
            h_crc: 0.into(),
            h_prev_block: self.previous.into(),
            h_num_logops: operations.into(),
            h_cycle_data: [U32::ZERO; _],
            h_fmt: FORMAT_LITTLE_ENDIAN.into(),
            h_fs_uuid: *self.area.uuid.as_bytes(),
            h_size: self.form.named_bytes.into(),
        }
    }
}

/// A checkpoint that is being written.
pub(crate) struct Checkpoint<'a> {
    log: &'a mut LogWriter,
    /// Of its operations.
    number: u32,
    tail: Lsn,
    /// Header blocks, zeroes so far, and data of the record that is being filled.
    record: Vec<u8>,
    operations: u32,
    /// Records that are complete, and their blocks.
    waiting: Vec<(u32, Vec<u8>)>,
    /// The memory of records that have been written.
    spare: Vec<Vec<u8>>,
}

impl<'a> Checkpoint<'a> {
    fn new(log: &'a mut LogWriter, tail: Option<Lsn>) -> Self {
        let begin = log.head;
        let tail = tail.unwrap_or(begin);
        let record = Vec::new();
        let mut checkpoint = Self {
            number: begin.block(),
            tail,
            record,
            operations: 0,
            waiting: Vec::new(),
            spare: Vec::new(),
            log,
        };
        checkpoint.begin_record();
        checkpoint
    }

    /// Begins a record, and returns the one before.
    fn begin_record(&mut self) -> Vec<u8> {
        let form = &self.log.form;
        let room = form.record as usize * BASIC_BLOCK;
        let mut record = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(room));
        record.resize(form.headers as usize * BASIC_BLOCK, 0);
        std::mem::replace(&mut self.record, record)
    }

    /// Adds a region, of a multiple of 4 bytes.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn region(&mut self, bytes: &[u8]) -> Result<()> {
        self.operation(0, bytes)
    }

    /// Adds an operation; what has no room in the record goes on in the next one.
    fn operation(&mut self, kind: u8, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        let mut how = kind;
        loop {
            let used = self.record.len() - self.log.form.headers as usize * BASIC_BLOCK;
            let room = self.log.form.data_bytes() - used;
            let least = OPERATION_HEADER + rest.len().min(4);
            if room < least {
                self.next_record()?;
                continue;
            }
            let now = rest.len().min((room - OPERATION_HEADER) / 4 * 4);
            let (part, after) = rest.split_at(now);
            if after.is_empty() {
                let end = if how == flags::WAS_CONTINUED { flags::END } else { 0 };
                self.push(client::TRANSACTION, how | end, part);
                return Ok(());
            }
            self.push(client::TRANSACTION, how | flags::CONTINUE, part);
            (rest, how) = (after, flags::WAS_CONTINUED);
        }
    }

    fn push(&mut self, client: u8, kind: u8, bytes: &[u8]) {
        let header = RawOperationHeader {
            oh_tid: self.number.into(),
            oh_len: (bytes.len() as u32).into(),
            oh_clientid: client,
            oh_flags: kind,
            oh_res2: U16::ZERO,
        };
        self.record.extend_from_slice(header.as_bytes());
        self.record.extend_from_slice(bytes);
        self.operations += 1;
    }

    /// Completes a record, and begins the next one.
    fn next_record(&mut self) -> Result<()> {
        let tail = self.log.kept_tail.unwrap_or(self.tail);
        self.complete_record(tail)?;
        if self.waiting.len() >= IN_FLIGHT {
            self.write()?;
            self.log.area.device().flush()?;
        }
        Ok(())
    }

    fn complete_record(&mut self, tail: Lsn) -> Result<()> {
        let mut record = self.begin_record();
        let log = &mut *self.log;
        let header_bytes = log.form.headers as usize * BASIC_BLOCK;
        record.resize(record.len().next_multiple_of(log.form.unit as usize * BASIC_BLOCK), 0);
        let blocks = (record.len() / BASIC_BLOCK) as u32;
        if u64::from(blocks) >= log.free_blocks() {
            return Err(corrupt("log", format!("a record of {blocks} blocks would overwrite its tail")));
        }
        let (lsn, data_bytes) = (log.head, record.len() - header_bytes);
        let header = log.header(lsn, tail, data_bytes as u32, std::mem::take(&mut self.operations));
        record[..size_of::<RawRecordHeader>()].copy_from_slice(header.as_bytes());
        let before_end = log.area.blocks() - lsn.block();
        pack(&mut record, log.form.headers as usize, lsn.cycle(), before_end as usize);
        let (headers, data) = record.split_at(header_bytes);
        let crc = RecordHeader::of(headers).right_checksum(headers, data);
        record[RECORD_CRC..RECORD_CRC + 4].copy_from_slice(&crc.to_le_bytes());
        let wraps = blocks >= before_end;
        let cycle = if wraps { next_cycle(lsn.cycle()) } else { lsn.cycle() };
        log.head = Lsn::new(cycle, log.area.after(lsn.block(), blocks));
        log.previous = lsn.block();
        self.waiting.push((lsn.block(), record));
        Ok(())
    }

    /// Writes the complete records.
    fn write(&mut self) -> Result<()> {
        let area = &self.log.area;
        let mut requests: Vec<Request<'_>> = Vec::new();
        for (block, record) in &self.waiting {
            area.write_requests(*block, record, &mut requests);
        }
        if !requests.is_empty() {
            area.device().run_batch(&mut requests)?;
        }
        self.spare.extend(self.waiting.drain(..).map(|(_, mut record)| {
            record.clear();
            record
        }));
        Ok(())
    }

    /// Makes everything durable but the last record, then that one.
    fn finish(mut self) -> Result<()> {
        self.write()?;
        self.log.flush()?;
        self.complete_record(self.tail)?;
        self.write()?;
        self.log.area.device().flush()?;
        self.log.durable_tail = self.tail.block();
        Ok(())
    }
}

/// Begins the description of a buffer (`xfs_buf_log_format`).
pub(super) fn buffer_description(
    regions: u16,
    kind_and_flags: u16,
    sectors: u16,
    daddr: u64,
    map: &[u32],
) -> Vec<u8> {
    let mut description = Vec::with_capacity(20 + 4 * map.len());
    for half in [super::buffer::KIND, regions, kind_and_flags, sectors] {
        description.extend_from_slice(U16::<LE>::from(half).as_bytes());
    }
    description.extend_from_slice(U64::<LE>::from(daddr).as_bytes());
    description.extend_from_slice(U32::<LE>::from(map.len() as u32).as_bytes());
    for word in map {
        description.extend_from_slice(U32::<LE>::from(*word).as_bytes());
    }
    description
}
