//! The journal with a client of its own: a ledger whose items are smaller than a block, whose log is counted in bytes,
//! and whose payments are intents that later transactions carry out.

mod client;
mod crash;
mod format;
mod waiting;
