//! Waiting for the space of deleted files.
//!
//! The space of a deleted file is freed when the kernel forgets its inode. The kernel sends that forget after the reply to
//! the call that removed the name, from a queue, in batches. So a request that finds no space is retried when an unlinked
//! inode has been deleted. It fails when no unlinked inode is left, or when none was deleted for [`PATIENCE`]. Unlinked inodes
//! that a program holds open are not waited for again before they are closed; each later request waits only briefly for
//! notice of such a close.
//!
//! A request for the free space after a name was removed waits in the same way, once, so that it shows what came back.
//!
//! Without a failure this costs one addition for each name that is removed, on a line that few threads share.
//!
//! Locks: none of its own.

use std::time::{Duration, Instant};

use undercroft_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use undercroft_sync::{WaitQueue, thread_number};
use undercroft_vfs::{Error, Result, StatFs};

use crate::nodes::NodeId;
use crate::server::Server;

/// A request fails when no inode was deleted for so long: the kernel's thread that forgets one may itself wait that long for a
/// processor.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for a request that only tells the free space, and for requests beside one that waits: each occupies an event loop,
/// of which others are to bring what is waited for.
const PATIENCE_BESIDE: Duration = Duration::from_millis(200);
/// The kernel tells of a close when the call has returned, perhaps after the request that follows it.
const PATIENCE_FOR_CLOSE: Duration = Duration::from_millis(20);
/// A request waits at most this long, whatever is deleted meanwhile: others may take the space.
const PATIENCE_MAX: Duration = Duration::from_secs(2);
/// Lines over which the names that are removed are counted.
const LINES: usize = 16;

/// Padded to its own cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Inodes that go, as far as the kernel's forgets tell.
pub(crate) struct Returning {
    /// What may leave an unlinked inode or a program that has it open.
    events: [Line; LINES],
    /// Unlinked inodes that are being let go of.
    going: AtomicUsize,
    /// Unlinked inodes that were let go of.
    gone: AtomicU64,
    waiters: WaitQueue,
    /// Inodes that were waited for in vain.
    stayed: AtomicUsize,
    /// How many events there had been when it was last found that nothing comes back.
    in_vain_at: AtomicU64,
    /// How many events there had been when the free space was last told.
    told_at: AtomicU64,
    /// A request waits to tell it.
    telling: AtomicBool,
    /// A request waits for space with all [`PATIENCE`].
    waiting: AtomicBool,
}

impl Returning {
    pub(crate) fn new() -> Self {
        Self {
            events: std::array::from_fn(|_| Line::default()),
            going: AtomicUsize::new(0),
            gone: AtomicU64::new(0),
            waiters: WaitQueue::new(),
            stayed: AtomicUsize::new(0),
            in_vain_at: AtomicU64::new(0),
            told_at: AtomicU64::new(0),
            telling: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
        }
    }

    /// Space may come back: a name was removed, or a file without one was made or closed.
    pub(crate) fn expect(&self) {
        self.events[thread_number() % LINES].0.fetch_add(1, Ordering::Relaxed);
    }

    fn events(&self) -> u64 {
        self.events.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }

    /// An unlinked inode is let go of while this lives.
    pub(crate) fn going(&self) -> Going<'_> {
        self.going.fetch_add(1, Ordering::SeqCst);
        Going(self)
    }

    pub(crate) fn is_any_going(&self) -> bool {
        self.going.load(Ordering::SeqCst) > 0
    }

    fn gone(&self) -> u64 {
        self.gone.load(Ordering::SeqCst)
    }

    /// One more inode, or one less, was waited for in vain.
    pub(crate) fn stays(&self) {
        self.stayed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stays_no_longer(&self) {
        self.stayed.fetch_sub(1, Ordering::Relaxed);
        self.waiters.wake_all();
    }

    fn is_any_staying(&self) -> bool {
        self.stayed.load(Ordering::Relaxed) > 0
    }
}

/// The one request that does something while others may not; a flag says that there is one.
struct Only<'a>(&'a AtomicBool);

