//! Logs made by hand, in every form the format allows.
//!
//! The filesystem around them is a row of numbered blocks: the log lies in two runs, everything else is free for
//! transactions to write to. The builder computes checksums with the code under test; that they are right is tested
//! with the kernel's own logs (see `real.rs`).

use undercroft_block::{BlockDevice, MemoryDevice};
use undercroft_vfs::Result;

use super::super::checksum::crc32_be;
use super::super::features::Checksums;
use super::super::{Log, LogBlock, LogLocation, LogRun, RecoveryReport, Volume};
use crate::checksum::crc32c;
use crate::fast_commit::FastCommitOp;
use crate::numbers::FsBlock;

pub(super) const BLOCK: usize = 1024;
pub(super) const FS_BLOCKS: u64 = 1600;
/// The log's first run; the second begins at [`SECOND_RUN`]. Homes below [`FIRST_RUN`] are free.
const FIRST_RUN: u64 = 300;
const FIRST_RUN_BLOCKS: u32 = 7;
const SECOND_RUN: u64 = 400;

const MAGIC: u32 = 0xC03B_3998;

/// What kind of log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) checksums: Checksums,
    /// 64-bit block numbers.
    pub(super) wide: bool,
    pub(super) async_commit: bool,
    pub(super) superblock_v1: bool,
    pub(super) blocks: u32,
    /// Where the first transaction begins.
    pub(super) start: u32,
    pub(super) sequence: u32,
    /// Blocks of the fast-commit area, if the feature is on.
    pub(super) fast_commit: Option<u32>,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            checksums: Checksums::V3,
            wide: true,
            async_commit: false,
            superblock_v1: false,
            blocks: 64,
            start: 1,
            sequence: 7,
            fast_commit: None,
        }
    }
}

/// One block of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// A descriptor with its copies: home and content.
    Copies(Vec<(u64, Vec<u8>)>),
    Revoke(Vec<u64>),
    /// Seconds.
    Commit(u64),
}

