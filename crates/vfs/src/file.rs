//! An open regular file.
//!
//! Calls go to the file's inode and to the data device; there is no table of open files and no lock. The extent
//! of the last read is not remembered: asking ext4 again takes a tenth of the time of a read from the page cache.

use std::sync::Arc;

use undercroft_block::Device;

use crate::{Node, Result, data};

/// An open regular file. Threads share it at will.
#[derive(Debug)]
pub struct File {
    node: Arc<Node>,
    device: Option<Device>,
}

impl File {
    /// Opens a node that is known to be a regular file.
    pub(crate) fn new(node: Arc<Node>, device: Option<Device>) -> Self {
        Self { node, device }
    }

    /// The file's inode.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Reads from `offset` and tells how many bytes were read: as many as `buf` holds, or fewer at the end of
    /// the file, and none past it.
    ///
    /// # Errors
    /// Corruption or I/O failure; then the content of `buf` is undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        data::read_at(self.node.inode(), self.device.as_ref(), offset, buf)
    }

    /// The first byte at or after `offset` that is not in a hole. What is allocated and unwritten counts as a
    /// hole.
    ///
    /// # Errors
    /// [`NoSuchOffset`](crate::Error::NoSuchOffset) when only a hole follows, or at and past the end.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        data::seek_data(self.node.inode(), offset)
    }

    /// The first byte at or after `offset` that is in a hole. The end of the file counts as one.
    ///
    /// # Errors
    /// [`NoSuchOffset`](crate::Error::NoSuchOffset) at and past the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        data::seek_hole(self.node.inode(), offset)
    }
}
