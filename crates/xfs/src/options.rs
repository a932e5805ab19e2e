//! How a filesystem is written to: what the user chooses when it is opened.

use std::time::Duration;

/// How a filesystem is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// How changes reach the disk without a sync: this many seconds later at most (`commit=`).
    pub commit_seconds: u32,
    /// Whether a write over what is there already starts a handle for the sake of the time it happened at: the plain
    /// form (`overwrite=journaled`).
    pub journaled_overwrites: bool,
    /// Each change is on the disk when the call that makes it returns (`sync`).
    pub synchronous: bool,
    /// Freed blocks are discarded on the device, once the transaction that freed them is durable (`discard`): the longest
    /// runs of each group. A trim discards the rest.
    pub discard: bool,
    /// Whether an inode is allocated by the free inode B+tree, where the volume has one. Without it all chunks of a group
    /// are searched: the plain form (`finobt=off`). The tree is kept either way.
    pub search_free_inode_tree: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            commit_seconds: 5,
            journaled_overwrites: false,
            synchronous: false,
            discard: false,
            search_free_inode_tree: true,
        }
    }
}

impl WriteOptions {
    /// How often changes are committed without being asked for.
    pub(crate) fn commit_interval(&self) -> Duration {
        Duration::from_secs(u64::from(self.commit_seconds.max(1)))
    }
}
