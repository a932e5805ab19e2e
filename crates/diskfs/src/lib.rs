//! What filesystems on a block device have in common: taking changes, in-memory inodes, what a check finds, and what making
//! one asks of the device. Nothing here knows an on-disk format, beyond the codes of kinds of files that formats share.

mod changes;
pub mod entry_kind;
mod findings;
pub mod in_use;
pub mod mkfs;

pub use changes::{Changeable, WriteStats};
pub use findings::{At, Finding, Findings};
