//! A readers-writer lock whose readers share no cache line once it is contended.
//!
//! Readers of an ordinary lock count themselves in one word, so that each takes that word's cache line from the one
//! before it, some 0.1 µs there and back, though readers do not exclude each other. Here readers count themselves in
//! stripes, a cache line for each few threads.
//!
//! A lock begins as an ordinary one, without stripes: most are never read by two threads at a time. Readers that often
//! find other readers inside open the stripes, and from then on readers enter there. A writer closes them, one after
//! the other, and waits until each is empty; readers that come then are ordinary ones until contention is seen often
//! enough again. Closing takes a writer a few hundred nanoseconds to 2 µs, which is why a single contention does not
//! suffice: a lock that is often written to stays an ordinary one.
//!
//! Invariants:
//! - Stripes are opened by a thread that holds the inner lock shared, and closed by one that holds it exclusively. So
//!   a thread that holds the inner lock exclusively and has closed the stripes has the whole lock exclusively.
//! - A stripe is one word, its readers and whether it is closed, and entered by one instruction: either the reader
//!   finds it closed or the closing thread finds the reader. Opening releases what entering acquires; leaving releases
//!   what the closing thread's load acquires; the instructions between them carry both on.
//! - References to the value come from guards only, mutable ones from the guard of a writer.
//!
//! Sources: the idea of readers that are counted apart until a writer revokes it is that of D. Dice and A. Kogan, BRAVO
//! (USENIX ATC 2019); stripes that belong to the lock, of Linux's old big-reader locks.

#![expect(unsafe_code, reason = "a lock cell: a reader in a stripe has the value without the inner lock")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use crate::held::Held;
use crate::primitives;
use crate::primitives::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::stats::probe::{Hold, LastCpu, Wait};
use crate::stats::{self, Mode};
use crate::{LockClass, WaitQueue, thread_number};

/// Enough that the threads of a large machine rarely share one. A model needs two.
const STRIPES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 32 };
/// After how many meetings of readers the stripes are opened.
const MEETINGS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// A stripe's word: bit 0 while it is closed, and above it how many readers are inside.
const CLOSED: usize = 1;
const READER: usize = 2;

/// Many readers or one writer, for what many threads read at the same time; carries its class. It guards a value, or,
/// without one, what lies beside it.
///
/// A waiting writer keeps new readers out, so a thread that reads twice can deadlock: for the lock order a reader is
/// like a writer. A panic while it is held releases it; there is no poisoning.
pub struct StripedRwLock<T = ()> {
    class: &'static LockClass,
    last_cpu: LastCpu,
    /// How often a reader found others inside since stripes were opened last. Lost updates do no harm.
    meetings: AtomicU32,
    inner: primitives::RwLock<()>,
    stripes: OnceLock<Box<Stripes>>,
    value: Guarded<T>,
}

/// The value of a lock.
struct Guarded<T>(UnsafeCell<T>);

// SAFETY: guards alone give references to the value. Threads that hold the lock shared get shared ones at the same time,
// for which the value is `Sync`; a thread that holds it exclusively gets a mutable one, for which it is `Send`.
unsafe impl<T: Send + Sync> Sync for Guarded<T> {}

struct Stripes {
    /// Whether a writer has to close them. Written under the inner lock, which orders it.
    open: AtomicBool,
    each: [Stripe; STRIPES],
    /// For the writer that waits for the last readers.
    left: WaitQueue,
}

#[repr(align(128))]
struct Stripe {
    word: AtomicUsize,
    last_cpu: LastCpu,
}

/// A reader in a stripe, until dropped.
struct StripeReader<'a> {
    stripe: &'a Stripe,
    stripes: &'a Stripes,
}

