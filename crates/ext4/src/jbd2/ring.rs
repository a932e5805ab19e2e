//! Writing the log: transactions at its head, and the record of its tail.
//!
//! The log is a ring between the journal superblock and the log's end. [`LogWriter`] appends a transaction as blocks
//! that revoke, descriptors with the copies they announce, and, when all of that is durable, a commit block. What a
//! crash may leave of it:
//!
//! 1. before the commit block is written: blocks that recovery takes for the end of the log;
//! 2. before it is durable: that, or the whole transaction;
//! 3. after that: the whole transaction.
//!
//! [`LogTail`] says in the journal superblock which transaction is the oldest that recovery has to replay. The ring's
//! blocks before it may be overwritten once the superblock is durable, and no earlier: recovery that began at
//! a place that was overwritten would find an empty log. All that changes in the superblock lies in its first sector,
//! so that it is old or new after a crash, never both.
//!
//! One thread appends, another moves the tail; they share nothing but the free space of the ring, which the engine
//! keeps (`undercroft_journal`). Logs are written without checksums or with those of version 3: Linux converts every
//! log to one of these when it begins to write it, and so does [`CleanLog::begin`].
//!
//! [`CleanLog::begin`]: super::log::CleanLog::begin

use std::time::{SystemTime, UNIX_EPOCH};

use undercroft_block::{BlockDevice, Request};
use undercroft_vfs::Result;
use zerocopy::{FromZeros, IntoBytes};

use super::descriptor::bytes_before_tail;
use super::features::{Checksums, Incompat};
use super::format::{
    BlockType, COMMIT_CHECKSUM_OFFSET, MAGIC, RawCommit, RawHeader, RawRevokeHeader, RawTag, RawTag3,
    TAG_ESCAPED, TAG_LAST, TAG_SAME_UUID, TAG_UUID_BYTES, TAIL_BYTES,
};
use super::location::{LogBlock, LogLocation};
use super::sequence::Sequence;
use super::superblock::Superblock;
use crate::checksum::crc32c;
use crate::numbers::FsBlock;

/// Bytes that are put together before they are written. A descriptor and its copies take no more.
const ASSEMBLED_BYTES: usize = 4 << 20;

/// Appends transactions to the log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    location: LogLocation,
    superblock: Superblock,
    /// Where the next transaction begins.
    head: LogBlock,
    tags_per_descriptor: usize,
    records_per_block: usize,
}

/// Keeps the journal superblock.
#[derive(Debug)]
pub(crate) struct LogTail {
    location: LogLocation,
    superblock: Superblock,
}

impl LogWriter {
    /// Begins at `head`.
    pub(super) fn new(location: LogLocation, superblock: Superblock, head: LogBlock) -> Self {
        let usable = bytes_before_tail(&superblock);
        let tags = (usable - size_of::<RawHeader>() - TAG_UUID_BYTES) / tag_bytes(&superblock);
        let together = ASSEMBLED_BYTES / superblock.block_bytes as usize - 1;
        let records = (usable - size_of::<RawRevokeHeader>()) / record_bytes(&superblock);
        Self {
            head,
            location,
            superblock,
            tags_per_descriptor: tags.min(together),
            records_per_block: records,
        }
    }

    /// Blocks of the ring that a transaction with so many copies and revocations takes.
    pub(crate) fn blocks_for(&self, copies: usize, revoked: usize) -> usize {
        let descriptors = copies.div_ceil(self.tags_per_descriptor);
        revoked.div_ceil(self.records_per_block) + descriptors + copies + 1
    }

    /// Revocations that fit into a block.
    pub(crate) fn records_per_block(&self) -> usize {
        self.records_per_block
    }

    /// Blocks in the ring.
    pub(crate) fn ring_blocks(&self) -> u32 {
        self.superblock.ring_blocks()
    }

