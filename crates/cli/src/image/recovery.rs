//! What was replayed in memory when an image was opened or checked, by the kind of its filesystem.

use serde::{Deserialize, Serialize};
use undercroft_ext4::RecoveryReport;
use undercroft_xfs as xfs;

use crate::text::human;

/// What was replayed.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Recovery {
    Ext4(Ext4Recovery),
    Xfs(XfsRecovery),
}

/// Of a journal of ext3 or ext4.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ext4Recovery {
    pub(crate) transactions: u32,
    pub(crate) blocks_logged: u64,
    pub(crate) blocks_replayed: u64,
    pub(crate) blocks_revoked: u64,
    pub(crate) fast_commits: u32,
    pub(crate) fast_commit_operations: u64,
    pub(crate) fast_commits_cut_short: bool,
    pub(crate) recorded_error: i32,
}

/// Of a log of XFS.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct XfsRecovery {
    pub(crate) transactions: u64,
    pub(crate) buffers: u64,
    pub(crate) inodes: u64,
    pub(crate) unlinked_inodes: u64,
    pub(crate) broken_unlinked_lists: u64,
    pub(crate) unfinished_steps: u64,
    pub(crate) quota_changed: bool,
    pub(crate) torn_at_block: Option<u32>,
}

impl Recovery {
    /// One sentence: what was replayed.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Ext4(ext4) => format!("the journal was replayed in memory: {}", ext4.words()),
            Self::Xfs(xfs) => format!("the log was replayed in memory: {}", xfs.words()),
        }
    }
}

impl From<&RecoveryReport> for Ext4Recovery {
    fn from(report: &RecoveryReport) -> Self {
        Self {
            transactions: report.transactions,
            blocks_logged: report.blocks_logged,
            blocks_replayed: report.blocks_replayed,
            blocks_revoked: report.blocks_revoked,
            fast_commits: report.fast_commits,
            fast_commit_operations: report.fast_commit_operations,
            fast_commits_cut_short: report.fast_commits_cut_short.is_some(),
            recorded_error: report.recorded_error,
        }
    }
}

impl Ext4Recovery {
    /// `3 transactions, 17 blocks`.
    pub(crate) fn words(&self) -> String {
        let mut words = format!(
            "{}, {}",
            human::counted(self.transactions.into(), "transaction"),
            human::counted(self.blocks_replayed, "block")
        );
        if self.fast_commits > 0 {
            words.push_str(&format!(", {}", human::counted(self.fast_commits.into(), "fast commit")));
        }
        words
    }
}

impl From<&xfs::Recovery> for XfsRecovery {
    fn from(recovery: &xfs::Recovery) -> Self {
        Self {
            transactions: recovery.transactions,
            buffers: recovery.buffers,
            inodes: recovery.inodes,
            unlinked_inodes: recovery.unlinked_inodes() as u64,
            broken_unlinked_lists: recovery.broken_lists,
            unfinished_steps: recovery.unfinished_steps() as u64,
            quota_changed: recovery.quota,
            torn_at_block: recovery.torn_at,
        }
    }
}

impl XfsRecovery {
    /// `3 transactions, 17 buffers, 2 inodes`.
    pub(crate) fn words(&self) -> String {
        format!(
            "{}, {}, {}",
            human::counted(self.transactions, "transaction"),
            human::counted(self.buffers, "buffer"),
            human::counted(self.inodes, "inode")
        )
    }
}