/// Where a reader is; it leaves when this is dropped.
enum Inside<'a> {
    Stripe { _presence: StripeReader<'a> },
    Lock { _guard: primitives::RwLockReadGuard<'a, ()> },
}

/// Shared access to what a [`StripedRwLock`] guards, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct StripedReadGuard<'a, T = ()> {
    value: &'a Guarded<T>,
    // In this order: unlocked first, then counted and taken off the thread's stack.
    _inside: Inside<'a>,
    hold: Option<Hold>,
    _held: Held,
}

/// Exclusive access to what a [`StripedRwLock`] guards, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct StripedWriteGuard<'a, T = ()> {
    value: &'a Guarded<T>,
    // In this order: unlocked first, then counted and taken off the thread's stack.
    _inner: primitives::RwLockWriteGuard<'a, ()>,
    hold: Option<Hold>,
    _held: Held,
}

impl<T> StripedRwLock<T> {
    const_unless_loom! {
        /// A lock of `class` around `value`.
        #[must_use]
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self {
                class,
                last_cpu: LastCpu::unknown(),
                meetings: AtomicU32::new(0),
                inner: primitives::RwLock::new(()),
                stripes: OnceLock::new(),
                value: Guarded(UnsafeCell::new(value)),
            }
        }
    }

    /// Waits for shared access.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> StripedReadGuard<'_, T> {
        self.read_nested(0)
    }

    /// Waits for shared access while the thread may hold others of the same class, all of a lower `subclass`.
    /// [`read`](Self::read) is subclass 0.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank, or of the same class and not a lower subclass.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read_nested(&self, subclass: u32) -> StripedReadGuard<'_, T> {
        let held = Held::before_wait(self.class, subclass);
        if stats::is_enabled() {
            return self.measured_read(held);
        }
        let inside = match self.stripes.get().and_then(|stripes| stripes.enter()) {
            Some(presence) => Inside::Stripe { _presence: presence },
            None => {
                let meets = primitives::has_readers(&self.inner);
                let guard = self.inner.read();
                if meets {
                    self.count_meeting();
                }
                Inside::Lock { _guard: guard }
            }
        };
        StripedReadGuard { value: &self.value, _inside: inside, hold: None, _held: held }
    }

    /// Out of line, so that what is measured costs callers nothing while nothing is.
    #[cold]
    fn measured_read(&self, held: Held) -> StripedReadGuard<'_, T> {
        let (inside, hold) = match self.stripes.get().and_then(|stripes| stripes.enter()) {
            Some(presence) => {
                let hold = Hold::begin(self.class, Mode::Shared, &presence.stripe.last_cpu, None);
                (Inside::Stripe { _presence: presence }, hold)
            }
            None => {
                let meets = primitives::has_readers(&self.inner);
                let (guard, hold) = Hold::acquire(
                    self.class,
                    Mode::Shared,
                    &self.last_cpu,
                    || self.inner.try_read(),
                    || self.inner.read(),
                );
                if meets {
                    self.count_meeting();
                }
                (Inside::Lock { _guard: guard }, hold)
            }
        };
        StripedReadGuard { value: &self.value, _inside: inside, hold: Some(hold), _held: held }
    }

    /// Waits for exclusive access.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> StripedWriteGuard<'_, T> {
        self.write_nested(0)
    }

    /// Waits for exclusive access while the thread may hold others of the same class, all of a lower `subclass`.
    /// [`write`](Self::write) is subclass 0.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank, or of the same class and not a lower subclass.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write_nested(&self, subclass: u32) -> StripedWriteGuard<'_, T> {
        let held = Held::before_wait(self.class, subclass);
        let (inner, hold) = if stats::is_enabled() {
            self.measured_write()
        } else {
            let inner = self.inner.write();
            if let Some(stripes) = self.open_stripes() {
                stripes.close();
                stripes.wait_until_empty();
            }
            (inner, None)
        };
        StripedWriteGuard { value: &self.value, _inner: inner, hold, _held: held }
    }

    /// Whether the lock is held otherwise than by readers in stripes, as far as a relaxed load can tell.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// Bytes of memory that the lock has beside itself: its stripes, once readers have met often enough.
    #[must_use]
    pub fn stripes_bytes(&self) -> usize {
        self.stripes.get().map_or(0, |stripes| size_of_val(&**stripes))
    }

    #[cold]
    fn measured_write(&self) -> (primitives::RwLockWriteGuard<'_, ()>, Option<Hold>) {
        let mut wait = None;
        let inner = self.inner.try_write().unwrap_or_else(|| {
            wait = Some(Wait::begin(&self.last_cpu));
            self.inner.write()
        });
        if let Some(stripes) = self.open_stripes() {
            stripes.close();
            if !stripes.are_empty() {
                wait.get_or_insert_with(|| Wait::begin(&self.last_cpu));
                stripes.wait_until_empty();
            }
        }
        (inner, Some(Hold::begin(self.class, Mode::Exclusive, &self.last_cpu, wait.as_ref())))
    }

    /// The stripes, if there are any and a writer has to close them.
    fn open_stripes(&self) -> Option<&Stripes> {
        self.stripes.get().map(|stripes| &**stripes).filter(|stripes| stripes.open.load(Ordering::Relaxed))
    }

    /// A reader that has the inner lock has found other readers there.
    #[cold]
    fn count_meeting(&self) {
        let meetings = self.meetings.load(Ordering::Relaxed) + 1;
        if meetings < MEETINGS {
            self.meetings.store(meetings, Ordering::Relaxed);
            return;
        }
        self.meetings.store(0, Ordering::Relaxed);
        self.stripes.get_or_init(|| Box::new(Stripes::closed())).open();
    }
}

