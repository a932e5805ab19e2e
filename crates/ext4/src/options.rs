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
    /// Whether changes go to the journal. Without it they are written home at once, and a crash leaves a filesystem that must
    /// be made anew: for filling a new one, whose journal stays as it was made.
    /// Reserved blocks are used like others.
    pub logged: bool,
    /// Whether opening it counts as a mount; not for tools that change what is not mounted.
    pub counts_mount: bool,
    /// What the generations of new inodes are made of, and where directories are placed; random unless said.
    pub generation_seed: Option<u64>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            commit_seconds: 5,
            orphans: OrphanForm::Best,
            journaled_overwrites: false,
            synchronous: false,
            discard: false,
            logged: true,
            counts_mount: true,
            generation_seed: None,
        }
    }
}

impl WriteOptions {
    /// How often changes are committed without being asked for.
    pub(crate) fn commit_interval(&self) -> Duration {
        Duration::from_secs(u64::from(self.commit_seconds.max(1)))
    }

    /// The generation of an inode's number, where it is not random.
    pub(crate) fn generation(&self, number: u64) -> Option<u32> {
        // The finalizer of splitmix64, in which each bit depends on all of them.
        let mixed = self.generation_seed?.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((mixed ^ (mixed >> 31)) as u32)
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
