//! Free blocks: reserved, held, taken and freed.

use super::*;

/// The allocation groups of a filesystem that takes changes.
#[derive(Debug)]
pub(crate) struct Allocator {}

/// Free blocks that lie together, held in memory for data that is about to be written to them; free on the disk until
/// they are [taken](Allocator::take_held). Dropping it lets go of what is left.
#[derive(Debug)]
pub(crate) struct Held {}

impl Held {
    /// The first block.
    pub(crate) fn first(&self) -> FsBlock {
        todo!("space")
    }

    /// How many are left.
    pub(crate) fn len(&self) -> u64 {
        todo!("space")
    }

    /// Splits off the blocks from number `at` on.
    pub(crate) fn split_off(&mut self, at: u64) -> Self {
        let _ = at;
        todo!("space")
    }
}

impl Allocator {
    /// The groups of `volume`, as their headers have them.
    ///
    /// # Errors
    /// Corruption of the groups' headers; I/O failure.
    pub(crate) fn new(volume: &Volume, options: &WriteOptions) -> Result<Self> {
        let _ = (volume, options);
        todo!("space")
    }

    /// Blocks that can be reserved.
    pub(crate) fn free_blocks(&self) -> u64 {
        todo!("space")
    }

    /// Reserves free blocks, wherever they lie: a handle that has them reserved finds them. `false` if there are too few.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        let _ = blocks;
        todo!("space")
    }

    /// Lets go of reserved blocks.
    pub(crate) fn unreserve(&self, blocks: u64) {
        let _ = blocks;
        todo!("space")
    }

    /// Holds up to `most` blocks that lie together, as near behind `goal` as there are any. Reserves them. No handle is
    /// needed.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption; I/O failure.
    pub(crate) fn hold(self: &Arc<Self>, volume: &Volume, goal: FsBlock, most: u64) -> Result<Held> {
        let _ = (volume, goal, most);
        todo!("space")
    }

    /// Takes the first `count` held blocks for good. They belong to nothing yet: the caller enters them into a map.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn take_held(&self, handle: &Handle<'_>, held: &mut Held, count: u64) -> Result<FsBlock> {
        let _ = (handle, held, count);
        todo!("space")
    }

    /// Takes up to `most` free blocks that lie together, near `goal`, out of the space that the handle has reserved.
    /// Returns the first and how many. At least one, while the handle has one reserved.
    ///
    /// # Errors
    /// [`NoSpace`](undercroft_vfs::Error::NoSpace) if the handle has none reserved; corruption; I/O failure.
    pub(crate) fn take(&self, handle: &Handle<'_>, goal: FsBlock, most: u64) -> Result<(FsBlock, u64)> {
        let _ = (handle, goal, most);
        todo!("space")
    }

    /// Frees blocks that belong to nothing any more. They are not given out again before the transaction is durable.
    ///
    /// # Errors
    /// Corruption (blocks that are free already); I/O failure.
    pub(crate) fn free(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        let _ = (handle, first, count);
        todo!("space")
    }
}
