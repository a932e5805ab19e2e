//! Checksums of blocks, made when a block is written and not each time it changes.

use crate::dir;
use crate::map;
use crate::numbers::FsBlock;
use crate::orphan;
use crate::superblock;
use crate::volume::Volume;
use crate::xattr;

/// How the checksum of a block is made. Structures within a block that have their own (inodes, group descriptors)
/// are sealed by the code that changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seal {
    /// The block has none of its own.
    #[default]
    Plain,
    /// The primary superblock's, within its block.
    Superblock,
    /// A block of directory entries; the seed of the directory's inode.
    DirectoryLeaf(u32),
    /// A block of a directory's index; the seed of the directory's inode.
    DirectoryIndex(u32),
    /// A node of an extent tree; the seed of the file's inode.
    ExtentNode(u32),
    /// A block of extended attributes.
    Xattrs,
    /// A block of the orphan file; the seed of that file's inode.
    Orphans(u32),
}

impl undercroft_journal::Seal for Seal {}

impl Seal {
    /// Puts the checksum into `bytes`, which are going to be written to `home`.
    pub(crate) fn apply(self, volume: &Volume, home: FsBlock, bytes: &mut [u8]) {
        if !volume.superblock().has_metadata_checksums() {
            return;
        }
        match self {
            Self::Plain => {}
            Self::Superblock => superblock::seal(volume, bytes),
            Self::DirectoryLeaf(seed) => dir::seal_leaf(seed, bytes),
            Self::DirectoryIndex(seed) => dir::seal_index(seed, bytes),
            Self::ExtentNode(seed) => map::seal_extent_node(seed, bytes),
            Self::Xattrs => xattr::seal_block(volume, home, bytes),
            Self::Orphans(seed) => orphan::seal_block(seed, home, bytes),
        }
    }
}