    /// Writes a transaction and makes it durable, and with it whatever was written to the device before. `fill` puts
    /// one copy after the other into the block that it gets, in order, and returns where the copy belongs.
    ///
    /// The ring must have room for it.
    ///
    /// # Errors
    /// `Io`. The transaction is then in the log or not, and nothing may be written after it.
    pub(crate) fn append(
        &mut self,
        device: &dyn BlockDevice,
        sequence: Sequence,
        copies: usize,
        mut fill: impl FnMut(usize, &mut [u8]) -> FsBlock,
        revoked: &[FsBlock],
    ) -> Result<()> {
        debug_assert!(
            self.blocks_for(copies, revoked.len()) < self.ring_blocks() as usize,
            "the caller has waited for room"
        );
        let mut assembly = Assembly { at: self.head, bytes: Vec::new() };
        for records in revoked.chunks(self.records_per_block) {
            self.write_if_full(device, &mut assembly, 1)?;
            self.revocations(assembly.block(self), sequence, records);
        }
        let mut first = 0;
        while first < copies {
            let count = (copies - first).min(self.tags_per_descriptor);
            self.write_if_full(device, &mut assembly, count + 1)?;
            self.copies(&mut assembly, sequence, first..first + count, &mut fill);
            first += count;
        }
        self.write_out(device, &mut assembly)?;
        device.flush()?;
        self.commit(assembly.block(self), sequence);
        self.write_out(device, &mut assembly)?;
        device.flush()?;
        self.head = assembly.at;
        Ok(())
    }

    /// A descriptor and the copies it announces.
    fn copies(
        &self,
        assembly: &mut Assembly,
        sequence: Sequence,
        range: std::ops::Range<usize>,
        fill: &mut impl FnMut(usize, &mut [u8]) -> FsBlock,
    ) {
        let block_bytes = self.superblock.block_bytes as usize;
        let seed = crc32c(self.superblock.checksum_seed, &sequence.0.to_be_bytes());
        let begin = assembly.bytes.len();
        assembly.bytes.resize(begin + (range.len() + 1) * block_bytes, 0);
        let (descriptor, content) = assembly.bytes[begin..].split_at_mut(block_bytes);
        put_header(descriptor, BlockType::DESCRIPTOR, sequence);
        let mut at = size_of::<RawHeader>();
        for (index, copy) in range.clone().zip(content.chunks_exact_mut(block_bytes)) {
            let home = fill(index, copy);
            let mut flags = 0;
            if copy[..4] == MAGIC.to_be_bytes() {
                copy[..4].fill(0);
                flags |= TAG_ESCAPED;
            }
            if index != range.start {
                flags |= TAG_SAME_UUID;
            }
            if index + 1 == range.end {
                flags |= TAG_LAST;
            }
            at += self.put_tag(&mut descriptor[at..], home, flags, || crc32c(seed, copy));
            if index == range.start {
                descriptor[at..at + TAG_UUID_BYTES].copy_from_slice(self.superblock.uuid());
                at += TAG_UUID_BYTES;
            }
        }
        self.seal(descriptor, block_bytes - TAIL_BYTES);
    }

    /// Puts a tag at the beginning of `bytes`; returns its length.
    fn put_tag(&self, bytes: &mut [u8], home: FsBlock, flags: u32, checksum: impl Fn() -> u32) -> usize {
        let (low, high) = (home.0 as u32, (home.0 >> 32) as u32);
        let length = tag_bytes(&self.superblock);
        if self.superblock.checksums == Checksums::V3 {
            let tag = RawTag3 {
                t_blocknr: low.into(),
                t_flags: flags.into(),
                t_blocknr_high: high.into(),
                t_checksum: checksum().into(),
            };
            bytes[..length].copy_from_slice(tag.as_bytes());
        } else {
            let tag = RawTag {
                t_blocknr: low.into(),
                t_checksum: 0.into(),
                t_flags: (flags as u16).into(),
                t_blocknr_high: high.into(),
            };
            bytes[..length].copy_from_slice(&tag.as_bytes()[..length]);
        }
        length
    }

    fn revocations(&self, block: &mut [u8], sequence: Sequence, records: &[FsBlock]) {
        let width = record_bytes(&self.superblock);
        let start = size_of::<RawRevokeHeader>();
        put_header(block, BlockType::REVOKE, sequence);
        let used = (start + records.len() * width) as u32;
        block[size_of::<RawHeader>()..start].copy_from_slice(&used.to_be_bytes());
        for (place, record) in block[start..].chunks_exact_mut(width).zip(records) {
            place.copy_from_slice(&record.0.to_be_bytes()[8 - width..]);
        }
        self.seal(block, block.len() - TAIL_BYTES);
    }

    fn commit(&self, block: &mut [u8], sequence: Sequence) {
        // A clock that stands before 1970 counts as 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut commit = RawCommit::new_zeroed();
        commit.h_commit_sec = now.as_secs().into();
        commit.h_commit_nsec = now.subsec_nanos().into();
        block[..size_of::<RawCommit>()].copy_from_slice(commit.as_bytes());
        put_header(block, BlockType::COMMIT, sequence);
        self.seal(block, COMMIT_CHECKSUM_OFFSET);
    }

