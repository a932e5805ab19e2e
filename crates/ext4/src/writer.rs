//! What a filesystem that takes changes has beside its volume.

use std::sync::Arc;
use std::time::Duration;

use undercroft_sync::{Mutex, order};
use undercroft_vfs::Result;

use crate::alloc::Allocator;
use crate::live::{Growing, LateTimes};
use crate::orphan::Orphans;
use crate::transaction::{Handle, Transactions};
use crate::volume::Volume;
use crate::{dir, xattr};

/// How a filesystem is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// How changes reach the disk when nobody asks: this many seconds later at most (`commit=`).
    pub commit_seconds: u32,
    /// How inodes are remembered that a crash must not forget (`orphan=`).
    pub orphans: OrphanForm,
    /// Whether a write over what is there already starts a handle for the sake of the time it happened at: the plain
    /// form (`overwrite=journaled`).
    pub journaled_overwrites: bool,
    /// Each change is on the disk when the call that makes it returns (`sync`).
    pub synchronous: bool,
    /// The device is told of blocks that are freed (`discard`).
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

/// The parts that make changes.
pub(crate) struct Writer {
    pub(crate) transactions: Transactions,
    pub(crate) options: WriteOptions,
    /// Whether the filesystem had been left clean when it was opened.
    pub(crate) found_clean: bool,
    /// Free blocks and inodes.
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) orphans: Orphans,
    /// The locks of all leaves of directories.
    pub(crate) directory_leaves: dir::LeafLocks,
    pub(crate) late_times: LateTimes,
    /// Files that have space ahead of what was written to them.
    pub(crate) growing: Growing,
    pub(crate) shared_attributes: xattr::SharedBlocks,
    /// Held while the filesystem grows.
    pub(crate) resizing: Mutex<()>,
}

impl Writer {
    /// What `volume` is written with.
    ///
    /// # Errors
    /// Corruption of the group descriptors; I/O failure.
    pub(crate) fn new(volume: &Volume, transactions: Transactions, options: WriteOptions) -> Result<Self> {
        let allocator = Arc::new(Allocator::new(volume, &options)?);
        let orphans = Orphans::new(volume, &options)?;
        Ok(Self {
            transactions,
            options,
            found_clean: false,
            allocator,
            orphans,
            directory_leaves: dir::LeafLocks::new(),
            late_times: LateTimes::new(),
            growing: Growing::new(),
            shared_attributes: xattr::SharedBlocks::default(),
            resizing: Mutex::new(&order::RESIZE, ()),
        })
    }

    /// Before a transaction is written: what is kept in memory and not in blocks goes into its blocks.
    ///
    /// # Errors
    /// I/O failure.
    pub(crate) fn prepare_commit(&self, handle: &Handle<'_>) -> Result<()> {
        self.allocator.prepare_commit(handle)
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("options", &self.options).finish_non_exhaustive()
    }
}
