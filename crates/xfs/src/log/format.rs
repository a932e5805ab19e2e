//! The bytes of a log: record headers, operation headers, and the header of a transaction.
//!
//! A record is a header of one or more basic blocks (512 bytes) and the data of operations. The first four bytes of
//! each basic block of data hold the record's cycle; what belongs there lies in the header, or beyond the first 32 KiB
//! in extended headers, one basic block each.
//!
//! Record and operation headers are big-endian. What operations carry is what its host had in memory: little-endian,
//! as the record's `h_fmt` says.
//!
//! Source: "XFS Algorithms & Data Structures", chapter on the journaling log.

use std::fmt;

use zerocopy::{BE, FromBytes, Immutable, IntoBytes, KnownLayout, LE, U16, U32, U64, Unaligned};

/// The log's unit in bytes.
pub(super) const BASIC_BLOCK: usize = 512;

/// Data whose displaced words fit in one header block, in bytes.
pub(super) const CYCLE_DATA_BYTES: u32 = 32 << 10;

/// Displaced words in one header block.
const CYCLE_WORDS: usize = CYCLE_DATA_BYTES as usize / BASIC_BLOCK;

/// Data of a record in a log of version 1, at most; in one of version 2, unless its header says otherwise.
pub(super) const RECORD_BYTES: u32 = 32 << 10;

/// Data of any record in bytes, at most.
pub(super) const MAX_RECORD_BYTES: u32 = 256 << 10;

/// Records that Linux has under way at once, at most.
pub(super) const MAX_IN_FLIGHT: u32 = 8;

/// What a record begins with; never a cycle.
pub(super) const RECORD_MAGIC: u32 = 0xFEED_BABE;

/// A transaction's first region begins with it.
pub(super) const TRANSACTION_MAGIC: u32 = 0x5452_414E;

/// Byte order of a record's contents (`h_fmt`): little-endian, written by Linux.
pub(super) const FORMAT_LITTLE_ENDIAN: u32 = 1;

/// Place of `h_crc` in a record's header.
pub(super) const RECORD_CRC: usize = 32;

/// How much of a record's header its checksum covers, with the padding that 32-bit hosts leave out.
pub(super) const CHECKED_HEADER_BYTES: usize = 328;

/// How much of it the checksum of a 32-bit host covers.
pub(super) const CHECKED_HEADER_BYTES_32: usize = 324;

/// How much of an extended header the checksum covers.
pub(super) const CHECKED_EXTENDED_BYTES: usize = 260;

/// A position in the log: the cycle and the basic block within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lsn(pub(crate) u64);

impl Lsn {
    /// Not known: structures that are not ordered by the log carry it, and 0.
    pub(crate) const NULL: Self = Self(u64::MAX);

    /// A block in a cycle.
    pub(super) const fn new(cycle: u32, block: u32) -> Self {
        Self((cycle as u64) << 32 | block as u64)
    }

    /// How often the log had been filled.
    pub(super) const fn cycle(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Basic block from the start of the log.
    pub(super) const fn block(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.cycle(), self.block())
    }
}

/// The first block of a record (`xlog_rec_header`).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawRecordHeader {
    pub(super) h_magicno: U32<BE>,
    pub(super) h_cycle: U32<BE>,
    pub(super) h_version: U32<BE>,
    pub(super) h_len: U32<BE>,
    pub(super) h_lsn: U64<BE>,
    pub(super) h_tail_lsn: U64<BE>,
    pub(super) h_crc: U32<LE>,
    pub(super) h_prev_block: U32<BE>,
    pub(super) h_num_logops: U32<BE>,
    pub(super) h_cycle_data: [U32<BE>; CYCLE_WORDS],
    pub(super) h_fmt: U32<BE>,
    pub(super) h_fs_uuid: [u8; 16],
    pub(super) h_size: U32<BE>,
}
const _: () = assert!(size_of::<RawRecordHeader>() == CHECKED_HEADER_BYTES_32);
const _: () = assert!(std::mem::offset_of!(RawRecordHeader, h_crc) == RECORD_CRC);

/// Where the displaced words begin in the first header block, and in an extended one.
const CYCLE_DATA: [usize; 2] = [std::mem::offset_of!(RawRecordHeader, h_cycle_data), 4];

