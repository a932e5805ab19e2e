//! What a check found.

use std::fmt;

use undercroft_sync::{Mutex, order};

use crate::log::Recovery;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A word for programs, which stays what it is: `free-space-differs`.
    pub code: &'static str,
    /// The allocation group, where it is one group's.
    pub group: Option<u32>,
    /// The inode, where it is one inode's.
    pub inode: Option<u64>,
    /// The block in which it lies, or which it is about: the number that xfs_db calls fsblock.
    pub block: Option<u64>,
    /// What was found, and what was expected.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (name, number) in
            [("group", self.group.map(u64::from)), ("inode", self.inode), ("block", self.block)]
        {
            if let Some(number) = number {
                write!(f, "{before}{name} {number}")?;
                before = ", ";
            }
        }
        write!(f, "{}{} ({})", if before.is_empty() { "" } else { ": " }, self.detail, self.code)
    }
}

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

/// Where a finding belongs; completed by what was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At {
    pub(super) group: Option<u32>,
    pub(super) inode: Option<u64>,
    pub(super) block: Option<u64>,
}

impl At {
    pub(super) fn filesystem() -> Self {
        Self::default()
    }

    pub(super) fn group(group: u32) -> Self {
        Self { group: Some(group), ..Self::default() }
    }

    pub(super) fn inode(inode: u64) -> Self {
        Self { inode: Some(inode), ..Self::default() }
    }

    pub(super) fn block(self, block: u64) -> Self {
        Self { block: Some(block), ..self }
    }
}

/// Findings as they come from any thread, so many of them kept.
#[derive(Debug)]
pub(super) struct Findings {
    kept: Mutex<(Vec<Finding>, u64)>,
    limit: usize,
}

impl Findings {
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: Mutex::new(&order::INDEX, (Vec::new(), 0)), limit }
    }

    pub(super) fn add(&self, code: &'static str, at: At, detail: impl Into<String>) {
        let At { group, inode, block } = at;
        let finding = Finding { code, group, inode, block, detail: detail.into() };
        let mut kept = self.kept.lock();
        if kept.0.len() < self.limit {
            kept.0.push(finding);
        } else {
            kept.1 += 1;
        }
    }

    /// What was kept, in an order that does not depend on the threads, and the count of the rest.
    pub(super) fn finish(self) -> (Vec<Finding>, u64) {
        let (mut kept, left_out) = self.kept.into_inner();
        kept.sort_by(|a, b| {
            let key = |f: &Finding| (f.inode.is_some(), f.group.is_none(), f.group, f.inode, f.block, f.code);
            key(a).cmp(&key(b)).then_with(|| a.detail.cmp(&b.detail))
        });
        (kept, left_out)
    }
}
