//! What a check found, in the same form for all kinds of filesystem.

use serde::Serialize;
use undercroft_diskfs as diskfs;
use undercroft_ext4 as ext4;
use undercroft_xfs as xfs;

use super::recovery::Recovery;
use crate::text::names::safe;

/// What a check found.
#[derive(Debug)]
pub(crate) struct Checked {
    /// What was replayed in memory before.
    pub(crate) recovery: Option<Recovery>,
    /// Why fast commits were not looked at, if they were not.
    pub(crate) fast_commits_left_out: Option<String>,
    /// Inodes that the next mount will release or cut.
    pub(crate) orphans: u64,
    pub(crate) inodes: u64,
    pub(crate) directories: u64,
    pub(crate) blocks: u64,
    pub(crate) findings: Vec<Finding>,
    pub(crate) findings_left_out: u64,
}

/// One thing that is wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    detail: String,
    /// All of it, as text.
    #[serde(skip)]
    pub(crate) line: String,
}

impl From<diskfs::Finding> for Finding {
    fn from(finding: diskfs::Finding) -> Self {
        let line = safe(finding.to_string().as_bytes());
        let diskfs::Finding { code, group, inode, block, detail } = finding;
        Self { code, group, inode, block, detail, line }
    }
}

impl From<ext4::CheckReport> for Checked {
    fn from(report: ext4::CheckReport) -> Self {
        Self {
            recovery: report.recovery.as_ref().map(|recovery| Recovery::Ext4(recovery.into())),
            fast_commits_left_out: report.fast_commits_left_out,
            orphans: report.orphans,
            inodes: report.inodes,
            directories: report.directories,
            blocks: report.blocks,
            findings: report.findings.into_iter().map(Finding::from).collect(),
            findings_left_out: report.findings_left_out,
        }
    }
}

impl From<xfs::CheckReport> for Checked {
    fn from(report: xfs::CheckReport) -> Self {
        Self {
            recovery: report.recovery.as_ref().map(|recovery| Recovery::Xfs(recovery.into())),
            fast_commits_left_out: None,
            orphans: report.orphans,
            inodes: report.inodes,
            directories: report.directories,
            blocks: report.blocks,
            findings: report.findings.into_iter().map(Finding::from).collect(),
            findings_left_out: report.findings_left_out,
        }
    }
}
