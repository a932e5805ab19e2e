//! Metadata buffers over a block device: one shared copy of each block in use, under a memory bound.
//!
//! A filesystem asks for a block by number and gets a [`Buffer`], a shared handle on the block's bytes. The
//! bytes of a buffer never change, so readers take no lock once they hold one. Buffers that nobody holds are
//! dropped by second chance when a shard grows past its part of the bound; a held buffer (a pin) is never
//! dropped, so the bound can be passed by what callers hold at once, and by nothing else.
//!
//! Locks: one of class `buffer` for each shard, held for a look-up or an insertion and never over I/O. Two
//! threads that miss the same block at once both read it; the first to finish provides the copy both get.
//!
//! Not here: dirty buffers and write-back, which belong to the journal that will order them.

mod buffer;
mod shard;

use undercroft_block::{Device, Request, Result};
use undercroft_sync::{Mutex, order};

pub use buffer::Buffer;
use shard::Shard;

/// Enough that two threads rarely meet; a power of two.
const SHARDS: usize = 64;

/// One read of [`BufferCache::prefetch`] is at most this long, in bytes.
const PREFETCH_MAX_BYTES: u64 = 1 << 20;

/// The buffers of one device.
#[derive(Debug)]
pub struct BufferCache {
    device: Device,
    block_bytes: u32,
    shards: Box<[Mutex<Shard>]>,
}

impl BufferCache {
    /// A cache of `block_bytes` sized blocks of `device` that keeps about `capacity_bytes`, and at least one
    /// buffer a shard.
    #[must_use]
    pub fn new(device: Device, block_bytes: u32, capacity_bytes: usize) -> Self {
        let per_shard = (capacity_bytes / SHARDS / block_bytes as usize).max(1);
        let shards = (0..SHARDS).map(|_| Mutex::new(&order::BUFFER, Shard::new(per_shard))).collect();
        Self { device, block_bytes, shards }
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

    /// The buffer of `block`, read from the device if it is not here.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&self, block: u64) -> Result<Buffer> {
        if let Some(buffer) = self.shard(block).lock().get(block) {
            return Ok(buffer);
        }
        let len = self.block_bytes as usize;
        let mut bytes = vec![0; len].into_boxed_slice();
        // A number so large that its offset wraps lies past the end of every device: let the device say so.
        let offset = block.saturating_mul(u64::from(self.block_bytes)).min(u64::MAX - len as u64);
        self.device.read_at(offset, &mut bytes)?;
        Ok(self.insert(block, bytes))
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
            let mut bytes = vec![0; (run * block_bytes) as usize];
            if self.device.read_at(block * block_bytes, &mut bytes).is_err() {
                return;
            }
            for (i, part) in bytes.chunks_exact(self.block_bytes as usize).enumerate() {
                self.insert(block + i as u64, part.into());
            }
            block += run;
        }
    }

    /// Brings scattered blocks into the cache with one batch of reads; otherwise as [`prefetch`](Self::prefetch).
    /// Neighbours in `blocks` (rising order serves best) become one request.
    pub fn prefetch_scattered(&self, blocks: &[u64]) {
        let block_bytes = u64::from(self.block_bytes);
        let device_blocks = self.device.size_bytes() / block_bytes;
        let at_once = (PREFETCH_MAX_BYTES / block_bytes).max(1);
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for &block in blocks {
            if block >= device_blocks || self.contains(block) {
                continue;
            }
            match runs.last_mut() {
                Some((first, bytes))
                    if *first + bytes.len() as u64 / block_bytes == block
                        && (bytes.len() as u64) < at_once * block_bytes =>
                {
                    bytes.resize(bytes.len() + block_bytes as usize, 0);
                }
                _ => runs.push((block, vec![0; block_bytes as usize])),
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
        for (first, bytes) in &runs {
            for (i, part) in bytes.chunks_exact(self.block_bytes as usize).enumerate() {
                self.insert(first + i as u64, part.into());
            }
        }
    }

    /// Bytes of all buffers now in the cache.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum::<usize>() * self.block_bytes as usize
    }

    fn insert(&self, block: u64, bytes: Box<[u8]>) -> Buffer {
        self.shard(block).lock().insert(Buffer::new(block, bytes))
    }

    fn shard(&self, block: u64) -> &Mutex<Shard> {
        // Fibonacci hashing: neighbours fall into different shards, and so do strides of a power of two.
        let hash = block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(hash >> 58) as usize % SHARDS]
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
        let cache = BufferCache::new(numbered_device(16), 1024, 1 << 20);
        assert_eq!(cache.read(7).unwrap()[..], [7; 1024]);
        assert!(matches!(cache.read(16), Err(undercroft_block::Error::OutOfRange { .. })));
        assert!(matches!(cache.read(u64::MAX), Err(undercroft_block::Error::OutOfRange { .. })));
    }

    #[test]
    fn memory_stays_under_the_bound_and_held_buffers_stay_shared() {
        let cache = BufferCache::new(numbered_device(250), 1024, SHARDS * 1024);
        let held = cache.read(3).unwrap();
        for block in 0..250 {
            cache.read(block).unwrap();
        }
        assert!(cache.memory_bytes() <= (SHARDS + 1) * 1024, "{}", cache.memory_bytes());
        assert!(held.same_as(&cache.read(3).unwrap()), "a held buffer was read a second time");
    }

    #[test]
    fn prefetch_brings_what_read_then_finds() {
        let cache = BufferCache::new(numbered_device(100), 1024, 1 << 20);
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
    fn a_judgement_is_made_once_for_each_kind() {
        let cache = BufferCache::new(numbered_device(2), 1024, 1 << 20);
        let buffer = cache.read(1).unwrap();
        assert_eq!(buffer.verify_once(0, || Err("bad")), Err("bad"));
        assert_eq!(buffer.verify_once(0, || Ok::<_, &str>(())), Ok(()));
        assert_eq!(cache.read(1).unwrap().verify_once(0, || Err("not asked again")), Ok(()));
        assert_eq!(buffer.verify_once(1, || Err("another kind")), Err("another kind"));
    }
}
