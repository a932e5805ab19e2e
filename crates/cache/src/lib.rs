//! Metadata blocks of a device in memory, under a bound.
//!
//! A filesystem asks for a block by number and gets a [`Buffer`], a version of the block's bytes that does not change,
//! or the [`Block`] itself, whose newest version can be changed. A reader needs no lock once it holds a version.
//! Blocks without holders are evicted by second chance when a shard grows past its part of the bound; a block that is
//! held (a pin), or whose newest version is, is never evicted. So only what callers hold at once can exceed the bound.
//!
//! ```
//! use std::sync::Arc;
//! use undercroft_block::{BlockDevice, MemoryDevice};
//! use undercroft_cache::BufferCache;
//!
//! let device = Arc::new(MemoryDevice::new(1 << 20));
//! device.write_at(4096 * 5, b"metadata")?;
//! let cache = BufferCache::<()>::new(device, 4096, 64 << 10);
//! let before = cache.read(5)?;
//! cache.block(5)?.lock().bytes_mut()[0] = b'M';
//! assert_eq!((&before[..8], &cache.read(5)?[..8]), (&b"metadata"[..], &b"Metadata"[..]));
//! # Ok::<(), undercroft_block::Error>(())
//! ```
//!
//! The cache never writes a changed block; the journal does. It holds a handle of each block that it has not written back
//! yet, which pins the block, and keeps its own state of the block in `T`.
//!
//! A structure of several blocks may be one buffer, a [`Span`]; it is asked for by its name, never block by block.
//!
//! Locks: one of class `buffer` for each shard, held for a look-up or an insertion and never over I/O; one of class
//! `block` for each block. Two threads that miss the same block at once both read it; the first to finish provides
//! the block both get.

mod block;
mod buffer;
mod lines;
mod shard;
mod span;

use std::fmt;

use undercroft_block::{Device, Request, Result};
use undercroft_sync::{Mutex, order};

pub use block::{Block, BlockGuard};
pub use buffer::Buffer;
pub use lines::Lines;
use shard::Shard;
pub use span::Span;

/// Enough that two threads rarely meet; a power of two.
const SHARDS: usize = 64;

/// One read of [`BufferCache::prefetch`] is at most this long, in bytes.
const PREFETCH_MAX_BYTES: u64 = 1 << 20;

/// One call of [`BufferCache::prefetch_scattered`] fetches at most this much, in bytes.
const SCATTERED_MAX_BYTES: usize = 4 << 20;

/// The cached blocks of one device.
pub struct BufferCache<T = ()> {
    device: Device,
    block_bytes: u32,
    /// As many blocks as one call of [`prefetch_scattered`](Self::prefetch_scattered) fetches.
    scattered_max: usize,
    shards: Box<[Mutex<Shard<T>>]>,
}

impl<T: Default> BufferCache<T> {
    /// A cache of `block_bytes` sized blocks of `device` that keeps about `capacity_bytes`, and at least one
    /// block a shard.
    #[must_use]
    pub fn new(device: Device, block_bytes: u32, capacity_bytes: usize) -> Self {
        let per_shard = (capacity_bytes / SHARDS / block_bytes as usize).max(1);
        let shards = (0..SHARDS).map(|_| Mutex::new(&order::BUFFER, Shard::new(per_shard))).collect();
        let scattered_max = (SCATTERED_MAX_BYTES.min(capacity_bytes / 4) / block_bytes as usize).max(1);
        Self { device, block_bytes, scattered_max, shards }
    }

