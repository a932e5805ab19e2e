//! The number of the calling thread, for data that is kept apart for each thread or for groups of few.

use crate::primitives;

/// A number that the calling thread keeps: threads are dealt out one after the other, from 0, so that the few that
/// work together fall on different remainders. Numbers are not given out again.
#[must_use]
pub fn thread_number() -> usize {
    primitives::thread_number()
}
