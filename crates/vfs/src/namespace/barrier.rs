//! The removal barrier of a directory; `locks` raises it, and says what it is good for.

use std::sync::atomic::AtomicU8;

use undercroft_sync::{RwLock, order};

/// Whether names may be added to a directory, and the directory's lock in the plain form.
pub(crate) struct RemovalBarrier {
    pub(super) state: AtomicU8,
    pub(super) plain: RwLock<()>,
}

pub(super) const OPEN: u8 = 0;
pub(super) const RAISED: u8 = 1;
pub(super) const REMOVED: u8 = 2;

impl RemovalBarrier {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(OPEN), plain: RwLock::new(&order::DIRECTORY, ()) }
    }
}
