//! A mutex with a lock class.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::LockClass;
use crate::held::Held;
use crate::primitives;
use crate::stats::probe::{Hold, LastCpu};
use crate::stats::{self, Mode};

/// Mutual exclusion; carries its class. A thread that finds it taken spins briefly before it sleeps.
///
/// A panic while it is held releases it; there is no poisoning.
pub struct Mutex<T: ?Sized> {
    class: &'static LockClass,
    last_cpu: LastCpu,
    inner: primitives::Mutex<T>,
}

/// Access to what a [`Mutex`] guards, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    // In this order: unlocked first, then counted and taken off the thread's stack.
    inner: primitives::MutexGuard<'a, T>,
    hold: Option<Hold>,
    _held: Held,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// A mutex of `class` around `value`.
        #[must_use]
        pub const fn new(class: &'static LockClass, value: T) -> Self {
            Self { class, last_cpu: LastCpu::unknown(), inner: primitives::Mutex::new(value) }
        }
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_nested(0)
    }

    /// Waits for the lock while the thread may hold others of the same class, all of a lower `subclass`.
    /// [`lock`](Self::lock) is subclass 0.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank, or of the same class and not a lower
    /// subclass.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_nested(&self, subclass: u32) -> MutexGuard<'_, T> {
        let held = Held::before_wait(self.class, subclass);
        if stats::is_enabled() {
            let (inner, hold) = Hold::acquire(
                self.class,
                Mode::Exclusive,
                &self.last_cpu,
                || self.inner.try_lock(),
                || self.inner.lock(),
            );
            return MutexGuard { inner, hold: Some(hold), _held: held };
        }
        MutexGuard { inner: self.inner.lock(), hold: None, _held: held }
    }

    /// Takes the lock if it is free, whatever else the thread holds.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        let held = Held::after_try(self.class);
        let hold =
            stats::is_enabled().then(|| Hold::begin(self.class, Mode::Exclusive, &self.last_cpu, None));
        Some(MutexGuard { inner, hold, _held: held })
    }

    /// The value, without locking: `&mut self` proves that no other thread has the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.end();
        }
    }
}

// Without the value: printing must not wait, and whether it shows the value should not depend on luck.
impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("class", &self.class.name()).finish_non_exhaustive()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Rank;

    static CLASS: LockClass = LockClass::new("mutex_test", Rank(1));

    #[test]
    fn one_at_a_time() {
        let mutex = Mutex::new(&CLASS, 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut value = mutex.lock();
                        let seen = *value;
                        std::hint::black_box(seen);
                        *value = seen + 1;
                    }
                });
            }
        });
        assert_eq!(mutex.into_inner(), 4000);
    }

    #[test]
    fn try_lock_fails_while_held_and_only_then() {
        let mut mutex = Mutex::new(&CLASS, 1);
        let guard = mutex.lock();
        std::thread::scope(|scope| scope.spawn(|| assert!(mutex.try_lock().is_none())).join().unwrap());
        drop(guard);
        *mutex.try_lock().expect("it is free") += 1;
        assert_eq!(*mutex.get_mut(), 2);
    }

    #[test]
    fn a_panic_releases_it_and_poisons_nothing() {
        let mutex = Mutex::new(&CLASS, 1);
        let died = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guard = mutex.lock();
                panic!("while holding");
            });
            holder.join()
        });
        assert!(died.is_err());
        assert_eq!(*mutex.lock(), 1);
    }

    #[test]
    fn guards_unsized_values_and_lives_in_statics() {
        static COUNT: Mutex<u32> = Mutex::new(&CLASS, 5);
        *COUNT.lock() += 1;
        assert_eq!(format!("{COUNT:?} {:?}", COUNT.lock()), "Mutex { class: \"mutex_test\", .. } 6");

        let boxed: Box<Mutex<dyn fmt::Debug + Send>> = Box::new(Mutex::new(&CLASS, "text"));
        assert_eq!(format!("{:?}", boxed.lock()), "\"text\"");
    }

    fn is_send_and_sync<T: Send + Sync>() {}

    #[test]
    fn send_and_sync_as_the_standard_mutex() {
        // Only `Send` is asked of the value: a cell in a mutex is shared safely.
        is_send_and_sync::<Mutex<std::cell::Cell<u8>>>();
    }
}
