//! The record that a new log begins with: it says that the filesystem was unmounted. The rest of the log is zeroes.
//!
//! The record fills a stripe unit of the log, or two basic blocks without one: a header for each 32 KiB, the block with
//! the one operation, and blocks that have nothing but the cycle.
//!
//! Source: logs made by mkfs.xfs 6.1; "XFS Algorithms & Data Structures", "Journaling Log".

use uuid::Uuid;

use super::shape::Shape;

const BASIC_BLOCK: usize = 512;
/// Data that one header has room to describe, and the least size of a record that the log is prepared for.
const HEADER_BYTES: usize = 32 << 10;
const MAGIC: u32 = 0xfeed_babe;
const CYCLE: u32 = 1;
const VERSION: u32 = 2;
/// Byte order of the record's content: little-endian, written by Linux.
const FORMAT: u32 = 1;
/// Where the format lies in the header, with the filesystem's UUID and the size of records behind it.
const FORMAT_OFFSET: usize = 300;
/// Identifies the operation's transaction; mkfs.xfs always has this one.
const TRANSACTION: u32 = 0xb0c0_d0d0;
/// The log itself wrote the operation, and it is an unmount.
const FROM_LOG: u8 = 0xaa;
const IS_UNMOUNT: u8 = 0x20;
/// `Un`, in the record's byte order, and padding.
const UNMOUNT: [u8; 8] = [0x6e, 0x55, 0, 0, 0, 0, 0, 0];

/// The first bytes of the log.
pub(super) fn encode(shape: &Shape, uuid: Uuid) -> Vec<u8> {
    let unit = shape.log_stripe_bytes as usize;
    let headers = unit.div_ceil(HEADER_BYTES).max(1);
    let blocks = (unit / BASIC_BLOCK).max(headers + 1);
    let mut bytes = vec![0; blocks * BASIC_BLOCK];
    for (n, block) in bytes.chunks_exact_mut(BASIC_BLOCK).enumerate() {
        // The cycle takes the place of the first word of each block; the first header keeps that of the operation.
        block[..4].copy_from_slice(&CYCLE.to_be_bytes());
        if n == headers {
            block[4..8].copy_from_slice(&(UNMOUNT.len() as u32).to_be_bytes());
            block[8..10].copy_from_slice(&[FROM_LOG, IS_UNMOUNT]);
            block[12..12 + UNMOUNT.len()].copy_from_slice(&UNMOUNT);
        }
    }
    let data = ((blocks - headers) * BASIC_BLOCK) as u32;
    // The record's position and the log's tail are the first block; no checksum; no record before this; one operation.
    let start = [MAGIC, CYCLE, VERSION, data, CYCLE, 0, CYCLE, 0, 0, u32::MAX, 1, TRANSACTION];
    put(&mut bytes, 0, &start);
    put(&mut bytes, FORMAT_OFFSET, &[FORMAT]);
    bytes[FORMAT_OFFSET + 4..FORMAT_OFFSET + 20].copy_from_slice(uuid.as_bytes());
    put(&mut bytes, FORMAT_OFFSET + 20, &[unit.max(HEADER_BYTES) as u32]);
    bytes
}

fn put(bytes: &mut [u8], at: usize, words: &[u32]) {
    for (word, bytes) in words.iter().zip(bytes[at..].chunks_exact_mut(4)) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
}
