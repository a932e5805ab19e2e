//! What filesystems on a block device have in common beside their log: findings of a check, and what making one needs. Nothing here knows an on-disk format.

mod findings;
pub mod making;

pub use findings::{At, Finding, Findings};
