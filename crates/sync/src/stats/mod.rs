//! Lock statistics per class, in the columns of Linux's `/proc/lock_stat`; switched on while the program runs.
//!
//! Off, an acquisition pays one relaxed load. On, it pays two readings of the clock and one of the processor
//! number, and counts in a shard of its processor, so that measuring adds no contention of its own. What counts
//! as an acquisition is a hold that began and ended, as in Linux; a lock that was taken before [`enable`] is not
//! counted. A `try_lock` that fails is not counted either.
//!
//! `counters` holds the shards, `probe` fills them, `report` adds them up.

pub(crate) mod counters;
pub(crate) mod probe;
mod report;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::LockClass;
use counters::ClassCounters;

pub use report::{ClassStats, Mode, Report};

// Real atomics under a model checker as well: what is counted never decides which thread runs.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Classes that were measured at least once.
#[expect(
    clippy::disallowed_types,
    reason = "taken inside the acquisition of any lock, so outside every order"
)]
static MEASURED: parking_lot::Mutex<Vec<&'static LockClass>> = parking_lot::Mutex::new(Vec::new());

/// Starts counting, on top of what was counted before.
pub fn enable() {
    ENABLED.store(true, Ordering::Relaxed);
}

/// Stops counting; what was counted stays.
pub fn disable() {
    ENABLED.store(false, Ordering::Relaxed);
}

/// Whether acquisitions are counted.
#[inline]
#[must_use]
pub fn is_enabled() -> bool {
    // Relaxed: nothing but the counters hangs on it.
    ENABLED.load(Ordering::Relaxed)
}

/// Sets every counter to zero. What other threads count at the same moment may survive or not.
pub fn reset() {
    for class in MEASURED.lock().iter() {
        if let Some(counters) = class.counters().get() {
            counters.reset();
        }
    }
}

/// What was counted so far, the most contended class first.
#[must_use]
pub fn report() -> Report {
    let mut rows = Vec::new();
    for class in MEASURED.lock().iter() {
        if let Some(counters) = class.counters().get() {
            rows.extend([Mode::Exclusive, Mode::Shared].map(|mode| counters.sum(class.name(), mode)));
        }
    }
    Report::new(rows)
}

/// The counters of `class`, which from now on is in the report.
fn counters_of(class: &'static LockClass) -> &'static ClassCounters {
    class.counters().get_or_init(|| {
        MEASURED.lock().push(class);
        Box::default()
    })
}
