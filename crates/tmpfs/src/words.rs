//! A few numbers that belong together, read without a lock.
//!
//! The numbers are atomics; a version is odd while they are being written. A reader that finds the version odd, or
//! changed, reads again. Callers of [`Words::write`] exclude each other.

use std::hint;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Numbers that are read together and changed together.
#[derive(Debug)]
pub(crate) struct Words<const N: usize> {
    version: AtomicU32,
    words: [AtomicU64; N],
}

impl<const N: usize> Words<N> {
    pub(crate) fn new(words: [u64; N]) -> Self {
        Self { version: AtomicU32::new(0), words: words.map(AtomicU64::new) }
    }

    pub(crate) fn read(&self) -> [u64; N] {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
            // Pairs with the fence in `write`: a reader that reads a new number sees the new version here.
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.version.load(Ordering::Relaxed) == before {
                return words;
            }
            hint::spin_loop();
        }
    }

    /// Puts `words` in the place of what is there. One thread at a time.
    pub(crate) fn write(&self, words: [u64; N]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    #[test]
    fn numbers_are_never_seen_half_written() {
        let (words, done) = (Words::new([0; 6]), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..200_000 {
                    words.write([round; 6]);
                }
                done.store(true, Ordering::Relaxed);
            });
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let seen = words.read();
                    assert!(seen.iter().all(|&word| word == seen[0]) && seen[0] >= last, "{seen:?}");
                    last = seen[0];
                }
            });
        });
    }
}
