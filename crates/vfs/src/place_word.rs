//! The place of a directory as its node keeps it: one word, whose rules are in `place`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where a directory has its name, as far as that is known: a hash of the parent's number and the name.
#[derive(Debug, Default)]
pub(crate) struct Place(AtomicU64);

pub(crate) const UNKNOWN: u64 = 0;

impl Place {
    pub(crate) fn is(&self, word: u64) -> bool {
        // Relaxed, here and below: the lock of the name orders what was stored under it.
        self.0.load(Ordering::Relaxed) == word
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.is(UNKNOWN)
    }

    pub(crate) fn set(&self, word: u64) {
        self.0.store(word, Ordering::Relaxed);
    }

    /// Takes `word` as the place unless it has one; returns whether `word` is the place now.
    pub(crate) fn take(&self, word: u64) -> bool {
        let before = self.0.compare_exchange(UNKNOWN, word, Ordering::Relaxed, Ordering::Relaxed);
        before.is_ok_and(|_| true) || before == Err(word)
    }
}
