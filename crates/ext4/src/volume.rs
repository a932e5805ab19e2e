//! An ext filesystem's blocks and numbers: what every other module reads through.
//!
//! A `Volume` says nothing about whether the journal has been replayed; [`crate::open`] has the types that do.

use std::sync::{Arc, OnceLock};

use undercroft_block::Device;
use undercroft_cache::{Buffer, BufferCache};
use undercroft_vfs::{Error, Result};

use crate::append::Append;
use crate::error::corrupt_block;
use crate::fast_commit::FastCommitView;
use crate::numbers::FsBlock;
use crate::superblock::Superblock;
use crate::transaction::{Block, Handle, LoggedState, Stop, StoppableDevice};
use crate::writer::Writer;

/// Kinds of judgement that a buffer passes once while cached; see `Buffer::verify_once`.
///
/// A buffer that is wrongly taken for another kind of structure is judged as that kind too: each has its bit.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Judged {
    ExtentNode = 0,
    DirectoryBlock = 1,
    IndexNode = 2,
    XattrBlock = 3,
    OrphanBlock = 4,
    BlockBitmap = 5,
    InodeBitmap = 6,
}

/// Superblock, device and metadata cache of one filesystem.
#[derive(Debug)]
pub(crate) struct Volume {
    /// The superblock as it was when the volume was opened, and after each time it has grown.
    superblocks: Append<Superblock>,
    /// Below what takes no changes after the end of them.
    below: Device,
    buffers: BufferCache<LoggedState>,
    fast_commits: FastCommitView,
    /// What a filesystem that takes changes has more than one that is only read.
    writer: OnceLock<Writer>,
}

impl Volume {
    pub(crate) fn new(device: Device, superblock: Superblock, buffer_bytes: usize) -> Self {
        let below = Arc::clone(&device);
        let buffers = BufferCache::new(device, superblock.geometry().block_bytes(), buffer_bytes);
        let superblocks = [superblock].into_iter().collect();
        Self { superblocks, below, buffers, fast_commits: FastCommitView::default(), writer: OnceLock::new() }
    }

    /// A volume that takes changes until they end with `stop`.
    pub(crate) fn for_changes(
        device: Device,
        superblock: Superblock,
        buffer_bytes: usize,
        stop: Arc<Stop>,
    ) -> Self {
        let below = Arc::clone(&device);
        Self { below, ..Self::new(Arc::new(StoppableDevice::new(device, stop)), superblock, buffer_bytes) }
    }

    /// The same volume with what fast commits have changed laid over it.
    pub(crate) fn with_fast_commits(self, fast_commits: FastCommitView) -> Self {
        Self { fast_commits, ..self }
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        self.superblocks.last()
    }

    /// The filesystem has grown, and this is its superblock from now on. One thread at a time says so.
    pub(crate) fn set_superblock(&self, superblock: Superblock) {
        self.superblocks.push(superblock);
    }

    pub(crate) fn device(&self) -> &Device {
        self.buffers.device()
    }

    /// Makes durable what was written before. A failure ends the changes: nothing tells what was lost.
    ///
    /// # Errors
    /// I/O failure.
    pub(crate) fn flush(&self) -> Result<()> {
        let flushed = self.device().flush().map_err(Error::from);
        if let (Err(error), Some(writer)) = (&flushed, self.writer.get()) {
            writer.transactions.abort_because(error);
        }
        flushed
    }

    /// The device for what is written although the changes have ended: why they have.
    pub(crate) fn device_below(&self) -> &Device {
        &self.below
    }

    pub(crate) fn buffers(&self) -> &BufferCache<LoggedState> {
        &self.buffers
    }

    /// What fast commits have changed; empty on nearly every filesystem.
    pub(crate) fn fast_commits(&self) -> &FastCommitView {
        &self.fast_commits
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.superblock().geometry().block_bytes()
    }

    /// A metadata block's newest version. Its content is not judged yet.
    pub(crate) fn read_block(&self, block: FsBlock) -> Result<Buffer> {
        self.check_block(block)?;
        Ok(self.buffers.read(block.0)?)
    }

    /// A metadata block, to be changed under a handle. Its content is not judged yet.
    pub(crate) fn block(&self, block: FsBlock) -> Result<Block> {
        self.check_block(block)?;
        Ok(self.buffers.block(block.0)?)
    }

    /// A block that is about to become metadata; it is not read.
    pub(crate) fn make_block(&self, block: FsBlock) -> Result<Block> {
        self.check_block(block)?;
        Ok(self.buffers.make(block.0))
    }

    fn check_block(&self, block: FsBlock) -> Result<()> {
        if block.0 >= self.superblock().geometry().blocks() {
            return Err(corrupt_block("block number", block, "lies past the filesystem's end"));
        }
        Ok(())
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

    /// Joins the running transaction; see [`Transactions::start`](undercroft_journal::Transactions::start).
    ///
    /// # Errors
    /// [`ReadOnly`](Error::ReadOnly); why the filesystem takes no changes any more.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        Ok(Handle::new(self.writer()?.transactions.start(self, credits)?))
    }

    /// Joins the running transaction if it has room; see
    /// [`Transactions::start_if_room`](undercroft_journal::Transactions::start_if_room).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub(crate) fn start_if_room(&self, credits: u32) -> Result<Option<Handle<'_>>> {
        Ok(self.writer()?.transactions.start_if_room(self, credits)?.map(Handle::new))
    }
}
