//! A sparse array of bytes in memory, cut into chunks that many threads use at once.
//!
//! A chunk exists once something has been written to it; what does not exist reads as zeroes. Chunks are spread
//! over shards by their number, each shard a map behind its own readers-writer lock, and each chunk has a lock of its
//! own for its bytes: threads wait for each other only when they touch the same chunk, or one makes a new one in the
//! shard. Two that write in step, each through its own part, never do. Used by [`MemoryDevice`](crate::MemoryDevice).
//!
//! Locks: one shard at a time, class `DEVICE`, for reading unless chunks come or go; under it one chunk, class
//! `DEVICE_CHUNK`. Held while bytes are copied and never across anything else. Ranges are the caller's affair: this
//! array has no end.

use std::collections::HashMap;

use undercroft_sync::{RwLock, order};

use crate::span::{Span, spans};

/// More shards than threads we expect, so that two of them rarely meet.
const SHARDS: usize = 64;

/// Up to this many chunks are looked up one by one to be given back; beyond, all that exist are searched.
const LOOK_UP_EACH: u64 = 4096;

/// Chunks by their number.
type Shard = HashMap<u64, RwLock<Box<[u8]>>>;

/// Bytes by offset; see the module's description.
#[derive(Debug)]
pub(crate) struct SparseBytes {
    shards: Box<[RwLock<Shard>]>,
    chunk_bytes: usize,
}

impl SparseBytes {
    /// An array of zeroes in chunks of `chunk_bytes`.
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(&order::DEVICE, Shard::new())).collect();
        Self { shards, chunk_bytes }
    }

    fn shard(&self, chunk: u64) -> &RwLock<Shard> {
        &self.shards[(chunk % SHARDS as u64) as usize]
    }

    /// Fills `buf` from `offset`.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        let mut rest = buf;
        for Span { chunk, start, len } in spans(offset, rest.len() as u64, self.chunk_bytes) {
            let (part, tail) = rest.split_at_mut(len);
            match self.shard(chunk).read().get(&chunk) {
                Some(bytes) => part.copy_from_slice(&bytes.read()[start..start + len]),
                None => part.fill(0),
            }
            rest = tail;
        }
    }

    /// Stores `data` at `offset`.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) {
        let mut rest = data;
        for Span { chunk, start, len } in spans(offset, data.len() as u64, self.chunk_bytes) {
            let (part, tail) = rest.split_at(len);
            if !self.write_existing(chunk, start, part) {
                let mut shard = self.shard(chunk).write();
                let bytes = shard.entry(chunk).or_insert_with(|| self.new_chunk());
                bytes.write()[start..start + len].copy_from_slice(part);
            }
            rest = tail;
        }
    }

    /// Tells whether there is such a chunk.
    fn write_existing(&self, chunk: u64, start: usize, part: &[u8]) -> bool {
        let shard = self.shard(chunk).read();
        let Some(bytes) = shard.get(&chunk) else { return false };
        bytes.write()[start..start + part.len()].copy_from_slice(part);
        true
    }

    fn new_chunk(&self) -> RwLock<Box<[u8]>> {
        RwLock::new(&order::DEVICE_CHUNK, vec![0; self.chunk_bytes].into_boxed_slice())
    }

    /// Makes a range read as zeroes; chunks that lie wholly in it are given back.
    ///
    /// A long range costs as much as there are chunks, not as much as it is long: it may be a huge empty device.
    pub(crate) fn zero(&self, offset: u64, len: u64) {
        let chunk_bytes = self.chunk_bytes as u64;
        let end = offset + len;
        let whole = offset.div_ceil(chunk_bytes)..end / chunk_bytes;
        if whole.is_empty() {
            return self.zero_parts(offset, end);
        }
        self.zero_parts(offset, whole.start * chunk_bytes);
        if whole.end - whole.start <= LOOK_UP_EACH {
            for chunk in whole.clone() {
                self.shard(chunk).write().remove(&chunk);
            }
        } else {
            for shard in &self.shards {
                shard.write().retain(|chunk, _| !whole.contains(chunk));
            }
        }
        self.zero_parts(whole.end * chunk_bytes, end);
    }

    fn zero_parts(&self, start: u64, end: u64) {
        for Span { chunk, start, len } in spans(start, end - start, self.chunk_bytes) {
            if let Some(bytes) = self.shard(chunk).read().get(&chunk) {
                bytes.write()[start..start + len].fill(0);
            }
        }
    }

    /// Memory that the chunks take, in bytes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let chunks: usize = self.shards.iter().map(|shard| shard.read().len()).sum();
        (chunks * self.chunk_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritten_bytes_are_zero_and_take_no_memory() {
        let bytes = SparseBytes::new(16);
        let mut buf = [7; 40];
        bytes.read(u64::MAX - 100, &mut buf);
        assert_eq!((buf, bytes.allocated_bytes()), ([0; 40], 0));
    }

    #[test]
    fn writes_cross_chunks() {
        let bytes = SparseBytes::new(16);
        let data: Vec<u8> = (1..=50).collect();
        bytes.write(10, &data);
        let mut buf = [9; 70];
        bytes.read(0, &mut buf);
        assert_eq!(buf[..10], [0; 10]);
        assert_eq!(buf[10..60], data);
        assert_eq!(buf[60..], [0; 10]);
        assert_eq!(bytes.allocated_bytes(), 64);
    }

    #[test]
    fn zeroing_a_huge_range_is_quick() {
        let bytes = SparseBytes::new(16);
        bytes.write(1 << 50, &[1; 40]);
        bytes.zero(3, (1 << 50) + 20);
        let mut buf = [9; 40];
        bytes.read(1 << 50, &mut buf);
        assert_eq!((&buf[..23], &buf[23..]), (&[0; 23][..], &[1; 17][..]));
    }

    #[test]
    fn zeroing_gives_whole_chunks_back_and_keeps_the_edges() {
        let bytes = SparseBytes::new(16);
        bytes.write(0, &[1; 64]);
        bytes.zero(8, 48);
        let mut buf = [9; 64];
        bytes.read(0, &mut buf);
        assert_eq!((&buf[..8], &buf[8..56], &buf[56..]), (&[1; 8][..], &[0; 48][..], &[1; 8][..]));
        assert_eq!(bytes.allocated_bytes(), 32);
    }
}
