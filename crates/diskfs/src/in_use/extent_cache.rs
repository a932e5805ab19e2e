//! The extent cache of a file: extents that were looked up lately, found again without a lock.
//!
//! Only extents are cached that stay valid when the map is added to: written ones, which no other file has. A change that
//! removes or moves blocks, or lets another file have them, invalidates the cache ([`ExtentCache::invalidate`]) first. A
//! file is divided into stretches, each with a slot that holds the extent of one of its blocks. A file of one stretch, as
//! most are, needs no memory for more.
//!
//! A slot is filled by a thread that holds the inode's fields, so that no invalidation happens meanwhile, and that has
//! marked the slot as being written; a thread that finds it marked does not fill it. A reader takes no lock: it
//! compares the mark before and after.
//!
//! | bits of the mark | meaning                                                       |
//! | ---------------- | ------------------------------------------------------------- |
//! | 32 to 63         | the generation in which the slot was filled                   |
//! | 1 to 31          | counts how often it was filled                                |
//! | 0                | it is being written                                           |

use std::sync::OnceLock;

use undercroft_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Base-2 logarithm of a stretch's length in blocks: 8 MiB, with the usual ones.
const STRETCH_BITS: u32 = 11;
/// Stretches beyond these share the slots.
const SLOTS: usize = 64;

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedExtent {
    /// Its first block in the file.
    pub start: u64,
    /// The block of the file behind it.
    pub end: u64,
    /// Where its first block lies, in the filesystem's numbering.
    pub home: u64,
}

/// The extents of a file that were looked up lately.
#[derive(Debug)]
pub struct ExtentCache {
    /// Slots filled in another generation are invalid. Begins at 1, so that a slot that was never filled is invalid.
    generation: AtomicU32,
    /// For a file of one stretch.
    only: Slot,
    many: OnceLock<Box<[Slot; SLOTS]>>,
}

#[derive(Debug)]
struct Slot {
    mark: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    home: AtomicU64,
}

impl Default for ExtentCache {
    fn default() -> Self {
        Self { generation: AtomicU32::new(1), only: Slot::new(), many: OnceLock::new() }
    }
}

impl ExtentCache {
    /// The extent that a block lies in, of a file with so many blocks, if it is cached.
    #[inline]
    #[must_use]
    pub fn find(&self, block: u64, blocks: u64) -> Option<CachedExtent> {
        let slot = self.slot(block, blocks)?;
        let mark = slot.mark.load(Ordering::Acquire);
        if mark & 1 != 0 || (mark >> 32) as u32 != self.generation.load(Ordering::Acquire) {
            return None;
        }
        let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
        let home = slot.home.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if slot.mark.load(Ordering::Relaxed) != mark {
            return None;
        }
        (start..end).contains(&block).then_some(CachedExtent { start, end, home })
    }

    /// Where the `len` bytes from `offset` on lie, if one cached extent has them all, of a file with so many blocks of
    /// `1 << bits` bytes: the first block of the extent, and how many bytes behind its begin they begin.
    #[inline]
    #[must_use]
    pub fn find_bytes(&self, offset: u64, len: u64, blocks: u64, bits: u32) -> Option<(u64, u64)> {
        let extent = self.find(offset >> bits, blocks)?;
        let left = (extent.end << bits) - offset;
        (len <= left).then(|| (extent.home, offset - (extent.start << bits)))
    }

