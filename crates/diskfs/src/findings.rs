//! What a check finds, in one form for every filesystem.

use std::fmt;

use undercroft_sync::{Mutex, order};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A word for programs, which stays what it is: `free-space-differs`.
    pub code: &'static str,
    /// The block group or allocation group, where it is one group's.
    pub group: Option<u32>,
    /// The inode, where it is one inode's.
    pub inode: Option<u64>,
    /// The block in which it lies, or which it is about, as the filesystem's own debugger numbers blocks (debugfs;
    /// xfs_db, which calls the number fsblock).
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

/// Where a finding belongs.
#[derive(Clone, Copy, Debug, Default)]
pub struct At {
    group: Option<u32>,
    inode: Option<u64>,
    block: Option<u64>,
}

impl At {
    /// The filesystem as a whole.
    #[must_use]
    pub fn filesystem() -> Self {
        Self::default()
    }

    /// One group.
    #[must_use]
    pub fn group(group: u32) -> Self {
        Self { group: Some(group), ..Self::default() }
    }

    /// One inode.
    #[must_use]
    pub fn inode(inode: impl Into<u64>) -> Self {
        Self { inode: Some(inode.into()), ..Self::default() }
    }

    /// A block of it.
    #[must_use]
    pub fn block(self, block: u64) -> Self {
        Self { block: Some(block), ..self }
    }
}

/// Findings as they come, from any thread. The first of them are kept up to a limit, the others counted.
///
/// Locks: its own, of class `COLLECTED`, held to add one finding.
#[derive(Debug)]
pub struct Findings {
    kept: Mutex<Kept>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Kept {
    findings: Vec<Finding>,
    left_out: u64,
}

impl Findings {
    /// None yet, of which `limit` will be kept.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { kept: Mutex::new(&order::COLLECTED, Kept::default()), limit }
    }

    /// Adds one: a word for programs, where it belongs, and a sentence.
    pub fn add(&self, code: &'static str, at: At, detail: impl Into<String>) {
        let At { group, inode, block } = at;
        let mut kept = self.kept.lock();
        if kept.findings.len() < self.limit {
            kept.findings.push(Finding { code, group, inode, block, detail: detail.into() });
        } else {
            kept.left_out += 1;
        }
    }

    /// What was kept, in the order in which it came, and how many more there were.
    #[must_use]
    pub fn finish(self) -> (Vec<Finding>, u64) {
        let Kept { findings, left_out } = self.kept.into_inner();
        (findings, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_its_code() {
        let findings = Findings::new(10);
        findings.add("lost", At::filesystem(), "something is lost");
        findings.add("map-circle", At::inode(7_u32).block(900), "a block is its own parent");
        findings.add("counts-differ", At::group(3), "5 free blocks, of which 4 are found");
        let (kept, left_out) = findings.finish();
        let lines: Vec<_> = kept.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "something is lost (lost)",
                "inode 7, block 900: a block is its own parent (map-circle)",
                "group 3: 5 free blocks, of which 4 are found (counts-differ)",
            ]
        );
        assert_eq!(left_out, 0);
    }

    #[test]
    fn those_past_the_limit_are_counted() {
        let findings = Findings::new(2);
        for n in 0..5_u64 {
            findings.add("wrong", At::inode(n), "is wrong");
        }
        let (kept, left_out) = findings.finish();
        assert_eq!(kept.iter().map(|f| f.inode).collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert_eq!(left_out, 3);
    }
}
