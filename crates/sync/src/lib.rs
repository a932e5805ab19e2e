//! Locks that carry a class, wait queues and name locks: all locks of the workspace come from this crate.
//!
//! - [`Mutex`] and [`RwLock`]: parking_lot's locks, each created with a [`LockClass`] from [`order`]. The class
//!   is one name for three things: the place in the lock order, which debug builds check on every acquisition;
//!   the row in the lock report of [`stats`]; and the word used in documentation.
//! - [`StripedRwLock`]: a readers-writer lock whose readers share no cache line, for what many threads read at once.
//! - [`WaitQueue`]: sleep until a condition holds, woken all together or, as exclusive waiters, one by one.
//! - [`NameLocks`]: locks on names within directories, so that work on different names goes in parallel.
//! - [`AppendList`]: an append-only list; readers take no lock, and the caller serializes appends.
//!
//! ```
//! use undercroft_sync::{Mutex, order};
//!
//! let list = Mutex::new(&order::DEVICE, vec![1, 2]);
//! list.lock().push(3);
//! assert_eq!(*list.lock(), [1, 2, 3]);
//! ```
//!
//! There is no condition variable: a [`WaitQueue`] whose condition takes the lock does the same work.
//!
//! Built with `--cfg loom` or `--cfg shuttle`, everything here runs on that model checker's primitives, and so
//! does every crate above. [`atomic`] and [`thread`] are then the checker's as well; code that wants its
//! atomics and threads explored takes them from here. `tests/loom.rs` and `tests/shuttle.rs` say how to run.

/// Declares a constructor that is `const`, except under loom, whose primitives need a running model.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $($rest)*
    };
}

mod append;
mod class;
mod held;
mod mutex;
mod name_locks;
pub mod order;
mod prefetch;
mod primitives;
mod rwlock;
pub mod stats;
mod striped_rwlock;
mod thread_number;
mod wait_queue;
mod waiter;

pub use append::AppendList;
pub use class::{LockClass, Rank};
pub use held::Declared;
pub use mutex::{Mutex, MutexGuard};
pub use name_locks::{NameGuard, NameLocks, NamePairGuard};
pub use prefetch::prefetch_for_write;
pub use primitives::{atomic, thread};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use striped_rwlock::{StripedReadGuard, StripedRwLock, StripedWriteGuard};
pub use thread_number::thread_number;
pub use wait_queue::WaitQueue;
