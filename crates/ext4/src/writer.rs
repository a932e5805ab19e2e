//! A filesystem in use: its volume, and what a writable filesystem has beside it.
//!
//! A [`Handle`](crate::transaction::Handle) carries the [`Writer`]. The types below it are state only; the operations on
//! them, which take a handle, lie above.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use undercroft_diskfs::Changeable;
use undercroft_diskfs::in_use::{LazyTimes, WindowList};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::{Error, Result};

use crate::alloc::Allocator;
use crate::numbers::FsBlock;
use crate::options::WriteOptions;
use crate::orphan::Orphans;
use crate::volume::Volume;
use crate::{dir, xattr};

/// The transactions of a filesystem.
pub(crate) type Transactions = undercroft_journal::Transactions<Mounted>;

/// The threads that commit them and write them back.
pub(crate) type Service = undercroft_journal::Service<Mounted>;

/// A volume, and what changes it, if anything does.
#[derive(Debug)]
pub(crate) struct Mounted {
    volume: Volume,
    /// What only a filesystem that is opened for writing has.
    writer: OnceLock<Writer>,
}

impl Mounted {
    /// A volume that is only read until it gets a writer.
    pub(crate) fn new(volume: Volume) -> Self {
        Self { volume, writer: OnceLock::new() }
    }

    /// What makes changes.
    ///
    /// # Errors
    /// [`ReadOnly`](Error::ReadOnly) for a filesystem that was opened for reading.
    #[inline]
    pub(crate) fn writer(&self) -> Result<&Writer> {
        // No `ok_or`: on the path of each write, an error would be made and dropped.
        match self.writer.get() {
            Some(writer) => Ok(writer),
            None => Err(Error::ReadOnly),
        }
    }

    /// Lets the filesystem take changes from now on.
    pub(crate) fn set_writer(&self, writer: Writer) {
        let _ = self.writer.set(writer);
    }

    /// Makes durable what was written before. A failure ends the changes, because what was lost is unknown.
    ///
    /// # Errors
    /// I/O failure.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_device(self.device())
    }
}

impl Changeable for Mounted {
    fn changes(&self) -> Result<(&Transactions, &LazyTimes)> {
        let writer = self.writer()?;
        Ok((&writer.transactions, &writer.lazy_times))
    }
}

impl Deref for Mounted {
    type Target = Volume;
    #[inline]
    fn deref(&self) -> &Volume {
        &self.volume
    }
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
    pub(crate) lazy_times: LazyTimes,
    /// Files with a reservation window.
    pub(crate) windows: WindowList,
    pub(crate) shared_attributes: xattr::SharedBlocks,
    /// Held while the filesystem grows.
    pub(crate) resizing: Mutex<()>,
    /// A block that each batch of a checkpoint writes back durably after all others: it leads to the log, which moves.
    pub(crate) written_back_last: OnceLock<FsBlock>,
}

impl Writer {
    /// What `volume` is written with.
    ///
    /// # Errors
    /// Corruption of the group descriptors; I/O failure.
    pub(crate) fn new(volume: &Volume, transactions: Transactions, options: WriteOptions) -> Result<Self> {
        let allocator = Arc::new(Allocator::new(volume, &options)?);
        volume.set_inode_tables(allocator.inode_tables());
        let orphans = Orphans::new(volume, &options)?;
        Ok(Self {
            transactions,
            options,
            found_clean: false,
            allocator,
            orphans,
            directory_leaves: dir::LeafLocks::new(),
            lazy_times: LazyTimes::default(),
            windows: WindowList::default(),
            shared_attributes: xattr::SharedBlocks::default(),
            resizing: Mutex::new(&order::RESIZE, ()),
            written_back_last: OnceLock::new(),
        })
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("options", &self.options).finish_non_exhaustive()
    }
}
