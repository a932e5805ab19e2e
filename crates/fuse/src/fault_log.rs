//! The server's complaints about the disk, on standard error: each once, and never a flood.
//!
//! The kernel passes only a number on to the program that meets a damaged structure; the sentence that says which
//! structure, inode and block belongs into the server's log. Damage is met again with every access, so what has
//! been said is remembered, and a disk that fails everywhere is cut short.
//!
//! No locks. What was said is remembered as hashes in a small table, where a newer one displaces an older one:
//! the worst that can happen is a sentence said twice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use undercroft_vfs::Error;

use crate::errno::is_fault;

/// How many sentences are remembered.
const REMEMBERED: usize = 256;

/// How many sentences may be said at once; one more is allowed for each [`PAUSE_MS`] that passes.
const BURST: u64 = 32;

/// Time after which one more sentence may be said, in milliseconds.
const PAUSE_MS: u64 = 1000;

/// Decides which complaints are worth a line.
pub(crate) struct FaultLog {
    said: [AtomicU64; REMEMBERED],
    started: Instant,
    /// Milliseconds since the start up to which the allowance is used up. Runs at most [`BURST`] pauses ahead.
    used_up_ms: AtomicU64,
}

impl FaultLog {
    pub(crate) fn new() -> Self {
        Self {
            said: [const { AtomicU64::new(0) }; REMEMBERED],
            started: Instant::now(),
            used_up_ms: AtomicU64::new(0),
        }
    }

    /// Prints the error if it is about the disk, new, and not one too many.
    pub(crate) fn report(&self, error: &Error) {
        if !is_fault(error) {
            return;
        }
        let sentence = error.to_string();
        if self.is_new(&sentence) && self.is_allowed() {
            eprintln!("undercroft: {sentence}");
        }
    }

    fn is_new(&self, sentence: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        sentence.hash(&mut hasher);
        let hash = hasher.finish().max(1);
        let slot = &self.said[(hash % REMEMBERED as u64) as usize];
        slot.swap(hash, Ordering::Relaxed) != hash
    }

    fn is_allowed(&self) -> bool {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used_up_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used_up| {
                let next = used_up.max(now_ms) + PAUSE_MS;
                (next <= now_ms.saturating_add(BURST * PAUSE_MS)).then_some(next)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_new_once() {
        let log = FaultLog::new();
        assert!(log.is_new("corrupt inode 12"));
        assert!(!log.is_new("corrupt inode 12"));
        assert!(log.is_new("corrupt inode 13"));
        assert!(!log.is_new("corrupt inode 13"));
    }

    #[test]
    fn a_flood_is_cut_short() {
        let log = FaultLog::new();
        let allowed = (0..10_000).filter(|_| log.is_allowed()).count() as u64;
        let elapsed_ms = log.started.elapsed().as_millis() as u64;
        assert!((BURST..=BURST + 1 + elapsed_ms / PAUSE_MS).contains(&allowed), "{allowed}");
    }
}