    /// Caches the extent that `block` lies in, of a file with so many blocks. The caller has found it with the inode's
    /// fields held, and holds them still.
    pub fn keep(&self, extent: CachedExtent, block: u64, blocks: u64) {
        if blocks >> STRETCH_BITS != 0 {
            self.many.get_or_init(|| Box::new([const { Slot::new() }; SLOTS]));
        }
        let Some(slot) = self.slot(block, blocks) else { return };
        let old = slot.mark.load(Ordering::Relaxed);
        if old & 1 != 0
            || slot.mark.compare_exchange(old, old | 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        fence(Ordering::Release);
        slot.start.store(extent.start, Ordering::Relaxed);
        slot.end.store(extent.end, Ordering::Relaxed);
        slot.home.store(extent.home, Ordering::Relaxed);
        let generation = u64::from(self.generation.load(Ordering::Relaxed));
        let count = (old as u32).wrapping_add(2);
        slot.mark.store(generation << 32 | u64::from(count), Ordering::Release);
    }

    /// Invalidates all slots, before the map changes. The inode's fields are held exclusively.
    #[inline]
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    #[inline]
    fn slot(&self, block: u64, blocks: u64) -> Option<&Slot> {
        if blocks >> STRETCH_BITS == 0 {
            return Some(&self.only);
        }
        Some(&self.many.get()?[(block >> STRETCH_BITS) as usize % SLOTS])
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            mark: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            home: AtomicU64::new(0),
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const STRETCH: u64 = 1 << STRETCH_BITS;

    fn extent(start: u64, end: u64) -> CachedExtent {
        CachedExtent { start, end, home: 7 * start + end }
    }

    #[test]
    fn a_kept_extent_is_found_in_each_of_its_blocks_until_it_is_invalidated() {
        let cache = ExtentCache::default();
        assert_eq!(cache.find(0, 100), None);
        cache.keep(extent(10, 20), 15, 100);
        let found: Vec<u64> = (0..100).filter(|&block| cache.find(block, 100).is_some()).collect();
        assert_eq!(found, (10..20).collect::<Vec<_>>());
        assert_eq!(cache.find(10, 100), Some(extent(10, 20)));
        cache.invalidate();
        assert_eq!(cache.find(10, 100), None);
        cache.keep(extent(10, 12), 11, 100);
        assert_eq!((cache.find(11, 100), cache.find(12, 100)), (Some(extent(10, 12)), None));
    }

    #[test]
    fn bytes_are_found_that_one_extent_has() {
        let cache = ExtentCache::default();
        cache.keep(extent(10, 20), 15, 100);
        let home = extent(10, 20).home;
        let find = |offset, len| cache.find_bytes(offset, len, 100, 12);
        assert_eq!(find(10 << 12, 10 << 12), Some((home, 0)));
        assert_eq!(find((10 << 12) + 7, (10 << 12) - 7), Some((home, 7)));
        assert_eq!(find((19 << 12) + 4095, 1), Some((home, (10 << 12) - 1)));
        assert_eq!(find((10 << 12) + 7, (10 << 12) - 6), None);
        assert_eq!(find((10 << 12) - 1, 1), None);
        assert_eq!(find(20 << 12, 1), None);
        assert_eq!(find(15 << 12, u64::MAX), None);
    }

    #[test]
    fn a_file_of_several_stretches_has_an_extent_for_each() {
        let cache = ExtentCache::default();
        let blocks = 2 * SLOTS as u64 * STRETCH;
        cache.keep(extent(0, 10), 0, STRETCH - 1);
        // Of a file that has grown, what was kept while it had one stretch is not looked for.
        assert_eq!(cache.find(0, blocks), None);
        for stretch in 0..SLOTS as u64 {
            cache.keep(extent(stretch * STRETCH, (stretch + 1) * STRETCH), stretch * STRETCH, blocks);
        }
        for stretch in 0..SLOTS as u64 {
            let last = (stretch + 1) * STRETCH - 1;
            assert_eq!(cache.find(last, blocks), Some(extent(stretch * STRETCH, last + 1)));
        }
        // A slot is shared by stretches that lie far apart.
        let far = SLOTS as u64 * STRETCH;
        cache.keep(extent(far, far + 1), far, blocks);
        assert_eq!((cache.find(0, blocks), cache.find(far, blocks)), (None, Some(extent(far, far + 1))));
    }

    #[test]
    fn a_reader_never_sees_parts_of_two_extents() {
        let (cache, done) = (ExtentCache::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let fillers: Vec<_> = (0..2)
                .map(|filler| {
                    let cache = &cache;
                    scope.spawn(move || {
                        for n in 0..100_000_u64 {
                            let start = (n * 5 + filler) % 50;
                            cache.keep(extent(start, 51 + n % 40), 50, 100);
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if let Some(found) = cache.find(50, 100) {
                        assert_eq!(found, extent(found.start, found.end));
                    }
                }
            });
            let filled = fillers.into_iter().map(std::thread::ScopedJoinHandle::join).all(|end| end.is_ok());
            done.store(true, Ordering::Relaxed);
            assert!(filled);
            reader.join().unwrap();
        });
        assert!(cache.find(50, 100).is_some());
    }
}
