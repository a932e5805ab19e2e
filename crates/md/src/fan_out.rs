//! Requests to several members at once.
//!
//! Members that answer quickly (memory, page cache) are called one after the other by the caller's own thread: to hand
//! a request to another thread and hear of its end costs about 30 us, more than such a member takes. Members that are
//! slow are called at the same time, all but one by helper threads. Which they are is measured: each member keeps a
//! [`Pace`] for its transfers and one for its flushes.
//!
//! Helpers are shared by all arrays (see `helpers`). When too many are at work the caller does the rest itself.

#![expect(unsafe_code, reason = "a helper borrows what its caller lent it, and the caller waits for it")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{any, mem};

use undercroft_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use undercroft_sync::{Mutex, WaitQueue, order};

use crate::helpers::{Job, Pool};

/// From this time on a call is worth a helper.
const SLOW_NS: u32 = 100_000;
/// What a transfer in memory costs is no sign of a slow member: nanoseconds for each KiB, at 1 GiB/s.
const NS_PER_KIB: u64 = 1000;
/// Beyond 256 at work, callers do their work themselves.
static HELPERS: Pool = Pool::new(256);

/// How long a member takes for a call, besides moving the bytes: a moving average.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU32);

impl Pace {
    pub(crate) fn is_slow(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= SLOW_NS
    }

    /// A call that moved `bytes` took this long.
    pub(crate) fn note(&self, took: Duration, bytes: u64) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let besides = took_ns.saturating_sub(bytes / 1024 * NS_PER_KIB).min(u64::from(u32::MAX));
        let old = u64::from(self.0.load(Ordering::Relaxed));
        // An eighth of the new one. Of two threads that note at once one is forgotten, which does no harm.
        let new = old - old / 8 + besides / 8;
        self.0.store(new.min(u64::from(u32::MAX)) as u32, Ordering::Relaxed);
    }
}

/// Runs `work` on each task, at the same time where the members are slow, and returns when all are done. `pace` says
/// whose pace a task goes at, and how many bytes it moves.
pub(crate) fn at_once<T: Send>(
    tasks: &mut [T],
    pace: impl Fn(&T) -> (&Pace, u64) + Sync,
    work: impl Fn(&mut T) + Sync,
) {
    let timed = |task: &mut T| {
        let begun = Instant::now();
        work(task);
        let (pace, bytes) = pace(task);
        pace.note(begun.elapsed(), bytes);
    };
    let slow = tasks.iter().filter(|task| pace(task).0.is_slow()).count();
    let mut to_hand_out = slow.saturating_sub(1);
    let lent = Lent::default();
    let mut own = Vec::new();
    if to_hand_out == 0 {
        tasks.iter_mut().for_each(timed);
        return;
    }
    for task in tasks {
        if to_hand_out > 0 && pace(task).0.is_slow() {
            to_hand_out -= 1;
            // The closures and tasks outlive `lent`, which waits when it is dropped.
            if let Err(task) = lent.hand_out(task, &timed) {
                own.push(task);
            }
        } else {
            own.push(task);
        }
    }
    own.into_iter().for_each(timed);
    lent.wait();
}

/// Work that helpers do with what was borrowed for it; all of it is done when this is gone.
#[derive(Default)]
struct Lent(Arc<Outcome>);

struct Outcome {
    under_way: AtomicUsize,
    done: WaitQueue,
    /// The first panic of a helper.
    panic: Mutex<Option<Box<dyn any::Any + Send>>>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            done: WaitQueue::new(),
            panic: Mutex::new(&order::HELPERS, None),
        }
    }
}

impl Lent {
    /// Gives the task to a helper, or back if there is none. Both are borrowed until this value has been dropped.
    fn hand_out<'a, T: Send>(
        &self,
        task: &'a mut T,
        work: &'a (impl Fn(&mut T) + Sync),
    ) -> Result<(), &'a mut T> {
        let Some(helper) = HELPERS.find() else { return Err(task) };
        let outcome = Arc::clone(&self.0);
        outcome.under_way.fetch_add(1, Ordering::Relaxed);
        let job: Box<dyn FnOnce() + Send + 'a> = Box::new(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(task))) {
                outcome.panic.lock().get_or_insert(panic);
            }
            // Release: the thread that waits sees what we wrote. Nothing borrowed is used from here on.
            outcome.under_way.fetch_sub(1, Ordering::Release);
            outcome.done.wake_all();
        });
        // SAFETY: only the lifetime changes. The job ends its use of what it borrows before it counts itself out, and
        // `Lent` is not gone before every job has, whether the caller returns or unwinds: `wait` runs on drop. `Lent`
        // is private to this module, and `at_once` drops it while it still borrows the tasks and the closure.
        let job = unsafe { mem::transmute::<Box<dyn FnOnce() + Send + 'a>, Job>(job) };
        helper.give(job);
        Ok(())
    }

    fn until_done(&self) {
        self.0.done.wait(|| self.0.under_way.load(Ordering::Acquire) == 0);
    }

    /// Waits for all, and goes on with the panic of one of them, if any.
    fn wait(&self) {
        self.until_done();
        if let Some(panic) = self.0.panic.lock().take() {
            resume_unwind(panic);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.until_done();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn slow() -> Pace {
        Pace(AtomicU32::new(u32::MAX))
    }

    #[test]
    fn a_pace_follows_what_it_is_told_and_leaves_out_the_bytes() {
        let pace = Pace::default();
        pace.note(Duration::from_millis(5), 0);
        assert!(pace.is_slow());
        for _ in 0..100 {
            pace.note(Duration::from_micros(1000), 1 << 20);
        }
        assert!(!pace.is_slow(), "a copy in memory takes this long");
    }

    #[test]
    fn quick_members_are_called_by_the_caller() {
        let (pace, caller) = (Pace::default(), thread::current().id());
        let mut tasks = [(&pace, None); 4];
        at_once(&mut tasks, |task| (task.0, 0), |task| task.1 = Some(thread::current().id()));
        assert!(tasks.iter().all(|task| task.1 == Some(caller)));
    }

    #[test]
    fn slow_members_are_called_at_the_same_time() {
        let pace = slow();
        let arrived = AtomicUsize::new(0);
        let all = WaitQueue::new();
        let mut tasks = [(&pace, 0); 4];
        // Each waits for all the others: one after the other would never end.
        at_once(
            &mut tasks,
            |task| (task.0, 0),
            |task| {
                task.1 = arrived.fetch_add(1, Ordering::SeqCst) + 1;
                all.wake_all();
                all.wait(|| arrived.load(Ordering::SeqCst) == 4);
            },
        );
        let mut places = tasks.map(|task| task.1);
        places.sort_unstable();
        assert_eq!(places, [1, 2, 3, 4]);
    }

    #[test]
    fn many_callers_share_the_helpers() {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..200_u64 {
                        let pace = slow();
                        let mut tasks = [(&pace, round); 5];
                        at_once(&mut tasks, |task| (task.0, 0), |task| task.1 += 1);
                        assert!(tasks.iter().all(|task| task.1 == round + 1));
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_comes_back_when_all_are_done() {
        let pace = slow();
        let others = AtomicUsize::new(0);
        let thrown = catch_unwind(AssertUnwindSafe(|| {
            at_once(
                &mut [(&pace, 0), (&pace, 1), (&pace, 2)],
                |task| (task.0, 0),
                |task| {
                    assert_ne!(task.1, 0, "the first task");
                    others.fetch_add(1, Ordering::SeqCst);
                },
            );
        }));
        assert!(thrown.is_err());
        assert_eq!(others.load(Ordering::SeqCst), 2);
    }
}
