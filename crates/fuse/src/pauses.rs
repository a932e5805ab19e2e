//! Making changes durable as soon as they pause.
//!
//! `sync(2)` and `syncfs(2)` send nothing to an ordinary FUSE mount: at most the kernel begins to write back what it
//! caches. So what the server was given is made durable by itself when nothing more comes for a moment.
//!
//! A request that may have changed something notes that when it is done: a look at a state that is written once in a
//! pause. One thread sleeps until there is a change, and then until a pause has gone by without another.
//!
//! | state   | meaning                                                                 |
//! | ------- | ----------------------------------------------------------------------- |
//! | CLEAN   | what was changed is durable, or the thread is about to make it durable   |
//! | CHANGED | something has changed since the thread looked                           |
//! | WATCHED | something has changed, and nothing since the thread looked               |

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use undercroft_sync::WaitQueue;

const CLEAN: u8 = 0;
const CHANGED: u8 = 1;
const WATCHED: u8 = 2;

/// Changes, and the pauses between them.
#[derive(Debug)]
pub(crate) struct Pauses {
    state: AtomicU8,
    ended: AtomicBool,
    /// The thread waits here for a change,
    clean: WaitQueue,
    /// and here for the end of a pause, or of everything.
    watching: WaitQueue,
}

impl Pauses {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU8::new(CLEAN),
            ended: AtomicBool::new(false),
            clean: WaitQueue::new(),
            watching: WaitQueue::new(),
        }
    }

    /// Something may have changed just now.
    pub(crate) fn note_change(&self) {
        if self.state.load(Ordering::Relaxed) != CHANGED
            && self.state.swap(CHANGED, Ordering::AcqRel) == CLEAN
        {
            self.clean.wake_all();
        }
    }

    /// Waits until something has changed, and nothing more for between one and two times `pause`. `false` at the
    /// [end](Self::end).
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let ended = || self.ended.load(Ordering::Acquire);
        self.clean.wait(|| ended() || self.is_changed());
        self.watch(|| self.watching.wait_timeout(pause, ended))
    }

    /// Something has changed since the last pause.
    fn is_changed(&self) -> bool {
        self.state.load(Ordering::Relaxed) != CLEAN
    }

    /// `pass` lets one pause pass, and answers whether the end came. Returns after the first in which nothing changed, or
    /// with `false` at the end.
    fn watch(&self, mut pass: impl FnMut() -> bool) -> bool {
        loop {
            self.state.store(WATCHED, Ordering::Release);
            if pass() {
                return false;
            }
            // Before the changes are made durable: one that comes from here on may be missed by that.
            if self.state.compare_exchange(WATCHED, CLEAN, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// No thread waits any longer.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.clean.wake_all();
        self.watching.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(1);

    #[test]
    fn a_pause_comes_after_the_last_change_and_once() {
        for changes in 0..5 {
            let pauses = Pauses::new();
            assert!(!pauses.is_changed(), "there is nothing to wait for");
            pauses.note_change();
            let mut passed = 0;
            let is_pause = pauses.watch(|| {
                passed += 1;
                if passed <= changes {
                    // Several in one are as good as one.
                    (0..passed).for_each(|_| pauses.note_change());
                }
                false
            });
            assert!(is_pause);
            assert_eq!(passed, changes + 1, "the pause is the first without a change");
            assert!(!pauses.is_changed(), "the same changes would be told again");
        }
    }

    #[test]
    fn a_change_after_the_pause_is_one_more() {
        let pauses = Pauses::new();
        pauses.note_change();
        assert!(pauses.watch(|| false));
        pauses.note_change();
        assert!(pauses.is_changed());
        assert!(pauses.watch(|| false));
        assert!(!pauses.is_changed());
    }

    #[test]
    fn the_end_is_no_pause() {
        let pauses = Pauses::new();
        pauses.note_change();
        assert!(!pauses.watch(|| true));
        pauses.end();
        assert!(!pauses.wait(PAUSE));
    }

    #[test]
    fn a_waiter_is_woken_by_a_change_and_by_the_end() {
        let pauses = Pauses::new();
        let (tell, told) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                while pauses.wait(PAUSE) {
                    tell.send(()).unwrap();
                }
                drop(tell);
            });
            for _ in 0..20 {
                pauses.note_change();
                told.recv().unwrap();
            }
            pauses.end();
            assert!(told.recv().is_err(), "no pause without a change");
        });
    }
}
