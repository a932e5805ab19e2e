//! The sizes and features of a volume that the blocks of directories and attributes depend on.

use super::{hash_name, hash_name_folded};
use crate::format::Superblock;

/// Names, the hash index and the free index of a directory begin at multiples of so many bytes of its fork.
const SPACE_BYTES: u64 = 32 << 30;

/// How directories and attributes are laid out in one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Version 5: blocks carry a checksum, the volume's UUID, their owner and their address, so headers are longer.
    pub(crate) self_describing: bool,
    /// Whether directory entries have the kind of file.
    pub(crate) has_kinds: bool,
    /// Whether directories do not distinguish capital letters ("ascii-ci").
    pub(crate) folds_case: bool,
    /// Size of a filesystem block, which is that of an attribute block.
    pub(crate) block_bytes: usize,
    /// Size of a directory block: one or more filesystem blocks, at most 64 KiB.
    pub(crate) dir_block_bytes: usize,
}

impl Layout {
    /// The layout of a volume.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        let (features, geometry) = (superblock.features(), superblock.geometry());
        Self {
            self_describing: features.has_crc(),
            has_kinds: features.has_ftype(),
            folds_case: features.has_ascii_ci(),
            block_bytes: geometry.block_bytes() as usize,
            dir_block_bytes: geometry.dir_block_bytes() as usize,
        }
    }

    /// Filesystem blocks in a directory block. Blocks of the fork are counted in filesystem blocks, and so are those that the
    /// hash tree leads to; blocks of names are numbered one by one.
    pub(crate) const fn dir_block_count(&self) -> u32 {
        (self.dir_block_bytes / self.block_bytes) as u32
    }

    /// The block of a directory's fork at which its hash index begins: the root of the tree.
    pub(crate) const fn index_start(&self) -> u32 {
        (SPACE_BYTES / self.block_bytes as u64) as u32
    }

    /// The block of the fork at which the free index begins.
    pub(crate) const fn free_start(&self) -> u32 {
        2 * self.index_start()
    }

    /// The block of the fork at which the block of names of this number begins.
    pub(crate) const fn names_at(&self, number: u32) -> u32 {
        number.saturating_mul(self.dir_block_count())
    }

    /// More blocks of names than a directory can have.
    pub(crate) const fn names_end(&self) -> u32 {
        self.index_start() / self.dir_block_count()
    }

    /// Whether a block of the hash tree other than its root may be there.
    pub(crate) const fn is_below_root(&self, at: u32) -> bool {
        at > self.index_start() && at < self.free_start() && at.is_multiple_of(self.dir_block_count())
    }

    /// The hash of a name of a directory.
    pub(crate) fn hash(&self, name: &[u8]) -> u32 {
        if self.folds_case { hash_name_folded(name) } else { hash_name(name) }
    }
}
