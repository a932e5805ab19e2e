//! One version of a block's bytes, shared by all of its readers.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A version of one block that does not change. Holding it keeps the block in the cache.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    block: u64,
    bytes: Box<[u8]>,
    /// One bit for each kind of validation already passed; see [`Buffer::verify_once`].
    verified: AtomicU32,
}

impl Buffer {
    pub(crate) fn new(block: u64, bytes: Box<[u8]>) -> Self {
        Self(Arc::new(Inner { block, bytes, verified: AtomicU32::new(0) }))
    }

    /// The bytes, to be changed: in place if this version has no other holder, otherwise in a new version. Validation
    /// of the old version counts for the new one: a change must keep a structure valid.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // A plain load of the count; `get_mut` below does the one locked operation. There are no weak references.
        if self.is_held() {
            self.0 = Arc::new(Inner {
                block: self.0.block,
                bytes: self.0.bytes.clone(),
                verified: AtomicU32::new(self.0.verified.load(Ordering::Relaxed)),
            });
        }
        match Arc::get_mut(&mut self.0) {
            Some(inner) => &mut inner.bytes,
            None => unreachable!("a version that was made this moment has one holder"),
        }
    }

    /// Where its counts of handles are, and where its bytes are.
    pub(crate) fn places(&self) -> (*const u8, *const u8) {
        (Arc::as_ptr(&self.0).cast(), self.0.bytes.as_ptr())
    }

    /// Marks the version as validated, by the thread that made its content.
    pub(crate) fn mark_all_validated(&mut self) {
        self.0.verified.store(u32::MAX, Ordering::Relaxed);
    }

    /// Marks the version as validated in one kind, by the thread that made that content.
    pub(crate) fn mark_validated(&self, kind: u32) {
        // Read first: other kinds' bits are on the same line, and mostly this one is set.
        let bit = 1 << kind;
        if self.0.verified.load(Ordering::Relaxed) & bit == 0 {
            self.0.verified.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The block's number, or the name of the span.
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
        // Relaxed: the bit says something of bytes that do not change while they are shared, and those were
        // published by the Arc.
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

    /// Whether this version has a holder besides the block itself.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}
