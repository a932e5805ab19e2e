//! What a recovery did, for reports to users.

/// The outcome of a journal recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Committed transactions in the log.
    pub transactions: u32,
    /// Number of the first of them.
    pub first_sequence: u32,
    /// Number that follows the last of them; numbers wrap at 2^32.
    pub end_sequence: u32,
    /// Copies of blocks in those transactions.
    pub blocks_logged: u64,
    /// Blocks written to their homes: the latest copy of each that is not revoked.
    pub blocks_replayed: u64,
    /// Revocations in those transactions.
    pub revoke_records: u64,
    /// Copies that a revocation kept out.
    pub blocks_revoked: u64,
    /// Complete fast commits after the last transaction.
    pub fast_commits: u32,
    /// Operations in them.
    pub fast_commit_operations: u64,
    /// The block in which a fast commit is known to be incomplete or damaged, as a crash in the middle of it leaves it.
    /// It and what follows it do not count.
    pub fast_commits_cut_short: Option<u64>,
    /// The error for which the last writer aborted, as a negative errno; 0 when there was none. The filesystem
    /// should be checked.
    pub recorded_error: i32,
}
