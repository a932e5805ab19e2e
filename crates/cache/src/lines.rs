//! The cache lines of a block that several threads change in turn.
//!
//! A thread that changes a block goes from its lock to its version and from there to the bytes, and waits for a cache
//! line at each step if another thread was the last one to change it. All of them can be prefetched before the first
//! is needed, if their addresses are known.

use std::array;
use std::sync::atomic::{AtomicPtr, Ordering};

use undercroft_sync::prefetch_for_write;

use crate::{Block, Buffer};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Two lines of a block's state, one of its newest version, and the first two of its bytes.
const LINES: usize = 5;

/// Where a block lay when it was last changed: addresses to prefetch, which are never read through, so they may be out
/// of date.
///
/// Padded to cache lines that every thread has, since they are written only when the block or its version is another.
#[derive(Debug)]
#[repr(align(128))]
pub struct Lines([AtomicPtr<u8>; LINES]);

impl Lines {
    /// No block's.
    #[must_use]
    pub fn new() -> Self {
        Self(array::from_fn(|_| AtomicPtr::default()))
    }

    /// Has the processor begin to fetch them, to be changed.
    pub fn fetch(&self) {
        for line in &self.0 {
            prefetch_for_write(line.load(Ordering::Relaxed));
        }
    }

    /// Notes where a block and its newest version lie.
    pub fn note<T>(&self, block: &Block<T>, newest: &Buffer) {
        let (state, (version, bytes)) = (block.state_place(), newest.places());
        let lines = [state, state.wrapping_add(LINE_BYTES), version, bytes, bytes.wrapping_add(LINE_BYTES)];
        for (known, line) in self.0.iter().zip(lines) {
            if known.load(Ordering::Relaxed).cast_const() != line {
                known.store(line.cast_mut(), Ordering::Relaxed);
            }
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_where_the_newest_version_lies() {
        let zeroes = || vec![0; 1024].into_boxed_slice();
        let block = Block::<()>::new(Buffer::new(7, zeroes()));
        let lines = Lines::new();
        lines.fetch();
        let old = block.buffer();
        lines.note(&block, &old);
        assert_eq!(lines.0[3].load(Ordering::Relaxed).cast_const(), old.as_ptr());
        block.lock().bytes_mut()[0] = 1;
        let new = block.buffer();
        lines.note(&block, &new);
        assert!(!new.same_as(&old));
        assert_eq!(lines.0[3].load(Ordering::Relaxed).cast_const(), new.as_ptr());
        drop((block, old, new));
        // Nothing is there any more.
        lines.fetch();
    }
}
