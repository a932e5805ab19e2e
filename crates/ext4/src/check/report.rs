//! What a check found.

use std::fmt;

use crate::jbd2::RecoveryReport;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A word for programs, which stays what it is: `block-bitmap-differs`.
    pub code: &'static str,
    /// The block group, where it is one group's.
    pub group: Option<u32>,
    /// The inode, where it is one inode's.
    pub inode: Option<u32>,
    /// The block in which it lies, or which it is about.
    pub block: Option<u64>,
    /// What was found, and what was expected.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        if let Some(group) = self.group {
            write!(f, "group {group}")?;
            before = ", ";
        }
        if let Some(inode) = self.inode {
            write!(f, "{before}inode {inode}")?;
            before = ", ";
        }
        if let Some(block) = self.block {
            write!(f, "{before}block {block}")?;
            before = ", ";
        }
        write!(f, "{}{} ({})", if before.is_empty() { "" } else { ": " }, self.detail, self.code)
    }
}

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

/// Where a finding belongs; completed by what was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At {
    group: Option<u32>,
    inode: Option<u32>,
    block: Option<u64>,
}

impl At {
    pub(super) fn filesystem() -> Self {
        Self::default()
    }

    pub(super) fn group(group: u32) -> Self {
        Self { group: Some(group), ..Self::default() }
    }

    pub(super) fn inode(inode: u32) -> Self {
        Self { inode: Some(inode), ..Self::default() }
    }

    pub(super) fn block(self, block: u64) -> Self {
        Self { block: Some(block), ..self }
    }
}

/// Findings as they come, so many of them kept.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) kept: Vec<Finding>,
    pub(super) left_out: u64,
    limit: usize,
}

impl Findings {
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), left_out: 0, limit }
    }

    pub(super) fn add(&mut self, code: &'static str, at: At, detail: impl Into<String>) {
        if self.kept.len() == self.limit {
            self.left_out += 1;
            return;
        }
        let At { group, inode, block } = at;
        self.kept.push(Finding { code, group, inode, block, detail: detail.into() });
    }
}
