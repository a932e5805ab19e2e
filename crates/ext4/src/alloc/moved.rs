//! For each thread, the group that it creates files in after it found its directory's group in use by another thread.

use std::ops::Range;

use undercroft_sync::atomic::{AtomicU32, Ordering};
use undercroft_sync::thread_number;

/// Threads that are distinguished: about as many as a large machine runs at once.
const THREADS: usize = 64;
/// No group has this number.
const NOWHERE: u32 = u32::MAX;

/// For each thread the group where it went last.
#[derive(Debug)]
pub(super) struct Moved(Box<[Thread]>);

/// Padded to its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Thread(AtomicU32);

impl Moved {
    pub(super) fn new() -> Self {
        Self((0..THREADS).map(|_| Thread(AtomicU32::new(NOWHERE))).collect())
    }

    /// Where the calling thread begins to look for an inode in one of `groups`: where it went, or at `home`.
    pub(super) fn first(&self, groups: &Range<u32>, home: u32) -> u32 {
        let group = self.this().load(Ordering::Relaxed);
        if groups.contains(&group) { group } else { home }
    }

    /// The calling thread has gone to another group.
    pub(super) fn to(&self, group: u32) {
        self.this().store(group, Ordering::Relaxed);
    }

    fn this(&self) -> &AtomicU32 {
        &self.0[thread_number() % THREADS].0
    }
}
