//! The one place that chooses between real primitives and a model checker's.
//!
//! `real` is parking_lot, the standard atomics and thread parking. `model` gives the same names and shapes over
//! loom (`--cfg loom`, exhaustive, two or three threads) or shuttle (`--cfg shuttle`, random schedules), which
//! cannot see into parking_lot. Everything else in this crate is written once, against these names:
//!
//! - `Mutex`, `RwLock` and their guards, in parking_lot's shape: no poisoning.
//! - `atomic` and `thread`: `std::sync::atomic` and `std::thread`, or the checker's.
//! - `Deadline`: until when a thread may sleep. Under a model a deadline passes at the first sleep, so a
//!   time-out races with everything else.
//! - `spin_until`: a short wait before a sleep; none under a model.
//! - `has_readers`: a glance at a readers-writer lock; under a model it always has some.
//! - `thread_number`, and `thread_local!`.

#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod real;

#[cfg(any(loom, shuttle))]
pub(crate) use model::*;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use real::*;

#[cfg(any(loom, shuttle))]
pub use model::{atomic, thread};
#[cfg(not(any(loom, shuttle)))]
pub use real::{atomic, thread};
