//! The sizes and features of a volume that the blocks of directories and attributes depend on.

use crate::format::Superblock;

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

    /// Filesystem blocks in a directory block.
    pub(crate) fn dir_block_count(&self) -> u32 {
        (self.dir_block_bytes / self.block_bytes) as u32
    }
}
