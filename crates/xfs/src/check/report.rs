//! What a check found.

use undercroft_diskfs::Finding;

use crate::log::Recovery;

/// Everything that a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What is wrong: groups first, then inodes, then what only all of them together show.
    pub findings: Vec<Finding>,
    /// How many more there were than were kept.
    pub findings_left_out: u64,
    /// What the log held, if the check replayed it in memory before ([`super::check_with_log`]).
    pub recovery: Option<Recovery>,
    /// Inodes that have no name and wait to be released; the next mount does it.
    pub orphans: u64,
    /// Inodes in use, the filesystem's own included.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
}

impl CheckReport {
    /// Whether nothing is wrong with what was looked at.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Findings in an order that does not depend on the threads.
pub(super) fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let key = |f: &Finding| (f.inode.is_some(), f.group.is_none(), f.group, f.inode, f.block, f.code);
        key(a).cmp(&key(b)).then_with(|| a.detail.cmp(&b.detail))
    });
}
