//! The times of changes and the count of changes in an inode's core.

use undercroft_vfs::Timestamp;

use super::Inode;
use crate::format::dinode::DiFlags2;
use crate::format::time;

impl Inode {
    /// The time that the inode keeps when it is given `time`: the nearest of those that its form of times has.
    pub(crate) fn nearest_time(&self, time: Timestamp) -> Timestamp {
        time::nearest(time, self.core.flags2.contains(DiFlags2::BIGTIME))
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