    /// The device below.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Size of a block in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The newest version of a block, read from the device if it is not here.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&self, block: u64) -> Result<Buffer> {
        if let Some(known) = self.shard(block).lock().get(block) {
            return Ok(known.buffer());
        }
        Ok(self.load(Span::block(block))?.buffer())
    }

    /// A block, read from the device if it is not here.
    ///
    /// # Errors
    /// The device's.
    pub fn block(&self, block: u64) -> Result<Block<T>> {
        if let Some(known) = self.shard(block).lock().get(block) {
            return Ok(known);
        }
        self.load(Span::block(block))
    }

    /// A span as one buffer, read from the device if it is not here.
    ///
    /// # Errors
    /// The device's.
    pub fn span(&self, span: Span) -> Result<Block<T>> {
        match self.cached(span.name()) {
            Some(known) => Ok(known),
            None => self.load(span),
        }
    }

    /// A block, or the span of that name, if it is here.
    pub fn cached(&self, block: u64) -> Option<Block<T>> {
        self.shard(block).lock().get(block)
    }

    /// A block that the caller is about to fill: not read, all zeroes if it was not here.
    pub fn make(&self, block: u64) -> Block<T> {
        self.make_span(Span::block(block))
    }

    /// The same for a span.
    pub fn make_span(&self, span: Span) -> Block<T> {
        let (name, zeroes) = (span.name(), vec![0; self.span_bytes(span)].into_boxed_slice());
        self.shard(name).lock().insert(Block::new(Buffer::new(name, zeroes)))
    }

    /// Takes a block, or the span of that name, out of the cache: its bytes mean something else from now on. Handles of it
    /// are of no use any more, and [say so](Block::is_current).
    pub fn forget(&self, block: u64) {
        let gone = self.shard(block).lock().remove(block);
        drop(gone);
    }

    fn load(&self, span: Span) -> Result<Block<T>> {
        let (name, len) = (span.name(), self.span_bytes(span));
        // A number so large that its offset wraps lies past the end of every device: let the device say so.
        let offset = span.first().saturating_mul(u64::from(self.block_bytes)).min(u64::MAX - len as u64);
        loop {
            let seen = self.shard(name).lock().departures();
            let mut bytes = vec![0; len].into_boxed_slice();
            self.device.read_at(offset, &mut bytes)?;
            if let Some(kept) = self.insert(name, bytes, seen) {
                return Ok(kept);
            }
        }
    }

    fn span_bytes(&self, span: Span) -> usize {
        span.blocks() as usize * self.block_bytes as usize
    }

    /// Whether `block` is here now.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        self.shard(block).lock().contains(block)
    }

    /// Brings the `count` blocks from `first` on into the cache with few large reads, for a caller that is
    /// about to ask for them one by one. Blocks that are here already are not read again. Past what the
    /// cache can hold nothing is fetched, and failures are left for the later read to report.
    pub fn prefetch(&self, first: u64, count: u64) {
        let block_bytes = u64::from(self.block_bytes);
        let Some(end) = first.checked_add(count) else { return };
        if end > self.device.size_bytes() / block_bytes {
            return;
        }
        let at_once = (PREFETCH_MAX_BYTES / block_bytes).max(1);
        let mut block = first;
        while block < end {
            if self.contains(block) {
                block += 1;
                continue;
            }
            let mut run = 1;
            while run < at_once && block + run < end && !self.contains(block + run) {
                run += 1;
            }
            let seen: Vec<u64> = (block..block + run).map(|n| self.departures(n)).collect();
            let mut bytes = vec![0; (run * block_bytes) as usize];
            if self.device.read_at(block * block_bytes, &mut bytes).is_err() {
                return;
            }
            for ((i, part), seen) in (block..).zip(bytes.chunks_exact(self.block_bytes as usize)).zip(seen) {
                self.insert(i, part.into(), seen);
            }
            block += run;
        }
    }

    /// Brings scattered blocks, or the spans of these names, into the cache with one batch of reads; otherwise as
    /// [`prefetch`](Self::prefetch). Neighbours in `names` (rising order serves best) become one request. Of a long list the
    /// first blocks are fetched that are missing, up to a quarter of the cache and 4 MiB: the call holds their bytes all at
    /// once.
    pub fn prefetch_scattered(&self, names: &[u64]) {
        let block_bytes = u64::from(self.block_bytes);
        let device_blocks = self.device.size_bytes() / block_bytes;
        let mut left = self.scattered_max;
        // The first block of what lies together, and its bytes.
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        // What is fetched, and what had left the shard before.
        let mut fetched = Vec::new();
        for &name in names {
            let span = Span::named(name);
            let (first, len) = (span.first(), self.span_bytes(span));
            if first.saturating_add(span.blocks().into()) > device_blocks || self.contains(name) {
                continue;
            }
            if fetched.is_empty() {
                left = left.max(span.blocks() as usize);
            }
            let Some(rest) = left.checked_sub(span.blocks() as usize) else { break };
            left = rest;
            fetched.push((name, len, self.departures(name)));
            match runs.last_mut() {
                Some((start, bytes))
                    if *start + bytes.len() as u64 / block_bytes == first
                        && bytes.len() + len <= PREFETCH_MAX_BYTES.max(block_bytes) as usize =>
                {
                    bytes.resize(bytes.len() + len, 0);
                }
                _ => runs.push((first, vec![0; len])),
            }
        }
        let mut requests: Vec<_> = runs
            .iter_mut()
            .map(|(first, bytes)| Request::Read { offset: *first * block_bytes, buf: bytes })
            .collect();
        if requests.is_empty() || self.device.run_batch(&mut requests).is_err() {
            return;
        }
        drop(requests);
        let mut runs = runs.iter().map(|(_, bytes)| &bytes[..]);
        let mut rest: &[u8] = &[];
        for (name, len, seen) in fetched {
            if rest.is_empty() {
                rest = runs.next().unwrap_or_default();
            }
            let Some((bytes, after)) = rest.split_at_checked(len) else { return };
            self.insert(name, bytes.into(), seen);
            rest = after;
        }
    }

    fn departures(&self, block: u64) -> u64 {
        self.shard(block).lock().departures()
    }

    /// Bytes of all blocks now in the cache.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum::<usize>() * self.block_bytes as usize
    }

    /// Keeps bytes that were read from the device, unless the block or span is here by now; its handle either way. `None`
    /// when blocks have left the shard since it had seen `seen` departures: the bytes may be from before.
    fn insert(&self, block: u64, bytes: Box<[u8]>, seen: u64) -> Option<Block<T>> {
        let mut shard = self.shard(block).lock();
        if shard.departures() != seen {
            return shard.get(block);
        }
        Some(shard.insert(Block::new(Buffer::new(block, bytes))))
    }

    fn shard(&self, block: u64) -> &Mutex<Shard<T>> {
        // Fibonacci hashing: neighbours fall into different shards, and so do strides of a power of two.
        let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(hash >> 58) as usize % SHARDS]
    }
}

