//! ext4 as a client of the journal: what its items are, how they are sealed, and its own part in a commit.
//!
//! Every item is a block of the buffer cache, sealed by [`Seal`]. With a log, blocks are written to it in jbd2's format
//! ([`log`]) and written back as they are; without one, a commit writes them home. The engine, its rules for threads and
//! its locks are those of `undercroft_journal`.

mod client;
mod handle;
mod log;
mod seal;
#[cfg(test)]
mod tests;

pub(crate) use handle::Handle;
pub(crate) use log::logged;
pub(crate) use seal::Seal;
pub(crate) use undercroft_journal::{Stop, StoppableDevice, Tid};

use crate::volume::Volume;

/// The transactions of a filesystem.
pub(crate) type Transactions = undercroft_journal::Transactions<Volume>;

/// The threads that commit them and write them back.
pub(crate) type Service = undercroft_journal::Service<Volume>;

/// A block of the cache, with what the journal keeps beside it.
pub(crate) type Block = undercroft_journal::LoggedBlock<Seal>;

/// What is kept beside a block.
pub(crate) type LoggedState = undercroft_journal::LoggedState<Seal>;
