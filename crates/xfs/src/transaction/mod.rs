//! XFS as a client of the journal: what its items are, how they are sealed, and its own part in a commit.
//!
//! Every item is a block of the buffer cache, sealed as its [`Seal`] says. One transaction of the engine is one
//! checkpoint of XFS's log. The engine, its rules for threads and its locks are those of `undercroft_journal`.

mod block;
mod client;
mod handle;
mod log;
mod parts;
mod seal;
#[cfg(all(test, feature = "oracle"))]
mod tests;

pub(crate) use block::{Block, LoggedState, Seal};
pub(crate) use handle::Handle;
pub(crate) use log::logged;
pub(crate) use parts::Parts;
pub(crate) use undercroft_journal::{Stop, Tid};