impl<T> fmt::Debug for BufferCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferCache").field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{Access, MemoryDevice};

    use super::*;

    fn numbered_device(blocks: usize) -> Device {
        let bytes = (0..blocks).flat_map(|n| [n as u8; 1024]).collect();
        Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly))
    }

    #[test]
    fn a_block_reads_as_the_device_has_it_and_past_the_end_is_refused() {
        let cache = BufferCache::<()>::new(numbered_device(16), 1024, 1 << 20);
        assert_eq!(cache.read(7).unwrap()[..], [7; 1024]);
        assert!(matches!(cache.read(16), Err(undercroft_block::Error::OutOfRange { .. })));
        assert!(matches!(cache.read(u64::MAX), Err(undercroft_block::Error::OutOfRange { .. })));
    }

    #[test]
    fn memory_stays_under_the_bound_and_held_buffers_stay_shared() {
        let cache = BufferCache::<()>::new(numbered_device(250), 1024, SHARDS * 1024);
        let held = cache.read(3).unwrap();
        for block in 0..250 {
            cache.read(block).unwrap();
        }
        assert!(cache.memory_bytes() <= (SHARDS + 1) * 1024, "{}", cache.memory_bytes());
        assert!(held.same_as(&cache.read(3).unwrap()), "a held buffer was read a second time");
    }

    #[test]
    fn prefetch_brings_what_read_then_finds() {
        let cache = BufferCache::<()>::new(numbered_device(100), 1024, 1 << 20);
        let early = cache.read(50).unwrap();
        cache.prefetch(40, 20);
        assert_eq!(cache.memory_bytes(), 20 * 1024);
        assert!(early.same_as(&cache.read(50).unwrap()));
        cache.prefetch_scattered(&[1, 2, 3, 90, 50, 1_000_000]);
        assert_eq!(cache.memory_bytes(), 24 * 1024);
        assert_eq!(cache.read(2).unwrap()[..], [2; 1024]);
        assert_eq!(cache.read(90).unwrap()[..], [90; 1024]);
        cache.prefetch(90, u64::MAX);
        cache.prefetch(0, 1000);
        assert_eq!(cache.memory_bytes(), 24 * 1024, "a range past the end fetches nothing");
    }

    #[test]
    fn a_long_list_is_prefetched_in_part() {
        let cache = BufferCache::<()>::new(numbered_device(250), 1024, 4 * SHARDS * 1024);
        cache.read(4).unwrap();
        let list: Vec<u64> = (0..250).filter(|n| n % 3 != 2).collect();
        cache.prefetch_scattered(&list);
        // A quarter of the cache, without the block that was there.
        assert!(list[..=SHARDS].iter().all(|&block| cache.contains(block)));
        assert!(!list[SHARDS + 1..].iter().any(|&block| cache.contains(block)));
    }

    #[test]
    fn a_version_stays_as_it_is_while_the_block_changes() {
        let cache = BufferCache::<u32>::new(numbered_device(16), 1024, 1 << 20);
        let block = cache.block(5).unwrap();
        let old = block.buffer();
        {
            let mut guard = block.lock();
            guard.bytes_mut()[0] = 99;
            *guard.private_mut() = 7;
        }
        assert_eq!(
            (old[0], cache.read(5).unwrap()[0], *cache.block(5).unwrap().lock().private()),
            (5, 99, 7)
        );
        drop(old);
        let newest = block.buffer().as_ptr();
        block.lock().bytes_mut()[1] = 98;
        assert_eq!(block.buffer().as_ptr(), newest, "a version without holders was copied");
    }

    #[test]
    fn a_block_that_is_forgotten_is_read_again_and_one_that_is_made_is_not_read() {
        let cache = BufferCache::<()>::new(numbered_device(16), 1024, 1 << 20);
        assert_eq!(cache.make(3).buffer()[..], [0; 1024]);
        assert_eq!(cache.read(3).unwrap()[0], 0);
        let kept = cache.block(3).unwrap();
        assert!(kept.is_current());
        cache.forget(3);
        assert_eq!(cache.read(3).unwrap()[0], 3);
        assert!(!kept.is_current() && cache.block(3).unwrap().is_current());
    }

    #[test]
    fn a_span_is_one_buffer_and_counts_as_its_blocks() {
        let cache = BufferCache::<()>::new(numbered_device(250), 1024, 8 * SHARDS * 1024);
        let span = Span::new(5, 4).unwrap();
        let bytes = cache.span(span).unwrap().buffer();
        assert_eq!((bytes.len(), bytes[0], bytes[4095]), (4096, 5, 8));
        assert_eq!(cache.memory_bytes(), 4096);
        assert!(cache.span(span).unwrap().buffer().same_as(&bytes) && !cache.contains(5));
        cache.forget(span.name());
        assert_eq!(cache.make_span(span).buffer()[..], [0; 4096]);
        assert!(cache.span(Span::new(248, 4).unwrap()).is_err());
        for first in (0..248).step_by(4) {
            cache.span(Span::new(first, 4).unwrap()).unwrap();
        }
        assert!(cache.memory_bytes() <= (8 * SHARDS + 4) * 1024, "{}", cache.memory_bytes());
    }

    #[test]
    fn spans_are_prefetched_with_blocks() {
        let cache = BufferCache::<()>::new(numbered_device(250), 1024, 1 << 20);
        let spans =
            [(8, 2), (10, 2), (30, 4), (248, 4)].map(|(first, count)| Span::new(first, count).unwrap());
        let [one, two, three, past] = spans.map(Span::name);
        cache.prefetch_scattered(&[7, one, two, three, past]);
        assert_eq!(cache.memory_bytes(), 9 * 1024);
        assert_eq!(cache.cached(two).unwrap().buffer()[..], [[10; 1024], [11; 1024]].concat());
        assert_eq!(cache.cached(three).unwrap().buffer()[3 * 1024..], [33; 1024]);
        assert_eq!(cache.cached(7).unwrap().buffer()[..], [7; 1024]);
    }

    #[test]
    fn what_was_read_before_a_block_left_is_not_kept() {
        let cache = BufferCache::<()>::new(numbered_device(16), 1024, 1 << 20);
        let seen = cache.departures(3);
        cache.read(3).unwrap();
        cache.forget(3);
        assert!(cache.insert(3, vec![9; 1024].into(), seen).is_none());
        assert_eq!(cache.read(3).unwrap()[0], 3);
    }

    #[test]
    fn each_kind_of_validation_is_done_once() {
        let cache = BufferCache::<()>::new(numbered_device(2), 1024, 1 << 20);
        let buffer = cache.read(1).unwrap();
        assert_eq!(buffer.verify_once(0, || Err("bad")), Err("bad"));
        assert_eq!(buffer.verify_once(0, || Ok::<_, &str>(())), Ok(()));
        assert_eq!(cache.read(1).unwrap().verify_once(0, || Err("not asked again")), Ok(()));
        assert_eq!(buffer.verify_once(1, || Err("another kind")), Err("another kind"));
    }
}