impl Stripes {
    fn closed() -> Self {
        let stripe = |_| Stripe { word: AtomicUsize::new(CLOSED), last_cpu: LastCpu::unknown() };
        Self { open: AtomicBool::new(false), each: std::array::from_fn(stripe), left: WaitQueue::new() }
    }

    /// Lets readers in. The caller has the inner lock shared, and other readers may be doing the same.
    #[cold]
    fn open(&self) {
        for stripe in &self.each {
            stripe.word.fetch_and(!CLOSED, Ordering::Release);
        }
        self.open.store(true, Ordering::Relaxed);
    }

    /// Lets no more readers in. The caller holds the inner lock exclusively.
    #[cold]
    fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
        for stripe in &self.each {
            stripe.word.fetch_or(CLOSED, Ordering::Relaxed);
        }
    }

    /// Whether all readers have left closed stripes; what they did comes before what the caller does then.
    fn are_empty(&self) -> bool {
        self.each.iter().all(|stripe| stripe.word.load(Ordering::Acquire) == CLOSED)
    }

    #[cold]
    fn wait_until_empty(&self) {
        self.left.wait(|| self.are_empty());
    }

    /// Enters the calling thread's stripe, unless it is closed.
    #[inline]
    fn enter(&self) -> Option<StripeReader<'_>> {
        let stripe = &self.each[thread_number() % STRIPES];
        // A load first: readers that find it closed should not take the line from each other, nor keep a writer
        // waiting.
        if stripe.word.load(Ordering::Relaxed) & CLOSED != 0 {
            return None;
        }
        let before = stripe.word.fetch_add(READER, Ordering::Acquire);
        let presence = StripeReader { stripe, stripes: self };
        (before & CLOSED == 0).then_some(presence)
    }
}

impl Drop for StripeReader<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.stripe.word.fetch_sub(READER, Ordering::Release) == CLOSED + READER {
            self.stripes.left.wake_all();
        }
    }
}

impl<T> Deref for StripedReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock shared until it is dropped, which `self` outlives, so there is no guard that
        // has it exclusively, and no mutable reference.
        unsafe { &*self.value.0.get() }
    }
}

impl<T> Deref for StripedWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard has the lock exclusively until it is dropped, and `self` is borrowed shared meanwhile.
        unsafe { &*self.value.0.get() }
    }
}

impl<T> DerefMut for StripedWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard has the lock exclusively until it is dropped, and `self` is borrowed mutably meanwhile.
        unsafe { &mut *self.value.0.get() }
    }
}

