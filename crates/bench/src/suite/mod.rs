//! All workloads on all filesystems in one run: what `undercroft bench suite` measures.
//!
//! A *chart* is a workload, with all workers in one directory or each in its own. Its *contenders* are the filesystems, in
//! process in their best form and their plain ones, mounted, the kernel's, and the bare device as the limit. A *cell* is a
//! contender with so many workers. The suite measures cells in rounds: each round measures every cell once, contenders of a
//! chart next to each other, so that a machine whose speed drifts slows all alike. What cannot be measured is a *gap* with
//! its reason, and part of the results like any figure.
//!
//! Mounting is the caller's affair, and so is the time: everything here is given a clock.

mod cell;
mod chart;
mod contender;
mod gap;
mod results;
mod run;
mod scale;

pub use chart::{Chart, Directories, charts};
pub use contender::{Contender, Filesystem, Role};
pub use gap::Gap;
pub use results::{CellResult, ChartResult, ContenderResult, LockTable, Results, Spread};
pub use run::{Hooks, Measurements, planned, run};
pub use scale::{Scale, Size};

#[cfg(test)]
pub(crate) use results::tests as results_for_tests;
