//! Real primitives: parking_lot, the standard atomics, thread parking.

use std::hint;
use std::time::{Duration, Instant};

use parking_lot::{RawMutex, RawRwLock};

// Used by the order check of debug builds only.
#[cfg(debug_assertions)]
pub(crate) use std::thread_local;

pub use std::sync::atomic;
pub use std::thread;

// parking_lot's locks under our own names: clippy refuses their names in the whole workspace, so that every lock has a
// class.
pub(crate) type Mutex<T> = lock_api::Mutex<RawMutex, T>;
pub(crate) type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
pub(crate) type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
pub(crate) type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
pub(crate) type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Rounds of [`spin_until`] that only pause the processor; the pauses double from one round to the next.
const PAUSE_ROUNDS: u32 = 3;
/// Rounds that offer the processor to another thread: the one that will wake us may need ours.
const YIELD_ROUNDS: u32 = 7;

/// Waits a little for `done`, for less time than going to sleep and being woken costs. Tells whether it came.
///
/// Few pauses and some yields, as parking_lot has it: with more threads than processors longer pauses only keep the
/// other thread from coming.
pub(crate) fn spin_until(done: impl Fn() -> bool) -> bool {
    for round in 0..PAUSE_ROUNDS + YIELD_ROUNDS {
        if done() {
            return true;
        }
        if round < PAUSE_ROUNDS {
            for _ in 0..1 << round {
                hint::spin_loop();
            }
        } else {
            thread::yield_now();
        }
    }
    done()
}

/// See [`crate::thread_number()`].
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: atomic::AtomicUsize = atomic::AtomicUsize::new(0);
    std::thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, atomic::Ordering::Relaxed);
    }
    // While the thread's locals are being destroyed any number will do.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Whether the lock is held by readers, as far as a glance can tell.
#[inline]
pub(crate) fn has_readers(lock: &RwLock<()>) -> bool {
    lock.is_locked() && !lock.is_locked_exclusive()
}

/// Until when a thread may sleep.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// No end.
    pub(crate) const NEVER: Self = Self(None);

    /// The moment `timeout` from now; never, if the clock cannot say it.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// Parks the thread until it is unparked or the deadline passes, or for no reason. `false` if the deadline
    /// had passed already.
    pub(crate) fn park(self) -> bool {
        let Some(end) = self.0 else {
            thread::park();
            return true;
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(left);
        true
    }
}
