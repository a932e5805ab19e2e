//! ext4 as a client of the journal: what its items are, how they are sealed, and its own part in a commit.
//!
//! Every item is a block of the buffer cache, sealed as its [`Seal`] says (`seal`). With a log, blocks are written to it
//! in jbd2's format ([`log`]) and written back as they are; without one, a commit writes them home. The engine, its rules
//! for threads and its locks are those of `undercroft_journal`.

mod block;
mod client;
mod handle;
mod log;
mod seal;
#[cfg(test)]
mod tests;

pub(crate) use block::{Block, LoggedState, Seal};
pub(crate) use handle::Handle;
pub(crate) use log::logged;
pub(crate) use undercroft_journal::{Stop, StoppableDevice, Tid};
