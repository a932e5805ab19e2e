//! The clock that everything is measured with: monotonic, and the same in every process of the machine.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment before the machine's start.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