/// What precedes the bytes of each operation (`xlog_op_header`).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawOperationHeader {
    pub(super) oh_tid: U32<BE>,
    pub(super) oh_len: U32<BE>,
    pub(super) oh_clientid: u8,
    pub(super) oh_flags: u8,
    pub(super) oh_res2: U16<BE>,
}
const _: () = assert!(size_of::<RawOperationHeader>() == 12);

/// What a transaction begins with (`xfs_trans_header`).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawTransactionHeader {
    pub(super) th_magic: U32<LE>,
    pub(super) th_type: U32<LE>,
    pub(super) th_tid: U32<LE>,
    pub(super) th_num_items: U32<LE>,
}
const _: () = assert!(size_of::<RawTransactionHeader>() == 16);

/// The part of the filesystem that wrote an operation (`oh_clientid`).
pub(super) mod client {
    pub(in super::super) const TRANSACTION: u8 = 0x69;
    pub(in super::super) const LOG: u8 = 0xAA;
}

/// What an operation is (`oh_flags`).
pub(super) mod flags {
    pub(in super::super) const START: u8 = 0x01;
    pub(in super::super) const COMMIT: u8 = 0x02;
    pub(in super::super) const CONTINUE: u8 = 0x04;
    pub(in super::super) const WAS_CONTINUED: u8 = 0x08;
    pub(in super::super) const END: u8 = 0x10;
    pub(in super::super) const UNMOUNT: u8 = 0x20;
}

/// The cycle that a basic block of the log is stamped with.
pub(super) fn cycle_of(block: &[u8]) -> u32 {
    let word = |at: usize| be32(block, at);
    match word(0) {
        RECORD_MAGIC => word(4),
        cycle => cycle,
    }
}

/// Whether a basic block begins a record.
pub(super) fn begins_record(block: &[u8]) -> bool {
    be32(block, 0) == RECORD_MAGIC
}

/// Puts the displaced words back: `headers` are the record's header blocks, `data` is its data in whole basic blocks.
/// False when there are too few headers.
pub(super) fn unpack(headers: &[u8], data: &mut [u8]) -> bool {
    for (index, block) in data.chunks_exact_mut(BASIC_BLOCK).enumerate() {
        let (header, word) = (index / CYCLE_WORDS, index % CYCLE_WORDS);
        let at = header * BASIC_BLOCK + CYCLE_DATA[usize::from(header > 0)] + word * 4;
        let Some(displaced) = headers.get(at..at + 4) else { return false };
        block[..4].copy_from_slice(displaced);
    }
    true
}

/// Stamps the blocks of a record, from its second header block on, with its cycle, and puts the words that this displaces
/// from the data into the header blocks. `record` is the record's header blocks and its data in whole basic blocks;
/// `before_end` says how many of its blocks lie before the ring's end: the others belong to the next cycle.
pub(super) fn pack(record: &mut [u8], header_blocks: usize, cycle: u32, before_end: usize) {
    let (headers, data) = record.split_at_mut(header_blocks * BASIC_BLOCK);
    let stamp = |block: usize| if block < before_end { cycle } else { next_cycle(cycle) }.to_be_bytes();
    for (index, header) in headers.chunks_exact_mut(BASIC_BLOCK).enumerate().skip(1) {
        header[..4].copy_from_slice(&stamp(index));
    }
    for (index, block) in data.chunks_exact_mut(BASIC_BLOCK).enumerate() {
        let (header, word) = (index / CYCLE_WORDS, index % CYCLE_WORDS);
        let at = header * BASIC_BLOCK + CYCLE_DATA[usize::from(header > 0)] + word * 4;
        headers[at..at + 4].copy_from_slice(&block[..4]);
        block[..4].copy_from_slice(&stamp(header_blocks + index));
    }
}

/// The cycle after this one: a record's first word is none.
pub(super) const fn next_cycle(cycle: u32) -> u32 {
    match cycle.wrapping_add(1) {
        RECORD_MAGIC => RECORD_MAGIC + 1,
        // 0 stands for blocks that were never written.
        0 => 1,
        next => next,
    }
}

/// A big-endian number of 32 bits; 0 past the end.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_be_bytes(*word))
}

/// A big-endian number of 16 bits; 0 past the end.
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u16::from_be_bytes(*word))
}

/// A big-endian number of 64 bits; 0 past the end.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_be_bytes(*word))
}

/// A little-endian number of 16 bits; 0 past the end.
pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u16::from_le_bytes(*word))
}

/// A little-endian number of 32 bits; 0 past the end.
pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// A little-endian number of 64 bits; 0 past the end.
pub(super) fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}
