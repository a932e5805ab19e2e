//! How a filesystem is written to: what the user chooses when it is opened.

use std::time::Duration;

/// How a filesystem is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// How changes reach the disk without a sync: this many seconds later at most (`commit=`).
    pub commit_seconds: u32,
    /// How inodes are remembered that a crash must not forget (`orphan=`).
    pub orphans: OrphanForm,
    /// Whether a write over what is there already starts a handle for the sake of the time it happened at: the plain
    /// form (`overwrite=journaled`).
    pub journaled_overwrites: bool,
    /// Each change is on the disk when the call that makes it returns (`sync`).
    pub synchronous: bool,
    /// Freed blocks are discarded on the device (`discard`).
    pub discard: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            commit_seconds: 5,
            orphans: OrphanForm::Best,
            journaled_overwrites: false,
            synchronous: false,
            discard: false,
        }
    }
}

impl WriteOptions {
    /// How often changes are committed without being asked for.
    pub(crate) fn commit_interval(&self) -> Duration {
        Duration::from_secs(u64::from(self.commit_seconds.max(1)))
    }
}

/// Where inodes are remembered while they are truncated, or are in use without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanForm {
    /// In the orphan file, where the filesystem has one, otherwise in the list.
    Best,
    /// In the list, which starts in the superblock, even where there is a file; whether an inode is on it is asked
    /// without the list's lock.
    List,
    /// As `List`, with the lock taken for every question: the plain form.
    Locked,
}
