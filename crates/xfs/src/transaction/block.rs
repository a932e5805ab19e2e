//! A block under the journal, and what kind of block it is when it is written.

use super::parts::Parts;
use crate::format::block_header::HeaderKind;

/// What kind of block a logged block is: where its checksum and the position of its last change go when it is written,
/// and what the log calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seal {
    /// A block with headers of an allocation group: each of its sectors that holds one is sealed. Superblocks are left
    /// as they are.
    #[default]
    GroupHeaders,
    /// As `GroupHeaders`, and the superblock before them is logged and written back too. A block keeps this seal once it has
    /// it: an earlier version with a changed superblock may not be written back yet.
    HeadersAndSuperblock,
    /// A B+tree block of an allocation group.
    ShortBtree,
    /// A B+tree block of a fork.
    LongBtree,
    /// Inodes: each one that is one is sealed, and those that were changed are logged.
    Inodes(Parts),
    /// A block of a long symbolic link.
    Symlink,
    /// The only data block of a directory, with its hash table.
    DirBlock,
    /// A data block of a directory.
    DirData,
    /// A block of a directory block that lies in several extents: the whole was sealed when it was changed.
    DirPart,
    /// A block of a directory's free space index.
    DirFree,
    /// The only leaf of a directory's hash table.
    DirLeaf1,
    /// One of several leaves of a directory's hash table.
    DirLeafN,
    /// A node of a hash tree.
    DaNode,
    /// A leaf of extended attributes.
    AttrLeaf,
    /// A block of a long attribute value.
    AttrRemote,
}

impl Seal {
    /// The seal of a block that had this one and is changed with `new`.
    pub(crate) const fn then(self, new: Self) -> Self {
        match (self, new) {
            (Self::HeadersAndSuperblock, Self::GroupHeaders) => self,
            (Self::Inodes(before), Self::Inodes(more)) => Self::Inodes(before.and(more)),
            _ => new,
        }
    }

    /// The header that such a block begins with, for kinds that have one header.
    pub(crate) const fn header(self) -> Option<HeaderKind> {
        Some(match self {
            Self::GroupHeaders | Self::HeadersAndSuperblock | Self::Inodes(_) | Self::DirPart => return None,
            Self::ShortBtree => HeaderKind::ShortBtree,
            Self::LongBtree => HeaderKind::LongBtree,
            Self::Symlink | Self::AttrRemote => HeaderKind::Remote,
            Self::DirBlock | Self::DirData | Self::DirFree => HeaderKind::DirBlock,
            Self::DirLeaf1 | Self::DirLeafN | Self::DaNode | Self::AttrLeaf => HeaderKind::DaBlock,
        })
    }
}

impl undercroft_journal::Seal for Seal {
    fn freeze(&mut self, committed: Option<Self>) -> Self {
        match self {
            Self::Inodes(parts) => {
                let committed =
                    if let Some(Self::Inodes(committed)) = committed { Some(committed) } else { None };
                Self::Inodes(parts.freeze(committed))
            }
            _ => *self,
        }
    }
}

/// A block of the cache, with what the journal keeps beside it.
pub(crate) type Block = undercroft_journal::LoggedBlock<Seal>;

/// What is kept beside a block.
pub(crate) type LoggedState = undercroft_journal::LoggedState<Seal>;
