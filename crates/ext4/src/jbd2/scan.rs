//! Pass 1: where the log ends, and what its committed transactions copied.
//!
//! A transaction is descriptors with the copies they announce, and revoke blocks, closed by a commit block;
//! all carry its number. The log ends before the first block that is not the expected next one: stale bytes, an older
//! number, or a transaction whose commit block never came. That is how an intact log ends.
//!
//! A checksum that is wrong inside a transaction that *has* a commit block is another matter. Where commit
//! blocks wait for what they commit, the disk has lost something it had confirmed, and the log is corrupt;
//! unless the commit block is older than the one before it, and so is a relic of an earlier filesystem here.
//! With asynchronous commits it is what a crash leaves behind, and the log ends there, provided that no
//! transaction after it was committed.
//!
//! The walk ends because each step consumes blocks, and it may not consume more than the ring has.

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;
use zerocopy::FromBytes;

use super::checksum::crc32_be;
use super::commit::Commit;
use super::descriptor::{LoggedBlock, tags, tail_is_right};
use super::features::{Checksums, Incompat};
use super::format::{BlockType, MAGIC, RawHeader};
use super::location::{LogBlock, LogLocation};
use super::sequence::Sequence;
use super::superblock::Superblock;
use crate::error::corrupt;

/// A revoke block of a committed transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevokeBlock {
    pub(super) log: LogBlock,
    pub(super) sequence: Sequence,
}

/// What the log holds.
#[derive(Debug)]
pub(super) struct Scan {
    /// Copies of committed transactions, in the order they were logged. Fewer than the log has blocks.
    pub(super) blocks: Vec<LoggedBlock>,
    /// Revoke blocks of committed transactions, in order.
    pub(super) revokes: Vec<RevokeBlock>,
    /// Committed transactions.
    pub(super) transactions: u32,
    /// The first transaction that is not in the log.
    pub(super) end: Sequence,
    /// Where that would begin.
    pub(super) end_at: LogBlock,
}

impl Scan {
    fn empty(end: Sequence, end_at: LogBlock) -> Self {
        Self { blocks: Vec::new(), revokes: Vec::new(), transactions: 0, end, end_at }
    }

    /// Walks the log from `start`, whose transaction the superblock names.
    ///
    /// # Errors
    /// `Corrupt` as described above; `Io`.
    pub(super) fn run(
        device: &dyn BlockDevice,
        location: &LogLocation,
        superblock: &Superblock,
        start: LogBlock,
    ) -> Result<Self> {
        let mut walk = Walk {
            device,
            location,
            superblock,
            at: start,
            left: superblock.ring_blocks(),
            block: vec![0; superblock.block_bytes as usize],
            crc32: !0,
        };
        let mut scan = Self::empty(superblock.sequence(), start);
        let mut last_commit = None;
        loop {
            let kept = (scan.blocks.len(), scan.revokes.len());
            let closed = walk.transaction(&mut scan)?;
            match closed {
                Some(Closed { commit, damage: None }) => {
                    scan.transactions += 1;
                    (scan.end, scan.end_at) = (scan.end.next(), walk.at);
                    last_commit = Some(commit.time);
                }
                other => {
                    scan.blocks.truncate(kept.0);
                    scan.revokes.truncate(kept.1);
                    if let Some(Closed { commit, damage: Some(damage) }) = other {
                        let relic = last_commit.is_some_and(|last| commit.time < last);
                        if !relic {
                            walk.excuse(&scan, damage)?;
                        }
                    }
                    return Ok(scan);
                }
            }
        }
    }
}

/// A transaction with a commit block.
struct Closed {
    commit: Commit,
    damage: Option<Damage>,
}

/// The first wrong checksum within a transaction.
#[derive(Clone, Copy)]
struct Damage {
    what: &'static str,
    at: LogBlock,
}

struct Walk<'a> {
    device: &'a dyn BlockDevice,
    location: &'a LogLocation,
    superblock: &'a Superblock,
    /// The next block to look at.
    at: LogBlock,
    /// Blocks of the ring not consumed yet.
    left: u32,
    /// The block looked at last.
    block: Vec<u8>,
    /// Running checksum of version 1 over the current transaction.
    crc32: u32,
}

