//! Workloads that measure filesystems: ours in process, and any mounted one by system calls.
//!
//! The same steps ([`Workload`]) run against both, through the few operations on one directory that they need. In
//! process the workers are threads above one `Vfs`; against a mounted filesystem they are processes, as the programs
//! are that a kernel serves. A [`Job`] says what to measure, [`measure`] does it once, [`Rounds`] takes two in turn,
//! and [`sweep`] one after the other with more and more workers, for a plot.
//!
//! What is timed: every worker warms up, all wait for each other, and the time runs from the first that starts to the
//! last that ends. Each worker keeps to memory of its own, with one reading of the clock for each operation: where one
//! ends the next begins.
//!
//! A filesystem of ours is added in `target.rs`, and nowhere else.

mod clock;
mod directory;
mod error;
mod histogram;
mod job;
mod mounted;
mod outcome;
mod plot;
mod processes;
mod rounds;
mod script;
mod sheet;
mod sweep;
mod target;
mod threads;
mod usage;
mod worker;
mod workload;

pub use error::BenchError;
pub use histogram::Histogram;
pub use job::{Job, measure};
pub use outcome::{Growth, LatencyUs, LockRow, Outcome};
pub use plot::draw;
pub use processes::{Part, serve_worker};
pub use rounds::{Comparison, Rounds};
pub use sweep::{Point, Series, sweep};
pub use target::Target;
pub use workload::Workload;
