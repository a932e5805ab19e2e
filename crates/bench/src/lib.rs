//! Workloads that measure filesystems: ours in process, and any mounted one by system calls.
//!
//! The same steps ([`Workload`]) run against both, through the few operations on one directory and its files that they
//! need. In
//! process the workers are threads above one `Vfs`; against a mounted filesystem they are processes, as the programs
//! are that a kernel serves. A [`Job`] says what to measure, [`measure`] does it once, [`Rounds`] takes two in turn,
//! and [`sweep`] one after the other with more and more workers, for a plot.
//!
//! ```
//! use std::num::{NonZeroU32, NonZeroU64};
//! use undercroft_bench::{Job, Target, Workload, measure};
//!
//! let job = Job {
//!     workload: Workload::CreateUnlink,
//!     target: Target::parse("tmpfs:".as_ref())?,
//!     threads: NonZeroU32::MIN,
//!     ops: NonZeroU64::new(1000).unwrap(),
//!     file_bytes: NonZeroU64::new(4096).unwrap(),
//!     inodes: NonZeroU64::MIN,
//!     separate: false,
//!     locks: false,
//! };
//! let outcome = measure(&job, &|_| unreachable!("workers in this process are threads"))?;
//! assert!(outcome.ops_per_second > 0.0);
//! # Ok::<(), undercroft_bench::BenchError>(())
//! ```
//!
//! What is timed: every worker warms up, all wait for each other, and the time runs from the first that starts to the
//! last that ends. Each worker keeps to memory of its own, with one reading of the clock for each operation: where one
//! ends the next begins.
//!
//! Arrays and bare devices are measured alike, without a directory: their scripts write to the device.
//!
//! A filesystem of ours is added in `in_process.rs`, and its name in `target.rs`.

mod aligned;
mod array_form;
mod clock;
mod directory;
mod error;
mod ext4;
mod histogram;
mod in_process;
mod job;
pub mod machine;
mod measure;
mod members;
mod mounted;
mod outcome;
pub mod page;
mod plot;
mod processes;
mod random;
mod raw;
mod rounds;
mod script;
mod sheet;
mod sizes;
pub mod suite;
mod sweep;
mod target;
mod threads;
mod usage;
mod vfs_directory;
mod worker;
mod workload;
mod xfs;

pub use array_form::ArrayForm;
pub use error::BenchError;
pub use ext4::Ext4Form;
pub use histogram::Histogram;
pub use in_process::InProcess;
pub use job::Job;
pub use measure::measure;
pub use members::Members;
pub use outcome::{Growth, JournalUse, LatencyUs, Outcome, StripeUse};
pub use plot::draw;
pub use processes::{Part, serve_worker};
pub use rounds::{Comparison, Rounds};
pub use sweep::{Point, Series, sweep};
pub use target::Target;
pub use undercroft_sync::stats::ClassStats;
pub use workload::Workload;
pub use xfs::{FreeInodeTree, XfsForm};
