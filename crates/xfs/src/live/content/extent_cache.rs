//! The extent cache of a file: extents that were looked up lately, found again without a lock.
//!
//! Only written extents that no other file has are cached: additions to the map leave them valid, and a change that
//! removes or moves blocks invalidates the cache ([`ExtentCache::invalidate`]) first. Nothing here lets another file have
//! such blocks too. A file is divided into stretches, each with a slot that holds the extent of one of its blocks. A file
//! of one stretch, as most are, needs no memory for more.
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

use super::stretch::{State, Stretch};
use crate::format::FsBlock;

/// Base-2 logarithm of a stretch's length in blocks: 8 MiB, with the usual ones.
const STRETCH_BITS: u32 = 11;
/// Stretches beyond these share the slots.
const SLOTS: usize = 64;

#[derive(Debug)]
pub(super) struct ExtentCache {
    /// Slots filled in another generation are invalid. Begins at 1, so that a slot that was never filled is invalid.
    generation: AtomicU32,
    /// For a file of one stretch.
    only: Slot,
    many: OnceLock<Box<[Slot; SLOTS]>>,
}

#[derive(Debug, Default)]
struct Slot {
    mark: AtomicU64,
    /// The first block in the file, and the first one behind.
    start: AtomicU64,
    end: AtomicU64,
    home: AtomicU64,
}

impl Default for ExtentCache {
    fn default() -> Self {
        Self { generation: AtomicU32::new(1), only: Slot::default(), many: OnceLock::new() }
    }
}

impl ExtentCache {
    /// Where a block lies, of a file with so many blocks, if it is cached.
    pub(super) fn find(&self, block: u64, blocks: u64) -> Option<Stretch> {
        let slot = self.slot(block, blocks)?;
        let mark = slot.mark.load(Ordering::Acquire);
        if mark & 1 != 0 || (mark >> 32) as u32 != self.generation.load(Ordering::Acquire) {
            return None;
        }
        let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
        let home = FsBlock(slot.home.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if slot.mark.load(Ordering::Relaxed) != mark {
            return None;
        }
        let end = end.min(blocks);
        (start..end).contains(&block).then_some(Stretch { start, end, state: State::Written, home })
    }

    /// Caches what was found for `block` with the inode's fields held.
    pub(super) fn keep(&self, found: &Stretch, block: u64, blocks: u64) {
        if found.state != State::Written {
            return;
        }
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
        slot.start.store(found.start, Ordering::Relaxed);
        slot.end.store(found.end, Ordering::Relaxed);
        slot.home.store(found.home.0, Ordering::Relaxed);
        let generation = u64::from(self.generation.load(Ordering::Relaxed));
        let count = (old as u32).wrapping_add(2);
        slot.mark.store(generation << 32 | u64::from(count), Ordering::Release);
    }

    /// Invalidates all slots, before the map changes. The inode's fields are held exclusively.
    pub(super) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

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