impl Walk<'_> {
    /// Reads on to the end of transaction `scan.end` and adds what it holds to `scan`; `None` when the log ends
    /// first.
    fn transaction(&mut self, scan: &mut Scan) -> Result<Option<Closed>> {
        let sequence = scan.end;
        let mut damage = None;
        self.crc32 = !0;
        loop {
            let Some(at) = self.read_next()? else { return Ok(None) };
            let (header, _) = RawHeader::read_from_prefix(&self.block).expect("a block holds a header");
            if header.h_magic.get() != MAGIC || Sequence(header.h_sequence.get()) != sequence {
                return Ok(None);
            }
            match BlockType(header.h_blocktype.get()) {
                BlockType::DESCRIPTOR => {
                    if !tail_is_right(self.superblock, &self.block) {
                        // Its tags are not to be trusted, but must be followed: the commit block behind them shows
                        // whether this is only a relic, at which an intact log ends.
                        damage = damage.or(Some(Damage { what: "descriptor block", at }));
                    }
                    if !self.copies(scan, sequence)? {
                        return Ok(None);
                    }
                }
                BlockType::REVOKE => {
                    if !tail_is_right(self.superblock, &self.block) {
                        damage = damage.or(Some(Damage { what: "revoke block", at }));
                    }
                    scan.revokes.push(RevokeBlock { log: at, sequence });
                }
                BlockType::COMMIT => {
                    let commit = Commit::validate(self.superblock, &self.block, self.crc32);
                    if !commit.checksum_is_right {
                        damage = damage.or(Some(Damage { what: "commit block", at }));
                    }
                    return Ok(Some(Closed { commit, damage }));
                }
                _ => return Ok(None),
            }
        }
    }

    /// Takes the copies that the current descriptor block announces; false when the ring is too short for them.
    fn copies(&mut self, scan: &mut Scan, sequence: Sequence) -> Result<bool> {
        let superblock = self.superblock;
        let descriptor = std::mem::take(&mut self.block);
        let version_1 = superblock.checksums == Checksums::V1;
        if version_1 {
            self.crc32 = crc32_be(self.crc32, &descriptor);
            self.block = vec![0; descriptor.len()];
        }
        let mut complete = true;
        for tag in tags(superblock, &descriptor) {
            let at = if version_1 { self.read_next()? } else { self.step() };
            let Some(log) = at else {
                complete = false;
                break;
            };
            if version_1 {
                self.crc32 = crc32_be(self.crc32, &self.block);
            }
            scan.blocks.push(LoggedBlock { tag, log, sequence });
        }
        self.block = descriptor;
        Ok(complete)
    }

    /// Decides whether a transaction with a wrong checksum merely ends the log.
    fn excuse(&mut self, scan: &Scan, damage: Damage) -> Result<()> {
        let Damage { what, at } = damage;
        let sequence = scan.end;
        let advice = "let e2fsck recover what it can";
        if !self.superblock.has(Incompat::ASYNC_COMMIT) {
            return Err(corrupt(
                "journal",
                format!(
                    "wrong checksum of the {what} in log block {at}, in transaction {sequence}; {advice}"
                ),
            ));
        }
        let mut probe = Scan::empty(sequence.next(), self.at);
        match self.transaction(&mut probe)? {
            Some(Closed { damage: None, .. }) => Err(corrupt(
                "journal",
                format!(
                    "wrong checksum of the {what} in log block {at}, in transaction {sequence}, yet transaction \
                     {} after it was committed; {advice}",
                    probe.end
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Consumes the next block of the ring; `None` when all have been.
    fn step(&mut self) -> Option<LogBlock> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = self.superblock.after(at);
        Some(at)
    }

    /// Consumes and reads the next block.
    fn read_next(&mut self) -> Result<Option<LogBlock>> {
        let Some(at) = self.step() else { return Ok(None) };
        self.location.read_block(self.device, at, &mut self.block)?;
        Ok(Some(at))
    }
}
