//! The journal, a jbd2 log: its recovery, and its writing.
//!
//! Recovery turns a dirty log into a clean filesystem before the first operation on it. Three passes over the log:
//! find its end ([`scan`]), collect revocations ([`revoke`]), replay ([`replay`]); then the fast commits that follow
//! the last transaction (`crate::fast_commit`). A single thread calls it while the filesystem is opened, so it takes no
//! locks. A log that waits for recovery and one that is empty are different types ([`log`]), so a mount without replay
//! does not compile. A log that is empty may then be written ([`ring`]).
//!
//! All passes are loops bounded by the length of the log, and what they remember is bounded by it too. Every
//! number is checked before it is used; an unknown feature is refused by name.
//!
//! Left out: writing fast commits; external journal devices, which the caller refuses.

mod checksum;
mod commit;
mod create;
mod descriptor;
mod features;
mod format;
mod location;
mod log;
mod replay;
mod report;
mod revoke;
mod ring;
mod scan;
mod sequence;
mod superblock;
#[cfg(test)]
mod tests;

pub(crate) use create::{copy_as_empty, empty_superblock};
pub(crate) use location::{LogBlock, LogLocation, LogRun, Volume};
pub(crate) use log::{CleanLog, DirtyLog, Log, ReplayedLog};
pub use report::RecoveryReport;
pub(crate) use ring::{LogTail, LogWriter};
pub(crate) use sequence::Sequence;
pub(crate) use superblock::LogForm;
