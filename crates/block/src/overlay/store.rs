//! The chunks of an overlay that have been written to.
//!
//! A map in shards from chunk number to content. With a temporary file the content lies there, at the chunk's own
//! offset, and the map only remembers that it does. A chunk enters the map whole, filled by the caller, and never
//! leaves it; so a thread that has seen it there may rely on it without a lock.
//!
//! Locks: one shard at a time, class `DEVICE`; held across a write to the temporary file, so that the chunk is
//! complete there when others learn of it, but not across reads.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use undercroft_sync::{RwLock, order};

/// More shards than threads we expect, so that two of them rarely meet.
const SHARDS: usize = 64;

/// Up to this many chunks are looked up one by one to be zeroed; beyond, all that exist are searched.
const LOOK_UP_EACH: u64 = 4096;

/// What is known of a chunk that has been written to.
#[derive(Debug)]
enum Chunk {
    /// All zero; takes no space.
    Zero,
    /// Its content.
    Memory(Box<[u8]>),
    /// Its content lies in the temporary file.
    File,
}

/// Where the bytes of a chunk are to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// They have been copied to the caller.
    Copied,
    /// In the temporary file, at their own offset.
    File,
    /// In the base: the chunk has not been written to.
    Base,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Store {
    shards: Box<[RwLock<HashMap<u64, Chunk>>]>,
    file: Option<File>,
    chunk_bytes: usize,
}

impl Store {
    /// An empty store, which keeps contents in `file` if there is one.
    pub(super) fn new(chunk_bytes: usize, file: Option<File>) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::new(&order::DEVICE, HashMap::new())).collect();
        Self { shards, file, chunk_bytes }
    }

    fn shard(&self, chunk: u64) -> &RwLock<HashMap<u64, Chunk>> {
        &self.shards[(chunk % SHARDS as u64) as usize]
    }

    /// Whether the chunk has been written to. Once it has, it stays so.
    pub(super) fn contains(&self, chunk: u64) -> bool {
        self.shard(chunk).read().contains_key(&chunk)
    }

    /// Number of chunks that have been written to.
    pub(super) fn chunks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().len() as u64).sum()
    }

    /// All chunks that have been written to, in order.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> =
            self.shards.iter().flat_map(|shard| shard.read().keys().copied().collect::<Vec<_>>()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Copies a part of a chunk if it lies in memory; otherwise says where it lies.
    pub(super) fn read_in_memory(&self, chunk: u64, start: usize, buf: &mut [u8]) -> Place {
        match self.shard(chunk).read().get(&chunk) {
            Some(Chunk::Zero) => buf.fill(0),
            Some(Chunk::Memory(bytes)) => buf.copy_from_slice(&bytes[start..start + buf.len()]),
            Some(Chunk::File) => return Place::File,
            None => return Place::Base,
        }
        Place::Copied
    }

    /// Reads any range of chunks that lie in the temporary file.
    pub(super) fn read_in_file(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match &self.file {
            Some(file) => file.read_exact_at(buf, offset),
            None => unreachable!("no chunk lies in a file that does not exist"),
        }
    }

    /// Stores a part of a chunk. A chunk that is new gets the content of `filler` around that part; there is one
    /// unless the part is all that exists of the chunk.
    pub(super) fn write(
        &self,
        chunk: u64,
        start: usize,
        part: &[u8],
        filler: Option<Box<[u8]>>,
    ) -> io::Result<()> {
        let mut shard = self.shard(chunk).write();
        let zeroes = || vec![0; self.chunk_bytes].into_boxed_slice();
        let filler = match shard.get_mut(&chunk) {
            Some(Chunk::Memory(bytes)) => {
                bytes[start..start + part.len()].copy_from_slice(part);
                return Ok(());
            }
            Some(Chunk::File) => return self.write_to_file(chunk, start, part),
            Some(Chunk::Zero) => zeroes(),
            None => filler.unwrap_or_else(zeroes),
        };
        let mut bytes = filler;
        bytes[start..start + part.len()].copy_from_slice(part);
        let content = if self.file.is_some() {
            self.write_to_file(chunk, 0, &bytes)?;
            Chunk::File
        } else {
            Chunk::Memory(bytes)
        };
        shard.insert(chunk, content);
        Ok(())
    }

    fn write_to_file(&self, chunk: u64, start: usize, bytes: &[u8]) -> io::Result<()> {
        match &self.file {
            Some(file) => file.write_all_at(bytes, chunk * self.chunk_bytes as u64 + start as u64),
            None => unreachable!("no chunk lies in a file that does not exist"),
        }
    }

    /// Makes a chunk all zero.
    pub(super) fn zero(&self, chunk: u64) {
        self.shard(chunk).write().insert(chunk, Chunk::Zero);
    }

    /// Makes those chunks of a range all zero that have been written to, and leaves the others to the base. A long
    /// range costs as much as there are chunks, not as much as it is long.
    pub(super) fn zero_known(&self, chunks: Range<u64>) {
        if chunks.end.saturating_sub(chunks.start) <= LOOK_UP_EACH {
            for chunk in chunks {
                if let Some(known) = self.shard(chunk).write().get_mut(&chunk) {
                    *known = Chunk::Zero;
                }
            }
        } else {
            for shard in &self.shards {
                for (_, known) in shard.write().iter_mut().filter(|(chunk, _)| chunks.contains(chunk)) {
                    *known = Chunk::Zero;
                }
            }
        }
    }
}