impl<'a> Only<'a> {
    /// `None` while there is one.
    fn new(flag: &'a AtomicBool) -> Option<Self> {
        // Made only where there is none: it clears the flag when it goes.
        (!flag.swap(true, Ordering::Acquire)).then(|| Self(flag))
    }
}

impl Drop for Only<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// See [`Returning::going`].
pub(crate) struct Going<'a>(&'a Returning);

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Ordering::SeqCst);
        self.0.going.fetch_sub(1, Ordering::SeqCst);
        self.0.waiters.wake_all();
    }
}

impl Server {
    /// Does something, and again as long as it finds no space and some comes back. What failed has changed nothing, or
    /// nothing that doing it again does not do.
    pub(crate) fn with_space<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        match attempt() {
            Err(Error::NoSpace) => self.when_space_comes(attempt),
            answer => answer,
        }
    }

    #[cold]
    fn when_space_comes<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let returning = self.nodes().returning();
        let began = Instant::now();
        let patient = Only::new(&returning.waiting);
        let patience = if patient.is_some() { PATIENCE } else { PATIENCE_BESIDE };
        loop {
            let events = returning.events();
            if began.elapsed() > PATIENCE_MAX {
                return Err(Error::NoSpace);
            }
            if returning.in_vain_at.load(Ordering::Relaxed) == events {
                let is_closed = returning.is_any_staying()
                    && returning.waiters.wait_timeout(PATIENCE_FOR_CLOSE, || returning.events() != events);
                if !is_closed {
                    return Err(Error::NoSpace);
                }
                continue;
            }
            // What came back since the last attempt is seen by this one.
            let gone = returning.gone();
            match attempt() {
                Err(Error::NoSpace) => {}
                answer => return answer,
            }
            if returning.gone() != gone {
                continue;
            }
            let left = PATIENCE_MAX.saturating_sub(began.elapsed());
            let comes = self.nodes().has_unlinked()
                && returning.waiters.wait_timeout(patience.min(left), || returning.gone() != gone);
            // A large file may take longer.
            if !comes && returning.gone() == gone && !returning.is_any_going() {
                if patient.is_none() && returning.waiting.load(Ordering::Relaxed) {
                    // What is waited for in vain is for the other request to say.
                    return Err(Error::NoSpace);
                }
                self.nodes().note_staying();
                returning.in_vain_at.store(events, Ordering::Relaxed);
            }
        }
    }

    /// Free and used space, with what names that were removed before give back; but for inodes that programs have open,
    /// and for closes of such that the kernel has not told of yet.
    pub(crate) fn statfs_after_deletions(&self) -> Result<StatFs> {
        self.await_returning();
        self.statfs()
    }

    fn await_returning(&self) {
        let returning = self.nodes().returning();
        let (began, events) = (Instant::now(), returning.events());
        if returning.told_at.load(Ordering::Relaxed) == events && !returning.is_any_going() {
            return;
        }
        // It occupies an event loop, of which the others are to bring what is waited for.
        let Some(_telling) = Only::new(&returning.telling) else { return };
        loop {
            let gone = returning.gone();
            if !self.nodes().has_unlinked() || began.elapsed() > PATIENCE_MAX {
                break;
            }
            let comes = returning.waiters.wait_timeout(PATIENCE_BESIDE, || returning.gone() != gone);
            if !comes && !returning.is_any_going() {
                self.nodes().note_staying();
                break;
            }
        }
        returning.told_at.store(events, Ordering::Relaxed);
    }

    /// A program has closed a file.
    pub(crate) fn closed(&self, id: NodeId) {
        if self.nodes().returning().is_any_staying() {
            self.nodes().note_closed(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beside_the_only_one_leave_it_the_only_one() {
        let flag = AtomicBool::new(false);
        let first = Only::new(&flag);
        assert!(first.is_some());
        for _ in 0..3 {
            assert!(Only::new(&flag).is_none());
        }
        drop(first);
        assert!(Only::new(&flag).is_some());
        assert!(Only::new(&flag).is_some());
    }
}
