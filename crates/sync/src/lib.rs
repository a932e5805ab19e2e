//! Locks that carry a class, wait queues and name locks: every lock of the house comes from here.

mod class;
mod mutex;
pub mod order;
mod rwlock;

pub use class::{LockClass, Rank};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