/// A block full of one byte.
pub(super) fn filled(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

/// A descriptor with one block per pair of home and filling.
pub(super) fn copies(of: &[(u64, u8)]) -> Part {
    Part::Copies(of.iter().map(|&(home, byte)| (home, filled(byte))).collect())
}

pub(super) struct LogBuilder {
    pub(super) form: Form,
    pub(super) bytes: Vec<u8>,
    /// Where the next block goes.
    pub(super) at: u32,
    pub(super) sequence: u32,
    uuid: [u8; 16],
    crc32: u32,
}

impl LogBuilder {
    pub(super) fn new(form: Form) -> Self {
        let bytes = vec![0; FS_BLOCKS as usize * BLOCK];
        let mut builder = Self {
            form,
            bytes,
            at: form.start,
            sequence: form.sequence,
            uuid: *b"the log's own id",
            crc32: !0,
        };
        builder.write_superblock();
        builder
    }

    fn seed(&self) -> u32 {
        crc32c(!0, &self.uuid)
    }

    pub(super) fn write_superblock(&mut self) {
        let form = self.form;
        let mut block = [0; BLOCK];
        let mut put = |at: usize, value: u32| block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        put(0, MAGIC);
        put(4, if form.superblock_v1 { 3 } else { 4 });
        put(12, BLOCK as u32);
        put(16, form.blocks);
        put(20, 1);
        put(24, form.sequence);
        put(28, form.start);
        if !form.superblock_v1 {
            put(0x24, u32::from(form.checksums == Checksums::V1));
            let incompat = 1
                | if form.wide { 2 } else { 0 }
                | if form.async_commit { 4 } else { 0 }
                | match form.checksums {
                    Checksums::V2 => 8,
                    Checksums::V3 => 16,
                    _ => 0,
                }
                | if form.fast_commit.is_some() { 32 } else { 0 };
            put(0x28, incompat);
            put(0x54, form.fast_commit.unwrap_or(0));
            block[0x30..0x40].copy_from_slice(&self.uuid);
            block[0x50] = 4;
        }
        *self.block(0) = block;
        self.seal_superblock();
    }

    /// Makes the superblock's checksum right again.
    pub(super) fn seal_superblock(&mut self) {
        let block = self.block(0);
        block[0xFC..0x100].fill(0);
        let crc = crc32c(!0, block);
        block[0xFC..0x100].copy_from_slice(&crc.to_be_bytes());
    }

    /// A block of the log.
    pub(super) fn block(&mut self, log: u32) -> &mut [u8; BLOCK] {
        let home = if log < FIRST_RUN_BLOCKS {
            FIRST_RUN + u64::from(log)
        } else {
            SECOND_RUN + u64::from(log - FIRST_RUN_BLOCKS)
        };
        let at = home as usize * BLOCK;
        (&mut self.bytes[at..at + BLOCK]).try_into().unwrap()
    }

    fn end(&self) -> u32 {
        self.form.blocks - self.form.fast_commit.unwrap_or(0)
    }

    /// Appends a block and returns where it lies.
    pub(super) fn push(&mut self, content: &[u8]) -> u32 {
        let at = self.at;
        self.block(at).copy_from_slice(content);
        self.at = if at + 1 == self.end() { 1 } else { at + 1 };
        at
    }

    /// Appends a whole transaction, with a commit block unless the parts have one; returns where its blocks lie.
    pub(super) fn transaction(&mut self, parts: &[Part]) -> Vec<u32> {
        let mut at = Vec::new();
        for part in parts {
            at.extend(self.part(part));
        }
        if !matches!(parts.last(), Some(Part::Commit(_))) {
            at.extend(self.part(&Part::Commit(1_000 + u64::from(self.sequence))));
        }
        self.sequence = self.sequence.wrapping_add(1);
        at
    }

    /// Appends one part of the current transaction.
    pub(super) fn part(&mut self, part: &Part) -> Vec<u32> {
        match part {
            Part::Copies(copies) => self.copies(copies),
            Part::Revoke(homes) => vec![self.revoke(homes)],
            Part::Commit(seconds) => vec![self.commit(*seconds)],
        }
    }

    fn header(&self, kind: u32) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        for (at, value) in [(0, MAGIC), (4, kind), (8, self.sequence)] {
            block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        block
    }

    fn seal(&self, block: &mut [u8; BLOCK], field: usize) {
        if self.form.checksums.per_block() {
            let crc = crc32c(self.seed(), block);
            block[field..field + 4].copy_from_slice(&crc.to_be_bytes());
        }
    }

    fn copies(&mut self, copies: &[(u64, Vec<u8>)]) -> Vec<u32> {
        let mut block = self.header(1);
        let mut at = 12;
        let mut contents = Vec::new();
        for (index, (home, content)) in copies.iter().enumerate() {
            let mut content = content.clone();
            let mut flags = 0;
            if content[..4] == MAGIC.to_be_bytes() {
                content[..4].fill(0);
                flags |= 1;
            }
            if index > 0 {
                flags |= 2;
            }
            if index + 1 == copies.len() {
                flags |= 8;
            }
            let crc = crc32c(crc32c(self.seed(), &self.sequence.to_be_bytes()), &content);
            let mut tag = Vec::new();
            tag.extend((*home as u32).to_be_bytes());
            let high = ((*home >> 32) as u32).to_be_bytes();
            if self.form.checksums == Checksums::V3 {
                tag.extend(u32::to_be_bytes(flags));
                tag.extend(high);
                tag.extend(crc.to_be_bytes());
            } else {
                let low = if self.form.checksums == Checksums::V2 { crc as u16 } else { 0 };
                tag.extend(low.to_be_bytes());
                tag.extend((flags as u16).to_be_bytes());
                if self.form.wide {
                    tag.extend(high);
                }
                if self.form.checksums == Checksums::V2 {
                    tag.extend([0xEE, 0xEE]);
                }
            }
            if index == 0 {
                tag.extend(self.uuid);
            }
            block[at..at + tag.len()].copy_from_slice(&tag);
            at += tag.len();
            contents.push(content);
        }
        self.seal(&mut block, BLOCK - 4);
        let mut places = vec![self.push(&block)];
        self.crc32 = crc32_be(self.crc32, &block);
        for content in contents {
            self.crc32 = crc32_be(self.crc32, &content);
            places.push(self.push(&content));
        }
        places
    }

    fn revoke(&mut self, homes: &[u64]) -> u32 {
        let mut block = self.header(5);
        let width = if self.form.wide { 8 } else { 4 };
        let used = 16 + homes.len() * width;
        block[12..16].copy_from_slice(&(used as u32).to_be_bytes());
        for (index, home) in homes.iter().enumerate() {
            let at = 16 + index * width;
            block[at..at + width].copy_from_slice(&home.to_be_bytes()[8 - width..]);
        }
        self.seal(&mut block, BLOCK - 4);
        self.push(&block)
    }

    fn commit(&mut self, seconds: u64) -> u32 {
        let mut block = self.header(2);
        block[0x30..0x38].copy_from_slice(&seconds.to_be_bytes());
        if self.form.checksums == Checksums::V1 {
            block[0x0C] = 1;
            block[0x0D] = 4;
            block[0x10..0x14].copy_from_slice(&self.crc32.to_be_bytes());
        }
        self.seal(&mut block, 0x10);
        self.crc32 = !0;
        self.push(&block)
    }

    pub(super) fn volume() -> Volume {
        Volume {
            block_bytes: BLOCK as u32,
            blocks: FS_BLOCKS,
            device_blocks: FS_BLOCKS,
            inodes: 500,
            inode_bytes: 256,
        }
    }

    pub(super) fn location(&self) -> LogLocation {
        let runs = vec![
            LogRun { log: LogBlock(0), home: FsBlock(FIRST_RUN), count: FIRST_RUN_BLOCKS },
            LogRun {
                log: LogBlock(FIRST_RUN_BLOCKS),
                home: FsBlock(SECOND_RUN),
                count: self.form.blocks - FIRST_RUN_BLOCKS,
            },
        ];
        LogLocation::new(runs, &Self::volume()).unwrap()
    }

    /// Recovers a copy of it.
    pub(super) fn recover(&self) -> Result<Recovered> {
        let device = MemoryDevice::new(self.bytes.len() as u64);
        for (index, block) in self.bytes.chunks_exact(BLOCK).enumerate() {
            if *block != [0; BLOCK] {
                device.write_at((index * BLOCK) as u64, block).unwrap();
            }
        }
        let Log::Dirty(log) = Log::open(&device, self.location(), Self::volume())? else {
            panic!("the log is not dirty")
        };
        let result = log.recover(&device);
        let mut bytes = vec![0; self.bytes.len()];
        device.read_at(0, &mut bytes).unwrap();
        let replayed = match result {
            Ok(replayed) => replayed,
            Err(error) => {
                assert!(bytes == self.bytes, "a refused log must leave the device alone: {error}");
                return Err(error);
            }
        };
        let report = *replayed.report();
        let operations = replayed.fast_commits().to_vec();
        let clean = replayed.finish(&device).unwrap();
        let Log::Clean(reopened) = Log::open(&device, self.location(), Self::volume()).unwrap() else {
            panic!("the log is dirty after recovery")
        };
        assert_eq!(clean.next_sequence().next(), reopened.next_sequence());
        Ok(Recovered { bytes, report, operations })
    }
}

/// The outcome.
#[derive(Debug)]
pub(super) struct Recovered {
    /// The whole device before the log was emptied.
    bytes: Vec<u8>,
    pub(super) report: RecoveryReport,
    pub(super) operations: Vec<FastCommitOp>,
}

impl Recovered {
    /// A filesystem block.
    pub(super) fn home(&self, block: u64) -> &[u8] {
        &self.bytes[block as usize * BLOCK..][..BLOCK]
    }

    /// The byte that fills a block.
    pub(super) fn filling(&self, block: u64) -> u8 {
        let block = self.home(block);
        assert!(block.iter().all(|&byte| byte == block[0]), "{block:?}");
        block[0]
    }
}