impl<T> Drop for StripedReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.end();
        }
    }
}

impl<T> Drop for StripedWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.end();
        }
    }
}

// Without the value: printing must not wait.
impl<T> fmt::Debug for StripedRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripedRwLock").field("class", &self.class.name()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for StripedReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripedReadGuard").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for StripedWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripedWriteGuard").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::Rank;

    static CLASS: LockClass = LockClass::new("striped_rwlock_test", Rank(1));

    impl<T: Send + Sync> StripedRwLock<T> {
        /// Two readers that meet until the stripes are open.
        fn meet(&self) {
            let _first = self.read();
            thread::scope(|scope| {
                scope.spawn(|| (0..MEETINGS).for_each(|_| drop(self.read())));
            });
            assert!(self.open_stripes().is_some());
            assert_eq!(self.stripes_bytes(), size_of::<Stripes>());
        }

        /// What the last of many meetings does.
        fn open_unless_open(&self) {
            let reader = self.read();
            if matches!(reader._inside, Inside::Lock { .. }) {
                self.meetings.store(MEETINGS - 1, Ordering::Relaxed);
                self.count_meeting();
            }
        }
    }

    #[test]
    fn one_reader_at_a_time_never_needs_stripes() {
        let lock = StripedRwLock::new(&CLASS, ());
        for _ in 0..10 * MEETINGS {
            drop(lock.read());
            drop(lock.write());
        }
        assert_eq!(lock.stripes_bytes(), 0);
    }

    #[test]
    fn readers_that_meet_open_the_stripes_and_a_writer_closes_them() {
        let lock = StripedRwLock::new(&CLASS, ());
        lock.meet();
        assert!(matches!(lock.read()._inside, Inside::Stripe { .. }));
        drop(lock.write());
        assert!(lock.open_stripes().is_none());
        assert!(matches!(lock.read()._inside, Inside::Lock { .. }));
        lock.meet();
        assert!(matches!(lock.read()._inside, Inside::Stripe { .. }));
    }

    #[test]
    fn a_writer_waits_for_readers_in_stripes() {
        let lock = StripedRwLock::new(&CLASS, ());
        lock.meet();
        let reader = lock.read();
        let (written, is_written) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _alone = lock.write();
                written.send(()).unwrap();
            });
            assert!(is_written.recv_timeout(Duration::from_millis(20)).is_err());
            drop(reader);
            is_written.recv().unwrap();
        });
    }

    #[test]
    fn writers_exclude_readers_in_stripes_and_others() {
        let lock = StripedRwLock::new(&CLASS, ());
        let (one, other) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _shared = lock.read();
                        assert_eq!(one.load(Ordering::Relaxed), other.load(Ordering::Relaxed));
                    }
                });
            }
            scope.spawn(|| {
                for step in 0..500 {
                    if step % 10 == 0 {
                        lock.open_unless_open();
                    }
                    let _alone = lock.write();
                    one.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    other.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        assert_eq!(one.into_inner(), 500);
    }

    #[test]
    fn readers_in_stripes_and_others_see_whole_values() {
        let lock = StripedRwLock::new(&CLASS, vec![0_usize]);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let value = lock.read();
                        assert!(value.iter().all(|&item| item == value.len() - 1));
                    }
                });
            }
            scope.spawn(|| {
                for step in 0..500 {
                    if step % 10 == 0 {
                        lock.open_unless_open();
                    }
                    let mut value = lock.write();
                    let len = value.len();
                    // Another allocation each time, as tables that grow have.
                    *value = vec![len; len + 1];
                }
            });
        });
        assert_eq!(lock.read().len(), 501);
    }

    #[test]
    fn readers_of_a_large_machine_share_no_cache_line() {
        assert_eq!(size_of::<Stripe>(), 128);
        assert!(size_of::<StripedRwLock<()>>() <= 40);
    }
}
