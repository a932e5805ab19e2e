//! Threads that wait for jobs: they come when they are needed, and go when they have been idle for a while.
//!
//! Used by `fan_out`, to call several slow members at the same time, and by `timeout`, to call members that may never
//! answer. Locks: the list of idle helpers and the slot of each, class `HELPERS`, never held together, nor while a job
//! runs.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use undercroft_sync::atomic::{AtomicUsize, Ordering};
use undercroft_sync::{Mutex, WaitQueue, order};

/// An idle helper goes after this time.
const IDLE: Duration = Duration::from_secs(10);

/// What a helper does.
pub(crate) type Job = Box<dyn FnOnce() + Send + 'static>;

/// Some helpers, and how many there may be.
pub(crate) struct Pool {
    idle: Mutex<Vec<Arc<Helper>>>,
    count: AtomicUsize,
    max: usize,
    /// A helper has become idle.
    freed: WaitQueue,
}

/// A thread that waits for jobs.
pub(crate) struct Helper {
    pool: &'static Pool,
    job: Mutex<Option<Job>>,
    given: WaitQueue,
}

impl Pool {
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            idle: Mutex::new(&order::HELPERS, Vec::new()),
            count: AtomicUsize::new(0),
            max,
            freed: WaitQueue::new(),
        }
    }

    /// A helper that is idle, or a new one, or none.
    pub(crate) fn find(&'static self) -> Option<Arc<Helper>> {
        if let Some(helper) = self.idle.lock().pop() {
            return Some(helper);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let (job, given) = (Mutex::new(&order::HELPERS, None), WaitQueue::new());
        let helper = Arc::new(Helper { pool: self, job, given });
        let itself = Arc::clone(&helper);
        let started = thread::Builder::new().name("md-helper".to_owned()).spawn(move || itself.serve());
        if started.is_err() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(helper)
    }

    /// The same, after a wait of at most `timeout` for one that becomes idle.
    pub(crate) fn find_within(&'static self, timeout: Duration) -> Option<Arc<Helper>> {
        let mut found = self.find();
        if found.is_none() {
            self.freed.wait_timeout(timeout, || {
                found = self.find();
                found.is_some()
            });
        }
        found
    }
}

impl Helper {
    /// Has the helper, which was just found, do a job.
    pub(crate) fn give(&self, job: Job) {
        *self.job.lock() = Some(job);
        self.given.wake_one();
    }

    fn serve(self: Arc<Self>) {
        loop {
            let mut job = None;
            let came = self.given.wait_timeout(IDLE, || {
                job = self.job.lock().take();
                job.is_some()
            });
            match job {
                Some(job) => {
                    job();
                    self.pool.idle.lock().push(Arc::clone(&self));
                    self.pool.freed.wake_all();
                }
                None if !came && self.retires() => break,
                // A caller has just found this helper.
                None => {}
            }
        }
        self.pool.count.fetch_sub(1, Ordering::Relaxed);
        self.pool.freed.wake_all();
    }

    /// Leaves the list of idle helpers; not if a caller has taken it from there.
    fn retires(self: &Arc<Self>) -> bool {
        let mut idle = self.pool.idle.lock();
        let place = idle.iter().position(|helper| Arc::ptr_eq(helper, self));
        place.map(|at| idle.swap_remove(at)).is_some()
    }
}
