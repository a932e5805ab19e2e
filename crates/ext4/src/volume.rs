//! An ext filesystem's blocks and numbers: what every other module reads through.
//!
//! A `Volume` says nothing about whether the journal has been replayed; [`crate::open`] has the types that do.

use undercroft_block::Device;
use undercroft_cache::{Buffer, BufferCache};
use undercroft_vfs::Result;

use crate::error::corrupt_block;
use crate::journal::FastCommitView;
use crate::numbers::FsBlock;
use crate::superblock::Superblock;

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
}

/// Superblock, device and metadata cache of one filesystem.
#[derive(Debug)]
pub(crate) struct Volume {
    superblock: Superblock,
    buffers: BufferCache,
    fast_commits: FastCommitView,
}

impl Volume {
    pub(crate) fn new(device: Device, superblock: Superblock, buffer_bytes: usize) -> Self {
        let buffers = BufferCache::new(device, superblock.geometry().block_bytes(), buffer_bytes);
        Self { superblock, buffers, fast_commits: FastCommitView::default() }
    }

    /// The same volume with what fast commits have changed laid over it.
    pub(crate) fn with_fast_commits(self, fast_commits: FastCommitView) -> Self {
        Self { fast_commits, ..self }
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(crate) fn device(&self) -> &Device {
        self.buffers.device()
    }

    pub(crate) fn buffers(&self) -> &BufferCache {
        &self.buffers
    }

    /// What fast commits have changed; empty on nearly every filesystem.
    pub(crate) fn fast_commits(&self) -> &FastCommitView {
        &self.fast_commits
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.superblock.geometry().block_bytes()
    }

    /// A metadata block. Its content is not judged yet.
    pub(crate) fn read_block(&self, block: FsBlock) -> Result<Buffer> {
        if block.0 >= self.superblock.geometry().blocks() {
            return Err(corrupt_block("block number", block, "lies past the filesystem's end"));
        }
        Ok(self.buffers.read(block.0)?)
    }
}
