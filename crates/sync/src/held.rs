//! The order check: each thread's stack of the classes it holds.
//!
//! In debug builds a lock that waits looks at the stack first: its rank must be above that of every held lock,
//! or its class must be the same and its subclass higher. Otherwise it panics, before it waits, and names both
//! classes and both places in the code. Since a thread that never takes locks in another order cannot deadlock
//! with one that does not either, a violation shows in a run that would not have deadlocked itself.
//!
//! A `try_lock` cannot deadlock: it is not checked, but what it took is on the stack and binds what comes after.
//! In release builds [`Held`] is empty and all of this compiles to nothing.

use crate::LockClass;

/// What a thread has that is no lock and is ordered like one: other threads wait for it to end. Made by
/// [`LockClass::declare`]; ends when dropped.
#[must_use = "it ends when it is dropped"]
pub struct Declared {
    _held: Held,
}

impl LockClass {
    /// Says that the calling thread is about to wait for something that is ordered as a lock of this class is, and
    /// has it until the answer is dropped. Debug builds check the order; release builds do nothing.
    #[track_caller]
    pub fn declare(&'static self) -> Declared {
        Declared { _held: Held::before_wait(self, 0) }
    }
}

/// Stands for one lock on the thread's stack, until dropped. Belongs into every guard.
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    entry: checked::EntryId,
}

#[cfg(not(debug_assertions))]
impl Held {
    /// Before waiting for a lock: nothing to check in a release build.
    #[inline(always)]
    pub(crate) fn before_wait(_class: &'static LockClass, _subclass: u32) -> Self {
        Self {}
    }

    /// After a `try_lock`: nothing to record in a release build.
    #[inline(always)]
    pub(crate) fn after_try(_class: &'static LockClass) -> Self {
        Self {}
    }
}

#[cfg(debug_assertions)]
impl Held {
    /// Checks that the thread may wait for a lock of `class`, and puts it on the stack.
    #[track_caller]
    pub(crate) fn before_wait(class: &'static LockClass, subclass: u32) -> Self {
        let entry = checked::Entry::here(class, subclass);
        Self { entry: checked::check_and_push(entry) }
    }

    /// Puts a lock on the stack that was taken without waiting.
    #[track_caller]
    pub(crate) fn after_try(class: &'static LockClass) -> Self {
        Self { entry: checked::push(checked::Entry::here(class, 0)) }
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        checked::remove(self.entry);
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::fmt;
    use std::panic::Location;

    use crate::LockClass;

    /// Which entry of the thread's stack; guards may be dropped in any order.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) struct EntryId(u64);

    /// One held lock.
    #[derive(Clone, Copy)]
    pub(super) struct Entry {
        class: &'static LockClass,
        subclass: u32,
        taken_at: &'static Location<'static>,
    }

    #[derive(Default)]
    struct Stack {
        next: u64,
        entries: Vec<(EntryId, Entry)>,
    }

    // The model checkers run their threads on one thread of the system, so this is theirs under their cfg.
    crate::primitives::thread_local! {
        static STACK: RefCell<Stack> = RefCell::default();
    }

    impl Entry {
        #[track_caller]
        pub(super) fn here(class: &'static LockClass, subclass: u32) -> Self {
            Self { class, subclass, taken_at: Location::caller() }
        }

        /// Whether a thread that holds `self` may wait for `next`.
        fn allows(&self, next: &Entry) -> bool {
            if std::ptr::eq(self.class, next.class) {
                self.subclass < next.subclass
            } else {
                self.class.rank() < next.class.rank()
            }
        }
    }

    impl fmt::Display for Entry {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "`{}` (rank {}", self.class.name(), self.class.rank().0)?;
            if self.subclass != 0 {
                write!(f, ", subclass {}", self.subclass)?;
            }
            write!(f, ") at {}", self.taken_at)
        }
    }

    #[track_caller]
    pub(super) fn check_and_push(entry: Entry) -> EntryId {
        let broken =
            with_stack(|stack| stack.entries.iter().map(|(_, held)| *held).find(|held| !held.allows(&entry)));
        // A thread that already unwinds would abort, and the first panic is the one worth reading.
        if let Some(Some(held)) = broken
            && !std::thread::panicking()
        {
            panic!("lock order: taking {entry} while holding {held}; the order is in undercroft_sync::order");
        }
        push(entry)
    }

    pub(super) fn push(entry: Entry) -> EntryId {
        with_stack(|stack| {
            let id = EntryId(stack.next);
            stack.next += 1;
            stack.entries.push((id, entry));
            id
        })
        .unwrap_or(EntryId(u64::MAX))
    }

    pub(super) fn remove(id: EntryId) {
        with_stack(|stack| {
            if let Some(at) = stack.entries.iter().rposition(|(entry, _)| *entry == id) {
                stack.entries.remove(at);
            }
        });
    }

    /// `None` while the thread's locals are being destroyed: locks taken there go unchecked.
    fn with_stack<R>(f: impl FnOnce(&mut Stack) -> R) -> Option<R> {
        STACK.try_with(|stack| f(&mut stack.borrow_mut())).ok()
    }
}
