//! The state of one chunk of a bitmap: an atomic word.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0..24 | writes under way |
//! | `IDLE` | the worker found it set and without writes when it last came by |
//! | `SYNCING` | was needed, and is being synced |
//! | `NEEDED` | members may differ even without a write: stays until it has been synced |
//! | `SET` | the bit is set on all members, durably |
//!
//! All changes are single read-modify-write operations of sequential consistency: they come once per chunk and request
//! and are dwarfed by the request. `SET` is taken away only from a word that is exactly `SET | IDLE`, or `SET` when the
//! array closes, so never under a write.

use std::sync::atomic::{AtomicU32, Ordering};

const WRITERS: u32 = (1 << 24) - 1;
const IDLE: u32 = 1 << 28;
const SYNCING: u32 = 1 << 29;
const NEEDED: u32 = 1 << 30;
const SET: u32 = 1 << 31;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chunk(AtomicU32);

impl Chunk {
    /// As it is when a bitmap is read.
    pub(super) fn new(is_set: bool, is_needed: bool) -> Self {
        Self(AtomicU32::new(if is_set { SET } else { 0 } | if is_needed { NEEDED } else { 0 }))
    }

    fn word(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// A write begins. Returns whether the bit is set already.
    pub(super) fn start(&self) -> bool {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        debug_assert!(before & WRITERS < WRITERS, "more writes than any machine has threads");
        if before & IDLE != 0 {
            self.0.fetch_and(!IDLE, Ordering::SeqCst);
        }
        before & SET != 0
    }

    /// A write ends. `is_complete`: on all members.
    pub(super) fn end(&self, is_complete: bool) {
        if !is_complete {
            self.0.fetch_or(NEEDED, Ordering::SeqCst);
        }
        let before = self.0.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before & WRITERS > 0, "a write ended that had not begun");
    }

    /// The bit is on all members.
    pub(super) fn set(&self) {
        self.0.fetch_or(SET, Ordering::SeqCst);
    }

    pub(super) fn is_set(&self) -> bool {
        self.word() & SET != 0
    }

    pub(super) fn is_needed(&self) -> bool {
        self.word() & (NEEDED | SYNCING) != 0
    }

    /// Whether the next [`clear`](Self::clear) might succeed, if no writer comes.
    pub(super) fn may_be_cleared(&self, now: bool) -> bool {
        self.word() == SET | IDLE || now && self.word() == SET
    }

    /// Takes the bit away if it is not needed: if it was marked idle and nothing happened since, or, with `now`, if it
    /// is idle at all. Returns whether it did.
    pub(super) fn clear(&self, now: bool) -> bool {
        let clear = |word| self.0.compare_exchange(word, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        clear(SET | IDLE) || now && clear(SET)
    }

    /// Marks it if it is not needed at this moment.
    pub(super) fn mark_idle(&self) {
        let _ = self.0.compare_exchange(SET, SET | IDLE, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// A sync of it begins: what becomes needed from here on is not seen by it.
    pub(super) fn begin_sync(&self) {
        let step = |word: u32| (word & NEEDED != 0).then_some((word & !NEEDED) | SYNCING);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
    }

    /// A sync of it ends; `is_done`: all members agree on what it saw.
    pub(super) fn end_sync(&self, is_done: bool) {
        let step =
            |word: u32| (word & SYNCING != 0).then_some((word & !SYNCING) | if is_done { 0 } else { NEEDED });
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step);
    }
}
