//! A readers-writer lock with a lock class.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::LockClass;
use crate::held::Held;
use crate::primitives;
use crate::stats::probe::{Hold, LastCpu};
use crate::stats::{self, Mode};

/// Many readers or one writer; carries its class. A thread that has to wait spins briefly before it sleeps.
///
/// A waiting writer keeps new readers out, so a thread that reads twice can deadlock: for the lock order a
/// reader is like a writer. A panic while it is held releases it; there is no poisoning.
pub struct RwLock<T: ?Sized> {
    class: &'static LockClass,
    last_cpu: LastCpu,
    inner: primitives::RwLock<T>,
}

/// Shared access to what a [`RwLock`] guards, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    // In this order: unlocked first, then counted and taken off the thread's stack.
    inner: primitives::RwLockReadGuard<'a, T>,
    hold: Option<Hold>,
    _held: Held,
}

/// Exclusive access to what a [`RwLock`] guards, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    // In this order: unlocked first, then counted and taken off the thread's stack.
    inner: primitives::RwLockWriteGuard<'a, T>,
    hold: Option<Hold>,
    _held: Held,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        /// A lock of `class` around `value`.
        #[must_use]
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self { class, last_cpu: LastCpu::unknown(), inner: primitives::RwLock::new(value) }
        }
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for shared access.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.read_nested(0)
    }

    /// Waits for shared access while the thread may hold others of the same class, all of a lower `subclass`.
    /// [`read`](Self::read) is subclass 0.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank, or of the same class and not a lower
    /// subclass.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read_nested(&self, subclass: u32) -> RwLockReadGuard<'_, T> {
        let held = Held::before_wait(self.class, subclass);
        if stats::is_enabled() {
            let (inner, hold) = Hold::acquire(
                self.class,
                Mode::Shared,
                &self.last_cpu,
                || self.inner.try_read(),
                || self.inner.read(),
            );
            return RwLockReadGuard { inner, hold: Some(hold), _held: held };
        }
        RwLockReadGuard { inner: self.inner.read(), hold: None, _held: held }
    }

    /// Takes shared access if no writer has or awaits the lock, whatever else the thread holds.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        let held = Held::after_try(self.class);
        let hold = stats::is_enabled().then(|| Hold::begin(self.class, Mode::Shared, &self.last_cpu, None));
        Some(RwLockReadGuard { inner, hold, _held: held })
    }

    /// Waits for exclusive access.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.write_nested(0)
    }

    /// Waits for exclusive access while the thread may hold others of the same class, all of a lower
    /// `subclass`. [`write`](Self::write) is subclass 0.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank, or of the same class and not a lower
    /// subclass.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write_nested(&self, subclass: u32) -> RwLockWriteGuard<'_, T> {
        let held = Held::before_wait(self.class, subclass);
        if stats::is_enabled() {
            let (inner, hold) = Hold::acquire(
                self.class,
                Mode::Exclusive,
                &self.last_cpu,
                || self.inner.try_write(),
                || self.inner.write(),
            );
            return RwLockWriteGuard { inner, hold: Some(hold), _held: held };
        }
        RwLockWriteGuard { inner: self.inner.write(), hold: None, _held: held }
    }

    /// Takes exclusive access if the lock is free, whatever else the thread holds.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        let held = Held::after_try(self.class);
        let hold =
            stats::is_enabled().then(|| Hold::begin(self.class, Mode::Exclusive, &self.last_cpu, None));
        Some(RwLockWriteGuard { inner, hold, _held: held })
    }

    /// Whether the lock is held, as far as a relaxed load can tell.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// The value, without locking: `&mut self` proves that no other thread has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.end();
        }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.end();
        }
    }
}

// Without the value: printing must not wait, and whether it shows the value should not depend on luck.
impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("class", &self.class.name()).finish_non_exhaustive()
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::thread;

    use super::*;
    use crate::Rank;

    static CLASS: LockClass = LockClass::new("rwlock_test", Rank(1));

    #[test]
    fn readers_share_and_a_writer_is_exclusive() {
        let lock = RwLock::new(&CLASS, 1);
        let reader = lock.read();
        thread::scope(|scope| {
            let other = scope.spawn(|| (lock.try_read().is_some(), lock.try_write().is_some()));
            assert_eq!(other.join().unwrap(), (true, false));
        });
        drop(reader);
        let writer = lock.write();
        thread::scope(|scope| {
            let other = scope.spawn(|| (lock.try_read().is_some(), lock.try_write().is_some()));
            assert_eq!(other.join().unwrap(), (false, false));
        });
        drop(writer);
        assert!(lock.try_write().is_some());
    }

    #[test]
    fn writers_lose_no_update_and_readers_see_whole_values() {
        let lock = RwLock::new(&CLASS, (0, 0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), (2000, 2000));
    }

    #[test]
    fn guards_unsized_values_and_lives_in_statics() {
        static TEXT: RwLock<&str> = RwLock::new(&CLASS, "old");
        *TEXT.write() = "new";
        assert_eq!(format!("{TEXT:?} {:?}", TEXT.read()), "RwLock { class: \"rwlock_test\", .. } \"new\"");

        let mut boxed: Box<RwLock<[u8]>> = Box::new(RwLock::new(&CLASS, [1, 2, 3]));
        boxed.get_mut()[0] = 9;
        assert_eq!(format!("{:?}", boxed.write()), "[9, 2, 3]");
    }

    fn is_send_and_sync<T: Send + Sync>() {}

    #[test]
    fn send_and_sync_as_the_standard_lock() {
        is_send_and_sync::<RwLock<Vec<u8>>>();
    }
}
