//! What filesystems on a block device have in common beside their log: inodes in use, what a check finds, and what making
//! one asks of the device. Nothing here knows an on-disk format.

mod findings;
pub mod in_use;
pub mod making;

pub use findings::{At, Finding, Findings};
