//! How much of what was written the kernel may hold before it brings it here.
//!
//! A write that the kernel caches has been promised room before any room was taken for it. So the kernel may hold a
//! quarter of the free space at most, and near the end of space next to nothing: a writer then waits until its bytes are
//! in place, and where there is no room for them it learns that after some more at most. With plenty of space the kernel
//! may hold as much as of a disk's filesystem, which is more than it allows a FUSE mount at first, lest a server that does
//! not answer hold memory for ever.
//!
//! The limit is a setting of the mount in sysfs, and root's to change; for others the kernel's own stays, which is one
//! hundredth of what it holds altogether.
//!
//! Space is looked at once in a while: when an eighth of what was free has been written since. Locks: none; one thread at a
//! time changes the limit, others go on.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

/// The least limit: a writer that waits all the time still gets some tens of megabytes a second.
const LEAST_BYTES: u64 = 128 * 1024;

/// In hundredths of what the kernel holds of all filesystems together, with plenty of space.
const SHARE: u64 = 40;

/// The limit where the kernel's share counts alone.
const SHARE_ALONE: u64 = u64::MAX;

const PAGE_BYTES: u64 = 4096;

/// Space is looked at again after so many bytes at least, and at most.
const AGAIN_BYTES: std::ops::RangeInclusive<u64> = 64 * 1024..=1 << 30;

/// The limit of one mount.
pub(crate) struct DirtyLimit {
    /// The directory of the settings, held: the path may be another mount's later. `None` where there is none.
    settings: Option<OwnedFd>,
    /// What [`SHARE`] comes to.
    share_bytes: u64,
    /// What was set last; zero before the first time.
    limit: AtomicU64,
    /// How much may be written before space is looked at again.
    left: AtomicI64,
    /// A thread changes the limit.
    changing: AtomicBool,
    /// The settings may be written.
    allowed: AtomicBool,
    /// The kernel may hold more than by itself: the server's threads do not wait for that memory.
    may_raise: bool,
}

impl DirtyLimit {
    /// The limit of the mount whose settings these are.
    pub(crate) fn new(settings: &Path) -> Self {
        Self { may_raise: crate::io_flusher::all_threads_are(), ..Self::at(settings, share_bytes()) }
    }

    fn at(settings: &Path, share_bytes: u64) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self {
            settings: rustix::fs::open(settings, flags, Mode::empty()).ok(),
            share_bytes,
            limit: AtomicU64::new(0),
            left: AtomicI64::new(0),
            changing: AtomicBool::new(false),
            allowed: AtomicBool::new(true),
            may_raise: true,
        }
    }

    /// So many bytes came. `free` tells how much space there is.
    pub(crate) fn note_written(&self, bytes: usize, free: impl FnOnce() -> Option<u64>) {
        let bytes = bytes.min(1 << 40) as i64;
        if self.left.fetch_sub(bytes, Ordering::Relaxed) <= bytes
            && let Some(free) = free()
        {
            self.adapt(free);
        }
    }

    /// Sets the limit that goes with so much free space.
    pub(crate) fn adapt(&self, free_bytes: u64) {
        let again = (free_bytes / 8).clamp(*AGAIN_BYTES.start(), *AGAIN_BYTES.end());
        self.left.store(again as i64, Ordering::Relaxed);
        let limit = self.limit_for(free_bytes);
        if self.limit.load(Ordering::Relaxed) == limit || self.changing.swap(true, Ordering::Acquire) {
            return;
        }
        if self.allowed.load(Ordering::Relaxed) && self.set(limit).is_err() {
            self.allowed.store(false, Ordering::Relaxed);
        }
        self.limit.store(limit, Ordering::Relaxed);
        self.changing.store(false, Ordering::Release);
    }

    /// Whether space was nearly used up when it was looked at last.
    pub(crate) fn is_least(&self) -> bool {
        self.limit.load(Ordering::Relaxed) == LEAST_BYTES
    }

    /// A power of two, so that it changes seldom.
    fn limit_for(&self, free_bytes: u64) -> u64 {
        let quarter = free_bytes / 4;
        if quarter >= self.share_bytes {
            return SHARE_ALONE;
        }
        quarter.checked_ilog2().map_or(0, |log| 1 << log).max(LEAST_BYTES)
    }

    fn set(&self, limit: u64) -> io::Result<()> {
        let settings = self.settings.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let set = |setting: &str, value: u64| {
            let file = rustix::fs::openat(
                settings,
                setting,
                OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            File::from(file).write_all(value.to_string().as_bytes())
        };
        if limit == SHARE_ALONE && self.may_raise {
            set("strict_limit", 0)?;
            return set("max_ratio", SHARE);
        }
        let by_itself = self.share_bytes / SHARE;
        if !self.may_raise && limit >= by_itself {
            set("max_ratio", 1)?;
            return set("strict_limit", 1);
        }
        // Before Linux 6.2 there are only whole hundredths.
        set("max_bytes", limit).or_else(|_| set("max_ratio", 1))?;
        set("strict_limit", 1)
    }
}

fn share_bytes() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let threshold = counters.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold "));
    let pages: u64 = threshold.and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * PAGE_BYTES / 100 * SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> (tempfile::TempDir, DirtyLimit) {
        let dir = tempfile::tempdir().unwrap();
        for setting in ["max_bytes", "max_ratio", "strict_limit"] {
            fs::write(dir.path().join(setting), "").unwrap();
        }
        let limit = DirtyLimit::at(dir.path(), 64 << 20);
        (dir, limit)
    }

    #[test]
    fn the_limit_is_a_quarter_of_the_free_space() {
        let (dir, limit) = settings();
        let setting = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        limit.adapt(1 << 30);
        assert_eq!((&*setting("strict_limit"), &*setting("max_ratio")), ("0", "40"));
        limit.adapt(255 << 20);
        assert_eq!((&*setting("strict_limit"), &*setting("max_bytes")), ("1", "33554432"));
        assert!(!limit.is_least());
        limit.adapt(0);
        assert_eq!(setting("max_bytes"), LEAST_BYTES.to_string());
        assert!(limit.is_least());
        limit.adapt(1 << 30);
        assert_eq!(setting("strict_limit"), "0");
    }

    #[test]
    fn space_is_looked_at_after_an_eighth_of_it_was_written() {
        let (_dir, limit) = settings();
        limit.adapt(80 << 20);
        for _ in 0..9 {
            limit.note_written(1 << 20, || panic!("too early"));
        }
        let mut looked = false;
        limit.note_written(1 << 20, || {
            looked = true;
            Some(70 << 20)
        });
        assert!(looked);
        limit.note_written(1 << 20, || panic!("too early"));
    }

    #[test]
    fn what_may_not_be_set_is_not_tried_again() {
        let limit = DirtyLimit::at(Path::new("/nonexistent"), 64 << 20);
        limit.adapt(1 << 30);
        limit.adapt(0);
        assert!(limit.is_least());
        assert!(!limit.allowed.load(Ordering::Relaxed));
    }
}
