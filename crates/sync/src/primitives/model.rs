//! Model primitives: the shapes of `real` over loom or shuttle.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

#[cfg(loom)]
use loom::sync;
#[cfg(shuttle)]
use shuttle::sync;

#[cfg(loom)]
pub use loom::{sync::atomic, thread};
#[cfg(shuttle)]
pub use shuttle::{sync::atomic, thread};

// Used by the order check of debug builds only; loom's models are run in release builds.
#[cfg(all(loom, debug_assertions))]
pub(crate) use loom::thread_local;
#[cfg(all(shuttle, debug_assertions))]
pub(crate) use shuttle::thread_local;

pub(crate) use sync::MutexGuard;

/// The checker's mutex without poisoning.
pub(crate) struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    const_unless_loom! {
        pub(crate) const fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checker's readers-writer lock without poisoning.
///
/// Loom's takes only sized values, so the checker's lock guards nothing and decides which thread may enter; the value
/// lies in a standard lock that is never contended.
pub(crate) struct RwLock<T: ?Sized> {
    turn: sync::RwLock<()>,
    #[expect(clippy::disallowed_types, reason = "never contended: `turn` decides")]
    value: std::sync::RwLock<T>,
}

pub(crate) struct RwLockReadGuard<'a, T: ?Sized> {
    value: std::sync::RwLockReadGuard<'a, T>,
    _turn: sync::RwLockReadGuard<'a, ()>,
}

pub(crate) struct RwLockWriteGuard<'a, T: ?Sized> {
    value: std::sync::RwLockWriteGuard<'a, T>,
    _turn: sync::RwLockWriteGuard<'a, ()>,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        pub(crate) const fn new(value: T) -> Self {
            #[expect(clippy::disallowed_types, reason = "never contended: `turn` decides")]
            Self { turn: sync::RwLock::new(()), value: std::sync::RwLock::new(value) }
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        let turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        self.enter_shared(turn)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        let turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        self.enter_exclusive(turn)
    }

    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        Some(self.enter_shared(self.turn.try_read().ok()?))
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        Some(self.enter_exclusive(self.turn.try_write().ok()?))
    }

    /// The checkers' locks do not tell; a model is about what happens if the lock is held.
    pub(crate) fn is_locked(&self) -> bool {
        true
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter_shared<'a>(&'a self, turn: sync::RwLockReadGuard<'a, ()>) -> RwLockReadGuard<'a, T> {
        RwLockReadGuard { value: self.value.read().unwrap_or_else(PoisonError::into_inner), _turn: turn }
    }

    fn enter_exclusive<'a>(&'a self, turn: sync::RwLockWriteGuard<'a, ()>) -> RwLockWriteGuard<'a, T> {
        RwLockWriteGuard { value: self.value.write().unwrap_or_else(PoisonError::into_inner), _turn: turn }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// No spinning: the checker explores what a longer or shorter wait would have met.
pub(crate) fn spin_until(done: impl Fn() -> bool) -> bool {
    done()
}

/// See [`crate::thread_number`]: the same in each run of a model.
pub(crate) fn thread_number() -> usize {
    // The id itself is another one in each run under loom; what is printed of it is not.
    let mut hasher = DefaultHasher::new();
    format!("{:?}", thread::current().id()).hash(&mut hasher);
    hasher.finish() as usize
}

/// The checkers' locks do not tell; a model is about what happens if there are some.
pub(crate) fn has_readers(_lock: &RwLock<()>) -> bool {
    true
}

/// Until when a thread may sleep: for ever, or not at all.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    ends: bool,
}

impl Deadline {
    /// No end.
    pub(crate) const NEVER: Self = Self { ends: false };

    /// A deadline that has passed when a thread would sleep.
    pub(crate) fn after(_timeout: Duration) -> Self {
        Self { ends: true }
    }

    /// Parks the thread, or tells that the deadline has passed.
    pub(crate) fn park(self) -> bool {
        if self.ends {
            // Lets a loop around a timed wait make progress. Loom would run the other threads to their end first, and
            // then a time-out would never meet a wakeup under way.
            #[cfg(shuttle)]
            thread::yield_now();
            return false;
        }
        thread::park();
        true
    }
}
