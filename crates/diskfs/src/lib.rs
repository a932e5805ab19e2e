//! What filesystems on a block device have in common: taking changes, inodes in use, what a check finds, and what making
//! one asks of the device. Nothing here knows an on-disk format.

mod changes;
mod findings;
pub mod in_use;
pub mod making;

pub use changes::{Changeable, WriteStats};
pub use findings::{At, Finding, Findings};
