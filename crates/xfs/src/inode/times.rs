//! The times of changes and the count of changes in an inode's core.

use undercroft_vfs::Timestamp;

use super::Inode;
use crate::format::dinode::DiFlags2;

impl Inode {
    /// The time that the inode keeps when it is given `time`: the nearest of those that its form of times has.
    pub(crate) fn nearest_time(&self, time: Timestamp) -> Timestamp {
        // The last moment of bigtime is 2^64 nanoseconds after the first.
        const BIGTIME_LAST: Timestamp = Timestamp { seconds: 16_299_260_425, nanoseconds: 709_551_615 };
        const LAST: Timestamp = Timestamp { seconds: i32::MAX as i64, nanoseconds: 999_999_999 };
        const FIRST: Timestamp = Timestamp { seconds: i32::MIN as i64, nanoseconds: 0 };
        let last = if self.core.flags2.contains(DiFlags2::BIGTIME) { BIGTIME_LAST } else { LAST };
        let order = |time: &Timestamp| (time.seconds, time.nanoseconds);
        if order(&time) < order(&FIRST) {
            FIRST
        } else if order(&time) > order(&last) {
            last
        } else {
            time
        }
    }

    /// Notes a change at `now` that is not one of content.
    pub(crate) fn note_change(&mut self, now: Timestamp) {
        self.core.changed = self.nearest_time(now);
        self.note_version();
    }

    /// Notes a change whose time is set by another caller.
    pub(crate) fn note_version(&mut self) {
        self.core.change_count = self.core.change_count.wrapping_add(1);
    }

    /// Notes a change of content at `now`.
    pub(crate) fn note_modification(&mut self, now: Timestamp) {
        self.note_change(now);
        self.core.modified = self.core.changed;
    }
}
