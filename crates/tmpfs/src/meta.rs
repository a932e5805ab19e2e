//! An inode's attributes: those that a user sets, and those that change by themselves.
//!
//! What is set (permissions, owner, times given by `utimensat`) is read without a lock and written under one. Times
//! that change because the content or the inode changed are [`ChangeTime`]s, which need no lock either; the later
//! ones count. A time that is set takes the place of what was touched before.

use std::sync::atomic::{AtomicBool, Ordering};

use undercroft_sync::{Mutex, order};
use undercroft_vfs::clock::{self, ChangeTime, Coarse};
use undercroft_vfs::{AttrChange, FileType, InodeFlags, NewTime, Ownership, Timestamp};

use crate::words::Words;

pub(crate) struct Meta {
    set: Words<WORDS>,
    /// Held to write `set`.
    writing: Mutex<()>,
    /// Content changed, and with it the inode.
    content: ChangeTime,
    /// The inode changed, and the content did not.
    inode: ChangeTime,
    /// A cache above sets these times, and nothing else moves them.
    cache_keeps_times: AtomicBool,
}

/// What a user has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) flags: InodeFlags,
    pub(crate) project: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) created: Coarse,
}

const WORDS: usize = 8;

impl Meta {
    /// Of an inode that is made at this moment.
    pub(crate) fn new(permissions: u16, uid: u32, gid: u32, moment: Coarse) -> Self {
        let now = moment.timestamp();
        let settings = Settings {
            permissions,
            uid,
            gid,
            flags: InodeFlags::empty(),
            project: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: moment,
        };
        Self {
            set: Words::new(settings.to_words()),
            writing: Mutex::new(&order::INODE_ATTRIBUTES, ()),
            content: ChangeTime::new(),
            inode: ChangeTime::new(),
            cache_keeps_times: AtomicBool::new(false),
        }
    }

    /// From now on a cache above sets the times of changes. For regular files.
    pub(crate) fn leave_times_to_cache(&self) {
        if !self.cache_keeps_times.load(Ordering::Relaxed) {
            self.cache_keeps_times.store(true, Ordering::Relaxed);
        }
    }

    /// Everything as it is now.
    pub(crate) fn read(&self) -> Settings {
        let mut settings = Settings::from_words(self.set.read());
        if let Some(touched) = self.content.look() {
            settings.modified = touched;
            settings.changed = settings.changed.max(touched);
        }
        if let Some(touched) = self.inode.look() {
            settings.changed = settings.changed.max(touched);
        }
        settings
    }

    /// Permissions, owner and flags.
    pub(crate) fn ownership(&self, kind: FileType) -> Ownership {
        let Settings { permissions, uid, gid, flags, .. } = Settings::from_words(self.set.read());
        Ownership { kind, permissions, uid, gid, flags }
    }

    /// The content changed.
    pub(crate) fn touch_content(&self, moment: Coarse) {
        if !self.cache_keeps_times.load(Ordering::Relaxed) || self.is_uncached() {
            self.content.touch(moment);
        }
    }

    /// Whether no cache above takes what is written.
    fn is_uncached(&self) -> bool {
        let flags = Settings::from_words(self.set.read()).flags;
        flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    }

    /// The inode changed.
    pub(crate) fn touch_inode(&self, moment: Coarse) {
        if !self.cache_keeps_times.load(Ordering::Relaxed) {
            self.inode.touch(moment);
        }
    }

    pub(crate) fn change(&self, change: &AttrChange) {
        let _writing = self.writing.lock();
        // With what was touched before, which a time that is set takes the place of.
        let mut settings = Settings::from_words(self.set.read());
        let now = clock::now();
        let time = |new: NewTime| match new {
            NewTime::Now => now,
            NewTime::At(time) | NewTime::NowAs(time) => time,
        };
        settings.permissions = change.permissions.unwrap_or(settings.permissions);
        settings.uid = change.uid.unwrap_or(settings.uid);
        settings.gid = change.gid.unwrap_or(settings.gid);
        settings.flags = change.flags.unwrap_or(settings.flags);
        settings.project = change.project.unwrap_or(settings.project);
        settings.accessed = change.accessed.map_or(settings.accessed, time);
        settings.changed = match change.changed {
            Some(changed) => changed,
            None if self.cache_keeps_times.load(Ordering::Relaxed) => settings.changed,
            None => now,
        };
        if let Some(modified) = change.modified {
            settings.modified = time(modified);
            self.content.reset();
        }
        if change.changed.is_some() {
            self.inode.reset();
        }
        self.set.write(settings.to_words());
    }
}

impl Settings {
    fn to_words(self) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let times = [self.accessed, self.modified, self.changed];
        let [a, m, c] = times.map(|time| time.seconds.cast_unsigned());
        let [an, mn, cn] = times.map(|time| time.nanoseconds);
        [
            pair(self.permissions.into(), self.project),
            pair(self.uid, self.gid),
            a,
            m,
            c,
            pair(an, mn),
            pair(cn, self.flags.bits()),
            self.created.as_nanoseconds(),
        ]
    }

    fn from_words([mode, owner, a, m, c, am, cf, created]: [u64; WORDS]) -> Self {
        let time = |seconds: u64, nanoseconds: u64| Timestamp {
            seconds: seconds.cast_signed(),
            nanoseconds: nanoseconds as u32,
        };
        Self {
            permissions: mode as u16,
            uid: owner as u32,
            gid: (owner >> 32) as u32,
            flags: InodeFlags::from_bits_retain((cf >> 32) as u32),
            project: (mode >> 32) as u32,
            accessed: time(a, am),
            modified: time(m, am >> 32),
            changed: time(c, cf),
            created: Coarse::from_nanoseconds(created),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_packing() {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let settings = Settings {
            permissions: 0o7531,
            uid: u32::MAX,
            gid: 77,
            flags: InodeFlags::IMMUTABLE | InodeFlags::APPEND,
            project: 99,
            accessed: time(-5, 1),
            modified: time(i64::MAX, 999_999_999),
            changed: time(0, 3),
            created: Coarse::now(),
        };
        assert_eq!(Settings::from_words(settings.to_words()), settings);
    }

    #[test]
    fn a_time_that_is_set_stays_until_the_next_change() {
        let meta = Meta::new(0o644, 0, 0, Coarse::now());
        let past = Timestamp { seconds: 1000, nanoseconds: 5 };
        let before = meta.read().changed;
        meta.touch_content(Coarse::now());
        meta.change(&AttrChange { modified: Some(NewTime::At(past)), ..AttrChange::default() });
        let set = meta.read();
        assert_eq!(set.modified, past);
        assert!(set.changed > before);
        meta.touch_inode(Coarse::now());
        assert_eq!(meta.read().modified, past);
        assert!(meta.read().changed > set.changed);
        meta.touch_content(Coarse::now());
        let touched = meta.read();
        assert!(touched.modified > past);
        assert_eq!(touched.modified, touched.changed);
    }
}
