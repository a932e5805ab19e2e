//! An ext filesystem's blocks and numbers: what every other module reads through.
//!
//! A `Volume` says nothing about whether the journal has been replayed; [`crate::open`] has the types that do.

use std::sync::{Arc, OnceLock};

use undercroft_block::{BlockDevice, Device};
use undercroft_cache::{Buffer, BufferCache};
use undercroft_sync::AppendList;
use undercroft_vfs::Result;

use crate::error::corrupt_block;
use crate::fast_commit::FastCommitView;
use crate::numbers::{FsBlock, Group};
use crate::superblock::Superblock;
use crate::transaction::{Block, LoggedState, Stop, StoppableDevice};

/// Kinds of validation that a buffer passes once while cached; see `Buffer::verify_once`.
///
/// A buffer that is wrongly taken for another kind of structure is validated as that kind too: each has its bit.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Validated {
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
    superblocks: AppendList<Superblock>,
    /// The device below the one that refuses writes once the changes have ended.
    below: Device,
    buffers: BufferCache<LoggedState>,
    fast_commits: FastCommitView,
    /// Where each group's inode table begins; known in a writable filesystem.
    inode_tables: OnceLock<AppendList<FsBlock>>,
}

impl Volume {
    pub(crate) fn new(device: Device, superblock: Superblock, buffer_bytes: usize) -> Self {
        let below = Arc::clone(&device) as Device;
        let buffers = BufferCache::new(device, superblock.geometry().block_bytes(), buffer_bytes);
        let superblocks = [superblock].into_iter().collect();
        Self {
            superblocks,
            below,
            buffers,
            fast_commits: FastCommitView::default(),
            inode_tables: OnceLock::new(),
        }
    }

    /// A volume that takes changes until they end with `stop`.
    pub(crate) fn for_changes<D: BlockDevice + 'static>(
        device: Arc<D>,
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

    /// The filesystem has grown: its superblock from now on, and where the inode tables of new groups begin. The tables
    /// are entered before the superblock that counts the groups. The caller must serialize calls.
    pub(crate) fn grow(&self, superblock: Superblock, tables: impl Iterator<Item = FsBlock>) {
        if let Some(known) = self.inode_tables.get() {
            tables.for_each(|table| known.push(table));
        }
        self.superblocks.push(superblock);
    }

    pub(crate) fn device(&self) -> &Device {
        self.buffers.device()
    }

    /// The device for the record of an abort, which is written although the changes have ended.
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

    /// A metadata block's newest version. Its content is not validated yet.
    pub(crate) fn read_block(&self, block: FsBlock) -> Result<Buffer> {
        self.check_block(block)?;
        Ok(self.buffers.read(block.0)?)
    }

    /// A metadata block, to be changed under a handle. Its content is not validated yet.
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

    /// Where a group's inode table begins, if that is known without the group's descriptor.
    #[inline]
    pub(crate) fn inode_table(&self, group: Group) -> Option<FsBlock> {
        self.inode_tables.get().map(|tables| tables[group.0 as usize])
    }

    /// Where the inode tables of all groups begin, by their validated descriptors.
    pub(crate) fn set_inode_tables(&self, tables: impl Iterator<Item = FsBlock>) {
        let _ = self.inode_tables.set(tables.collect());
    }
}
