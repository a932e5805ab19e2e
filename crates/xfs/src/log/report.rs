//! What a recovery did.

use undercroft_vfs::Ino;

use super::intents::Unfinished;

/// Which part of a log holds changes, in its blocks of 512 bytes: none where both ends are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// First block of the oldest record that counts.
    pub tail_block: u32,
    /// The block after the newest record.
    pub head_block: u32,
}

/// The outcome of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Committed transactions in the log.
    pub transactions: u64,
    /// Transactions that the crash came before; they do not count.
    pub uncommitted: u64,
    /// Buffers of metadata that were changed, each time counted.
    pub buffers: u64,
    /// Inodes that were changed, each time counted.
    pub inodes: u64,
    /// Chunks of new inodes.
    pub chunks: u64,
    /// Changes that were left out, because what lies there is newer.
    pub newer: u64,
    /// Changes that were left out, because what they changed was freed later on.
    pub freed: u64,
    /// Whether the log has changes of quota, which are not replayed: it must be recounted.
    pub quota: bool,
    /// The block of the log in which a record is damaged, as a crash in the middle of writing it leaves it. The log ends
    /// there.
    pub torn_at: Option<u32>,
    /// Lists of unlinked inodes that are broken; the inodes behind the break are not known, and xfs_repair finds
    /// them.
    pub broken_lists: u64,
    /// Unlinked inodes that were in use, which a mount for writing frees.
    pub(crate) unlinked: Vec<Ino>,
    /// Work that was interrupted.
    pub(crate) unfinished: Vec<Unfinished>,
}

impl Recovery {
    /// Unlinked inodes that were in use, which a mount for writing frees.
    #[must_use]
    pub fn unlinked_inodes(&self) -> usize {
        self.unlinked.len()
    }

    /// Steps that several transactions were to take, and that the crash interrupted; a mount for writing takes them.
    #[must_use]
    pub fn unfinished_steps(&self) -> usize {
        self.unfinished.len()
    }

    /// Such steps by kind: blocks that become free, changes of the reverse map, of reference counts, and of files' maps.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn unfinished_by_kind(&self) -> [usize; 4] {
        let mut kinds = [0; 4];
        for step in &self.unfinished {
            kinds[match step {
                Unfinished::Free { .. } => 0,
                Unfinished::Owner(_) => 1,
                Unfinished::Users { .. } => 2,
                Unfinished::Map(_) => 3,
            }] += 1;
        }
        kinds
    }
}
