//! A block under the journal, and how its checksum is made.

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

/// A block of the cache, with what the journal keeps beside it.
pub(crate) type Block = undercroft_journal::LoggedBlock<Seal>;

/// What is kept beside a block.
pub(crate) type LoggedState = undercroft_journal::LoggedState<Seal>;
