//! Read errors of a member that were corrected: what it could not read was had from the others, written to it again, and
//! taken.
//!
//! All that ever were are counted in its superblock, as Linux does. Those of late are limited: their number is halved
//! with each hour that passes without one, and a member beyond [`MAX_RECENT`] has failed, since it will lose what the
//! others cannot give any more. Source: `md(4)` on `max_read_errors`; `drivers/md/raid1-10.c`, read for facts.
//!
//! Called where a read has failed only. No locks: of two errors at the same moment one may be forgotten.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What Linux allows.
pub(crate) const MAX_RECENT: u32 = 20;
const HALVED_AFTER: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(crate) struct CorrectedReads {
    total: AtomicU32,
    recent: AtomicU32,
    /// When the first one was counted here, and seconds from then to the last one.
    first: OnceLock<Instant>,
    last_seconds: AtomicU64,
}

impl CorrectedReads {
    /// All that ever were.
    pub(crate) fn total(&self) -> u32 {
        self.total.load(Ordering::Relaxed)
    }

    /// As many were counted before the array was opened.
    pub(crate) fn set_total(&self, total: u32) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// One more. Returns how many there were of late, if these are too many.
    pub(crate) fn count(&self) -> Option<u32> {
        self.count_at(Instant::now())
    }

    fn count_at(&self, now: Instant) -> Option<u32> {
        let seconds = now.saturating_duration_since(*self.first.get_or_init(|| now)).as_secs();
        let before = self.last_seconds.swap(seconds, Ordering::Relaxed);
        let halvings = seconds.saturating_sub(before) / HALVED_AFTER.as_secs();
        let left =
            self.recent.load(Ordering::Relaxed).checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX));
        let recent = left.unwrap_or(0).saturating_add(1);
        self.recent.store(recent, Ordering::Relaxed);
        self.total.store(self.total().saturating_add(1), Ordering::Relaxed);
        (recent > MAX_RECENT).then_some(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_late_are_limited_and_halved_by_the_hour() {
        let (reads, start) = (CorrectedReads::default(), Instant::now());
        reads.set_total(5);
        for _ in 0..MAX_RECENT {
            assert_eq!(reads.count_at(start), None);
        }
        assert_eq!(reads.count_at(start + Duration::from_secs(3500)), Some(MAX_RECENT + 1));
        // Half of 21 are left, and one comes.
        assert_eq!(reads.count_at(start + Duration::from_secs(3500 + 3600)), None);
        assert_eq!(reads.recent.load(Ordering::Relaxed), 11);
        assert_eq!(reads.count_at(start + Duration::from_secs(1 << 40)), None);
        assert_eq!(reads.recent.load(Ordering::Relaxed), 1);
        assert_eq!(reads.total(), 5 + MAX_RECENT + 3);
    }
}
