//! Free blocks: reserved, held, taken and freed.

use undercroft_sync::atomic::AtomicU32;

use super::group::{ChangingGroup, Group};
use super::*;
use crate::format::{AgBlock, AgNumber};

/// The allocation groups of a filesystem that takes changes.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(super) groups: Box<[Group]>,
    /// Directories are spread over the groups: the one that the next directory is tried in.
    pub(super) directory_rotor: AtomicU32,
}

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
        let _ = options;
        let groups = volume.geometry().ags().map(|ag| Group::new(volume, ag)).collect::<Result<_>>()?;
        Ok(Self { groups, directory_rotor: AtomicU32::new(0) })
    }

    /// One without groups, for tests of what changes blocks and allocates none.
    #[cfg(test)]
    pub(crate) fn without_groups() -> Self {
        Self { groups: Box::default(), directory_rotor: AtomicU32::new(0) }
    }

    /// A group.
    ///
    /// # Errors
    /// Corruption: there is no such group.
    pub(super) fn group(&self, number: AgNumber) -> Result<&Group> {
        self.groups
            .get(number.0 as usize)
            .ok_or_else(|| crate::error::corrupt("allocation group", format!("there is no group {number}")))
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

    /// Frees blocks that lie in one group and belong to nothing any more, and that may have been metadata. They are not
    /// given out again before the transaction is durable.
    ///
    /// # Errors
    /// Corruption (blocks that are free already); I/O failure.
    pub(crate) fn free(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        let _ = (handle, first, count);
        todo!("space")
    }

    /// The same for blocks that were a file's content and nothing else. On a full group its own trees may grow into them
    /// before the transaction is durable.
    ///
    /// # Errors
    /// As for [`free`](Self::free).
    pub(crate) fn free_data(&self, handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
        let _ = (handle, first, count);
        todo!("space")
    }
}

impl ChangingGroup<'_> {
    /// Takes `count` blocks that lie together, the first at a multiple of `align` counted from the group's start and at or
    /// after `from` and before `to`, as near `goal` as there are any, out of the space that the handle has reserved. `None`
    /// if there are no such blocks.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(super) fn take_aligned(
        &mut self,
        goal: AgBlock,
        count: u32,
        align: u32,
        within: std::ops::Range<u32>,
    ) -> Result<Option<AgBlock>> {
        let _ = (goal, count, align, within);
        todo!("space")
    }

    /// Frees blocks of the group; `was_data` as for [`Allocator::free_data`].
    ///
    /// # Errors
    /// Corruption (blocks that are free already); I/O failure.
    pub(super) fn free(&mut self, first: AgBlock, count: u32, was_data: bool) -> Result<()> {
        let _ = (first, count, was_data);
        todo!("space")
    }

    /// Takes a block for a tree of the group that is not on the free list, and notes its owner.
    pub(super) fn take_for_tree(&mut self, goal: AgBlock, owner: Owner) -> Result<AgBlock> {
        let _ = (goal, owner);
        todo!("space")
    }

    /// Frees a block of such a tree, which has been forgotten.
    pub(super) fn free_of_tree(&mut self, block: AgBlock, owner: Owner) -> Result<()> {
        let _ = (block, owner);
        todo!("space")
    }
}
