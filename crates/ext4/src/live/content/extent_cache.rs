//! The extent cache of a file: extents that were looked up lately, found again without a lock.
//!
//! Only written extents are cached: additions to the map leave them valid, and a change that removes or moves blocks
//! invalidates the cache ([`ExtentCache::invalidate`]) first. A file is divided into stretches, each with a slot that
//! holds the extent of one of its blocks. A file of one stretch, as most are, needs no memory for more.
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

use crate::map::{Run, RunState};
use crate::numbers::{FileBlock, FsBlock};

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
    /// The first file block, and above it how many there are.
    extent: AtomicU64,
    home: AtomicU64,
}

impl Default for ExtentCache {
    fn default() -> Self {
        Self { generation: AtomicU32::new(1), only: Slot::default(), many: OnceLock::new() }
    }
}

impl ExtentCache {
    /// Where a block lies, of a file with so many blocks, if it is cached.
    pub(super) fn find(&self, block: u32, blocks: u64) -> Option<Run> {
        let slot = self.slot(block, blocks)?;
        let mark = slot.mark.load(Ordering::Acquire);
        if mark & 1 != 0 || (mark >> 32) as u32 != self.generation.load(Ordering::Acquire) {
            return None;
        }
        let (extent, home) = (slot.extent.load(Ordering::Relaxed), slot.home.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if slot.mark.load(Ordering::Relaxed) != mark {
            return None;
        }
        let (first, len) = (extent as u32, extent >> 32);
        let before = u64::from(block.checked_sub(first)?);
        (before < len).then(|| Run {
            start: FileBlock(block),
            len: len - before,
            before,
            state: RunState::Mapped(FsBlock(home + before)),
        })
    }

    /// Caches what was found with the inode's fields held.
    pub(super) fn keep(&self, run: &Run, blocks: u64) {
        let RunState::Mapped(home) = run.state else { return };
        if blocks >> STRETCH_BITS != 0 {
            self.many.get_or_init(|| Box::new([const { Slot::new() }; SLOTS]));
        }
        let Some(slot) = self.slot(run.start.0, blocks) else { return };
        let old = slot.mark.load(Ordering::Relaxed);
        if old & 1 != 0
            || slot.mark.compare_exchange(old, old | 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        fence(Ordering::Release);
        let len = (run.before + run.len).min(u64::from(u32::MAX));
        let first = u64::from(run.start.0) - run.before;
        slot.extent.store(first | len << 32, Ordering::Relaxed);
        slot.home.store(home.0 - run.before, Ordering::Relaxed);
        let generation = u64::from(self.generation.load(Ordering::Relaxed));
        let count = (old as u32).wrapping_add(2);
        slot.mark.store(generation << 32 | u64::from(count), Ordering::Release);
    }

    /// Invalidates all slots, before the map changes. The inode's fields are held exclusively.
    pub(super) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn slot(&self, block: u32, blocks: u64) -> Option<&Slot> {
        if blocks >> STRETCH_BITS == 0 {
            return Some(&self.only);
        }
        Some(&self.many.get()?[(block >> STRETCH_BITS) as usize % SLOTS])
    }
}

impl Slot {
    const fn new() -> Self {
        Self { mark: AtomicU64::new(0), extent: AtomicU64::new(0), home: AtomicU64::new(0) }
    }
}
