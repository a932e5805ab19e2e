//! What a check found.

use undercroft_diskfs::Finding;

use crate::jbd2::RecoveryReport;

/// Everything that a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What is wrong, in the order of the passes and of the disk within each.
    pub findings: Vec<Finding>,
    /// How many more there were than were kept.
    pub findings_left_out: u64,
    /// What the journal held, if it was replayed in memory before the check.
    pub recovery: Option<RecoveryReport>,
    /// Why the fast commits that the journal holds were not looked at, if they were not: the findings are of how the
    /// last transaction left the filesystem.
    pub fast_commits_left_out: Option<String>,
    /// Inodes that wait to be released or truncated; the next mount does it.
    pub orphans: u64,
    /// Inodes in use, special ones included.
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