    /// Puts the checksum of a block of the log, where there are such, into its place, which holds zeroes.
    fn seal(&self, block: &mut [u8], at: usize) {
        if self.superblock.checksums.per_block() {
            let sum = crc32c(self.superblock.checksum_seed, block);
            block[at..at + 4].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Writes what is assembled unless there is room for `blocks` more.
    fn write_if_full(&self, device: &dyn BlockDevice, assembly: &mut Assembly, blocks: usize) -> Result<()> {
        if assembly.bytes.len() + blocks * self.superblock.block_bytes as usize > ASSEMBLED_BYTES {
            self.write_out(device, assembly)?;
        }
        Ok(())
    }

    /// Writes what is assembled to its place in the ring, around the end where it comes to it.
    fn write_out(&self, device: &dyn BlockDevice, assembly: &mut Assembly) -> Result<()> {
        let block_bytes = self.superblock.block_bytes as usize;
        let mut batch = Vec::new();
        let mut rest = &assembly.bytes[..];
        let mut at = assembly.at;
        while !rest.is_empty() {
            let (home, in_one_piece) = self.location.run_at(at)?;
            let to_the_end = self.superblock.end.0 - at.0;
            let blocks = (rest.len() / block_bytes).min(in_one_piece.min(to_the_end) as usize);
            let (piece, after) = rest.split_at(blocks * block_bytes);
            batch.push(Request::Write { offset: home.0 * block_bytes as u64, data: piece });
            rest = after;
            at = if blocks as u32 == to_the_end {
                self.superblock.first
            } else {
                LogBlock(at.0 + blocks as u32)
            };
        }
        device.run_batch(&mut batch)?;
        drop(batch);
        assembly.at = at;
        assembly.bytes.clear();
        Ok(())
    }
}

impl LogTail {
    pub(super) fn new(location: LogLocation, superblock: Superblock) -> Self {
        Self { location, superblock }
    }

    /// Says, durably, that the log begins at `start` with `sequence`, a transaction to come.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn begin(
        &mut self,
        device: &dyn BlockDevice,
        start: LogBlock,
        sequence: Sequence,
    ) -> Result<()> {
        self.superblock.set_tail(start, sequence);
        self.write(device)
    }

    /// Says, durably, that the log begins `blocks` further on with `sequence`, which may be a transaction to come.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn advance(
        &mut self,
        device: &dyn BlockDevice,
        blocks: u32,
        sequence: Sequence,
    ) -> Result<()> {
        let first = self.superblock.first.0;
        let start = self.superblock.start().unwrap_or(self.superblock.first).0;
        let around = u64::from(start - first) + u64::from(blocks);
        let start = first + (around % u64::from(self.superblock.ring_blocks())) as u32;
        self.superblock.set_tail(LogBlock(start), sequence);
        self.write(device)
    }

    /// Records that the writer aborted.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn record_failure(&mut self, device: &dyn BlockDevice) -> Result<()> {
        self.superblock.record_error();
        self.write(device)
    }

    /// Says, durably, that the log is empty and that its next transaction will be `next`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn make_empty(&mut self, device: &dyn BlockDevice, next: Sequence) -> Result<()> {
        self.superblock.make_empty(next);
        self.write(device)
    }

    fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        self.superblock.write(device, &self.location)?;
        Ok(device.flush()?)
    }
}

/// Blocks of a transaction that wait to be written together.
struct Assembly {
    /// Where the first of them goes.
    at: LogBlock,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Another block, all zeroes.
    fn block(&mut self, writer: &LogWriter) -> &mut [u8] {
        let begin = self.bytes.len();
        self.bytes.resize(begin + writer.superblock.block_bytes as usize, 0);
        &mut self.bytes[begin..]
    }
}

fn put_header(block: &mut [u8], kind: BlockType, sequence: Sequence) {
    let header =
        RawHeader { h_magic: MAGIC.into(), h_blocktype: kind.0.into(), h_sequence: sequence.0.into() };
    block[..size_of::<RawHeader>()].copy_from_slice(header.as_bytes());
}

fn tag_bytes(superblock: &Superblock) -> usize {
    match superblock.checksums {
        Checksums::V3 => size_of::<RawTag3>(),
        _ if superblock.has(Incompat::SIXTY_FOUR_BIT) => size_of::<RawTag>(),
        _ => size_of::<RawTag>() - 4,
    }
}

fn record_bytes(superblock: &Superblock) -> usize {
    if superblock.has(Incompat::SIXTY_FOUR_BIT) { 8 } else { 4 }
}
