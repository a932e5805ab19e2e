//! Files for which a cached write has failed.
//!
//! The kernel tells a failed write-back with the next `fsync` or `close`, and goes on caching meanwhile. So the failure is
//! kept here: the kernel forgets the file's attributes, asks for them before it caches another write, and gets the failure
//! for an answer, which is what `write(2)` then fails with. Each failure is told once at least; that there is no space is
//! told until there is some.
//!
//! Locks: none. As a rule nothing is kept, which is all that other files' requests look at.

use papaya::HashMap;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::nodes::NodeId;

/// The files, each with its last failure.
#[derive(Default)]
pub(crate) struct FailedWrites {
    failures: HashMap<u64, Failure>,
}

struct Failure {
    errno: Errno,
    told: AtomicBool,
}

/// Whether room would help.
fn is_for_room(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

impl FailedWrites {
    /// A cached write to this file has failed. Several that fail for the same reason, one after the other, are one.
    pub(crate) fn note(&self, id: NodeId, errno: Errno) {
        let failures = self.failures.pin();
        if failures.get(&id.0).is_none_or(|failure| failure.errno != errno) {
            failures.insert(id.0, Failure { errno, told: AtomicBool::new(false) });
        }
    }

    /// Whether a failure is kept.
    pub(crate) fn contains(&self, id: NodeId) -> bool {
        !self.failures.is_empty() && self.failures.pin().contains_key(&id.0)
    }

    /// What the next write to this file fails with. `has_room` tells whether there is space; it may wait.
    pub(crate) fn tell(&self, id: NodeId, has_room: impl FnOnce() -> bool) -> Option<Errno> {
        if self.failures.is_empty() {
            return None;
        }
        let (errno, is_first) = {
            let failures = self.failures.pin();
            let failure = failures.get(&id.0)?;
            (failure.errno, !failure.told.swap(true, Ordering::Relaxed))
        };
        if is_first || (is_for_room(errno) && !has_room()) {
            return Some(errno);
        }
        self.is_over(id, errno);
        None
    }

    /// The file is reopened: that there was no space is nothing to this opening, if there is some now. `has_room` may wait.
    pub(crate) fn reopen(&self, id: NodeId, has_room: impl FnOnce() -> bool) {
        if self.failures.is_empty() {
            return;
        }
        let errno = self.failures.pin().get(&id.0).map(|failure| failure.errno);
        if let Some(errno) = errno.filter(|&errno| is_for_room(errno))
            && has_room()
        {
            self.is_over(id, errno);
        }
    }

    /// Another failure that has come meanwhile stays.
    fn is_over(&self, id: NodeId, errno: Errno) {
        let _ = self.failures.pin().remove_if(&id.0, |_, failure| failure.errno == errno);
    }

    /// What failed is cut off, or the kernel has forgotten the file.
    pub(crate) fn forget(&self, id: NodeId) {
        if !self.failures.is_empty() {
            self.failures.pin().remove(&id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: NodeId = NodeId(12);

    #[test]
    fn lack_of_space_is_told_until_there_is_some() {
        let failed = FailedWrites::default();
        assert_eq!(failed.tell(FILE, || false), None);
        failed.note(FILE, Errno::NOSPC);
        assert_eq!(failed.tell(NodeId(13), || false), None);
        assert_eq!(failed.tell(FILE, || true), Some(Errno::NOSPC));
        assert_eq!(failed.tell(FILE, || false), Some(Errno::NOSPC));
        failed.note(FILE, Errno::NOSPC);
        assert_eq!(failed.tell(FILE, || true), None);
        assert_eq!(failed.tell(FILE, || false), None);
    }

    #[test]
    fn other_failures_are_told_once() {
        let failed = FailedWrites::default();
        failed.note(FILE, Errno::IO);
        failed.reopen(FILE, || true);
        assert_eq!(failed.tell(FILE, || false), Some(Errno::IO));
        assert_eq!(failed.tell(FILE, || false), None);
        failed.note(FILE, Errno::IO);
        failed.forget(FILE);
        assert_eq!(failed.tell(FILE, || false), None);
    }

    #[test]
    fn a_failure_that_comes_while_room_is_waited_for_is_told() {
        let failed = FailedWrites::default();
        for end in [
            |failed: &FailedWrites, wait: &dyn Fn() -> bool| assert_eq!(failed.tell(FILE, wait), None),
            |failed: &FailedWrites, wait: &dyn Fn() -> bool| failed.reopen(FILE, wait),
        ] {
            failed.note(FILE, Errno::NOSPC);
            assert_eq!(failed.tell(FILE, || false), Some(Errno::NOSPC));
            end(&failed, &|| {
                failed.note(FILE, Errno::IO);
                true
            });
            assert_eq!(failed.tell(FILE, || true), Some(Errno::IO));
            assert_eq!(failed.tell(FILE, || true), None);
        }
    }

    #[test]
    fn a_new_opening_hears_of_no_lack_of_space_that_is_over() {
        let failed = FailedWrites::default();
        failed.note(FILE, Errno::NOSPC);
        failed.reopen(FILE, || false);
        assert_eq!(failed.tell(FILE, || false), Some(Errno::NOSPC));
        failed.reopen(FILE, || true);
        assert_eq!(failed.tell(FILE, || false), None);
    }
}
