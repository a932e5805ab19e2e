//! A filesystem in use: its volume, and what a writable filesystem has beside it.
//!
//! A [`Handle`](crate::transaction::Handle) carries the [`Writer`]. The types below it are state only; the operations on
//! them, which take a handle, lie above.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use undercroft_cache::Span;
use undercroft_diskfs::Changeable;
use undercroft_diskfs::in_use::{LazyTimes, WindowList};
use undercroft_sync::atomic::AtomicU64;
use undercroft_sync::{Mutex, order};
use undercroft_vfs::{Error, Result};

use crate::alloc::Allocator;
use crate::dir::change::BlockLocks;
use crate::format::AgNumber;
use crate::options::WriteOptions;
use crate::transaction::Block;
use crate::volume::Volume;

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

    /// Keeps an allocation group as it is for a reader; see [`Allocator::hold_still`].
    pub(crate) fn hold_still(&self, group: AgNumber) -> Option<impl Sized + '_> {
        self.writer.get().map(|writer| writer.allocator.hold_still(group))
    }

    /// Lets the filesystem take changes from now on.
    pub(crate) fn set_writer(&self, writer: Writer) {
        let _ = self.writer.set(writer);
    }

    /// Units of the log, of 512 bytes, that a changed block takes there at most: one credit. A structure of several blocks
    /// takes no more than so many credits.
    pub(crate) fn credit_units(&self) -> u32 {
        self.geometry().block_bytes() / 512 + 2
    }

    /// The same for this block or structure.
    pub(crate) fn units_of(&self, block: &Block) -> u32 {
        Span::named(block.number()).blocks() * (self.geometry().block_bytes() / 512) + 2
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
    /// Free blocks and inodes.
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) lazy_times: LazyTimes,
    /// Unlinked inodes that could not be deleted.
    pub(crate) inodes_left: AtomicU64,
    /// Files with a reservation window.
    pub(crate) windows: WindowList,
    /// The locks of blocks of directories.
    pub(crate) directory_blocks: BlockLocks,
    /// Held while the filesystem grows, and while its label changes.
    pub(crate) resizing: Mutex<()>,
}

impl Writer {
    /// What `volume` is written with.
    ///
    /// # Errors
    /// Corruption of the groups' headers; I/O failure.
    pub(crate) fn new(volume: &Volume, transactions: Transactions, options: WriteOptions) -> Result<Self> {
        Ok(Self::with(Arc::new(Allocator::new(volume)?), transactions, options))
    }

    /// The same with an allocator that is there.
    pub(crate) fn with(allocator: Arc<Allocator>, transactions: Transactions, options: WriteOptions) -> Self {
        Self {
            transactions,
            options,
            allocator,
            inodes_left: AtomicU64::new(0),
            lazy_times: LazyTimes::default(),
            windows: WindowList::default(),
            directory_blocks: BlockLocks::new(),
            resizing: Mutex::new(&order::RESIZE, ()),
        }
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("options", &self.options).finish_non_exhaustive()
    }
}
