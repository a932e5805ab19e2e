//! One block's bytes, shared by everyone who looks at them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A shared, unchanging copy of one block. Holding it keeps it in the cache.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    block: u64,
    bytes: Box<[u8]>,
    /// Set by a look-up, cleared by the clock's hand: the second chance.
    referenced: AtomicBool,
    /// One bit for each kind of judgement already passed; see [`Buffer::verify_once`].
    verified: AtomicU32,
}

impl Buffer {
    pub(crate) fn new(block: u64, bytes: Box<[u8]>) -> Self {
        let (referenced, verified) = (AtomicBool::new(true), AtomicU32::new(0));
        Self(Arc::new(Inner { block, bytes, referenced, verified }))
    }

    /// The block's number.
    #[must_use]
    pub fn block(&self) -> u64 {
        self.0.block
    }

    /// Runs `check` unless a check of the same `kind` (0 to 31) has already passed on this copy.
    ///
    /// Checksums cost more than what they guard: this pays them once for as long as the buffer stays cached.
    /// A failed check is made again each time, so every caller gets the full answer.
    ///
    /// # Errors
    /// Whatever `check` answers.
    pub fn verify_once<E>(&self, kind: u32, check: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let bit = 1 << kind;
        // Relaxed: the bit says something of bytes that never change, and those were published by the Arc.
        if self.0.verified.load(Ordering::Relaxed) & bit == 0 {
            check()?;
            self.0.verified.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether both are the same copy.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn touch(&self) {
        // Test first: a hot buffer's line then stays shared between cores.
        if !self.0.referenced.load(Ordering::Relaxed) {
            self.0.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the second chance away; `true` if there was none left and nobody holds the buffer.
    pub(crate) fn may_be_dropped(&self) -> bool {
        let referenced = self.0.referenced.swap(false, Ordering::Relaxed);
        // The shard's lock is held, so the only handle that could be cloned into a new one is the cache's.
        !referenced && Arc::strong_count(&self.0) == 1
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}
