//! Checksums of blocks, made when a block is written and not each time it changes.

use super::block::Seal;
use crate::dir;
use crate::map;
use crate::numbers::FsBlock;
use crate::orphan;
use crate::superblock;
use crate::volume::Volume;
use crate::xattr;

impl Seal {
    /// Puts the checksum into `bytes`, which are going to be written to `home`.
    pub(super) fn apply(self, volume: &Volume, home: FsBlock, bytes: &mut [u8]) {
        if !volume.superblock().has_metadata_checksums() {
            return;
        }
        match self {
            Self::Plain => {}
            Self::Superblock => superblock::seal(volume.block_bytes(), bytes),
            Self::DirectoryLeaf(seed) => dir::seal_leaf(seed, bytes),
            Self::DirectoryIndex(seed) => dir::seal_index(seed, bytes),
            Self::ExtentNode(seed) => map::seal_extent_node(seed, bytes),
            Self::Xattrs => xattr::seal_block(volume, home, bytes),
            Self::Orphans(seed) => orphan::seal_block(seed, home, bytes),
        }
    }
}
