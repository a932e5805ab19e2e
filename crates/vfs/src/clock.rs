//! The time of changes: nanoseconds, without asking the precise clock for each, and without writing a time that was
//! never read.
//!
//! A directory in which a million files are made changes a million times. Its time of change goes forward in the steps
//! of the system's coarse clock (milliseconds), so most changes find it written already and write nothing. But a
//! change after the time was read takes the precise clock, so a program that reads it twice sees every change in
//! between. That is how Linux does it ("multigrain timestamps"), and like there one rule makes it right: the coarse
//! clock is never taken to be behind a precise time that was given out (`FLOOR`).

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::Timestamp;

/// The latest precise time given out, in nanoseconds since 1970.
static FLOOR: AtomicU64 = AtomicU64::new(0);

/// The moment at which the clock stands still, in nanoseconds since 1970; zero while it goes.
static STILL: AtomicU64 = AtomicU64::new(0);

/// Marks a time that was read. Times without it reach until the year 2262.
const SEEN: u64 = 1 << 63;

const NANOSECONDS: u64 = 1_000_000_000;

/// The time now, in full precision.
#[must_use]
pub fn now() -> Timestamp {
    timestamp(precise())
}

/// Lets the clock of all filesystems of this process stand still from now on, for a program that makes an image whose bytes
/// must not depend on when it is made. A moment before 1970, or at its beginning, counts as the first nanosecond of it.
pub fn stand_still(at: Timestamp) {
    let nanoseconds = u64::try_from(at.seconds)
        .map_or(0, |seconds| seconds.saturating_mul(NANOSECONDS).saturating_add(at.nanoseconds.into()));
    STILL.store(nanoseconds.clamp(1, SEEN - 1), Ordering::Relaxed);
}

/// A moment in steps of some milliseconds, never before a precise time that was given out earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coarse(u64);

impl Coarse {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        match STILL.load(Ordering::Relaxed) {
            0 => Self(read(ClockId::RealtimeCoarse).max(FLOOR.load(Ordering::Relaxed))),
            still => Self(still),
        }
    }

    /// As nanoseconds since 1970.
    #[must_use]
    pub fn as_nanoseconds(self) -> u64 {
        self.0
    }

    /// From what [`as_nanoseconds`](Self::as_nanoseconds) gave.
    #[must_use]
    pub fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// As a time.
    #[must_use]
    pub fn timestamp(self) -> Timestamp {
        timestamp(self.0)
    }
}

/// The time of the last change of something, kept without a lock.
///
/// | value           | meaning                                         |
/// | --------------- | ----------------------------------------------- |
/// | 0               | no change since [`reset`](Self::reset)          |
/// | a time          | changed then; not read since                    |
/// | either + `SEEN` | read since; the next change must show           |
#[derive(Debug, Default)]
pub struct ChangeTime(AtomicU64);

impl ChangeTime {
    /// Nothing has changed yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// It changes at a moment that was read just before, once for several changes.
    pub fn touch(&self, moment: Coarse) {
        let mut last = self.0.load(Ordering::Relaxed);
        loop {
            let now = if last & SEEN == 0 {
                if moment.0 <= last {
                    return;
                }
                moment.0
            } else {
                precise().max((last & !SEEN) + 1)
            };
            match self.0.compare_exchange_weak(last, now, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    /// When it last changed; `None` if it has not since it was reset. The next change will be seen to be later.
    #[must_use]
    pub fn look(&self) -> Option<Timestamp> {
        let last = self.0.load(Ordering::Relaxed);
        if last & SEEN == 0 {
            // Should it change at this moment, the new time is later than what is answered here.
            let _ = self.0.compare_exchange(last, last | SEEN, Ordering::Relaxed, Ordering::Relaxed);
        }
        let time = last & !SEEN;
        (time != 0).then(|| timestamp(time))
    }

    /// Forgets the last change: another time is set in its place, elsewhere.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

fn precise() -> u64 {
    let still = STILL.load(Ordering::Relaxed);
    if still != 0 {
        return still;
    }
    let now = read(ClockId::Realtime);
    FLOOR.fetch_max(now, Ordering::Relaxed).max(now)
}

/// A clock that stands before 1970 counts as 1970.
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    (seconds.saturating_mul(NANOSECONDS).saturating_add(now.tv_nsec.unsigned_abs())).min(SEEN - 1)
}

fn timestamp(nanoseconds: u64) -> Timestamp {
    Timestamp { seconds: (nanoseconds / NANOSECONDS) as i64, nanoseconds: (nanoseconds % NANOSECONDS) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_between_two_looks_is_seen() {
        let time = ChangeTime::new();
        assert_eq!(time.look(), None);
        let mut last = None;
        for _ in 0..1000 {
            time.touch(Coarse::now());
            let seen = time.look();
            assert!(seen > last);
            last = seen;
        }
        time.reset();
        assert_eq!(time.look(), None);
    }

    #[test]
    fn a_change_that_was_not_seen_is_seldom_written() {
        let time = ChangeTime::new();
        let mut writes = 0;
        let mut last = 0;
        for _ in 0..100_000 {
            time.touch(Coarse::now());
            let now = time.0.load(Ordering::Relaxed);
            assert!(now >= last);
            writes += u32::from(now != last);
            last = now;
        }
        // Other tests of this process move the floor now and then.
        assert!(writes < 50_000, "{writes} writes");
    }

    #[test]
    fn coarse_time_is_never_before_a_precise_one() {
        for _ in 0..1000 {
            let precise = now();
            assert!(Coarse::now().timestamp() >= precise);
        }
    }
}
