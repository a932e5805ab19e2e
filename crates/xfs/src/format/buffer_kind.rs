//! Kinds of buffers of metadata, as the log names them.
//!
//! The description of a logged buffer has the kind in the upper five bits of its flags. Source: Linux, `XFS_BLFT_*`.

/// A kind of buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferKind(u8);

/// Below the kind lie the flags themselves.
const SHIFT: u32 = 11;

impl BufferKind {
    /// The log does not say.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// A block of a B+tree, of a group or of a fork.
    pub(crate) const BTREE: Self = Self(4);
    /// The header of a group's free space.
    pub(crate) const AGF: Self = Self(5);
    /// The free list of a group.
    pub(crate) const AGFL: Self = Self(6);
    /// The header of a group's inodes.
    pub(crate) const AGI: Self = Self(7);
    /// Inodes.
    pub(crate) const INODES: Self = Self(8);
    /// A block of a long symbolic link.
    pub(crate) const SYMLINK: Self = Self(9);
    /// The only data block of a directory.
    pub(crate) const DIR_BLOCK: Self = Self(10);
    /// A data block of a directory.
    pub(crate) const DIR_DATA: Self = Self(11);
    /// A block of a directory's free space index.
    pub(crate) const DIR_FREE: Self = Self(12);
    /// The only leaf of a directory's hash table.
    pub(crate) const DIR_LEAF1: Self = Self(13);
    /// One of several leaves of a directory's hash table.
    pub(crate) const DIR_LEAFN: Self = Self(14);
    /// A node of a hash tree.
    pub(crate) const DA_NODE: Self = Self(15);
    /// A leaf of extended attributes.
    pub(crate) const ATTR_LEAF: Self = Self(16);
    /// A block of a long attribute value.
    pub(crate) const ATTR_REMOTE: Self = Self(17);
    /// The superblock.
    pub(crate) const SUPERBLOCK: Self = Self(18);
    /// A block of the bitmap of the real-time section, which has no header: a recovery takes the bytes as they are, and
    /// puts no checksum into them.
    pub(crate) const BYTES: Self = Self(19);

    /// Whether such a buffer is one sector, which a disk writes as a whole.
    pub(crate) const fn is_one_sector(self) -> bool {
        matches!(self, Self::AGF | Self::AGFL | Self::AGI | Self::SUPERBLOCK)
    }

    /// From the flags of a buffer's description.
    pub(crate) const fn of_flags(flags: u16) -> Self {
        Self((flags >> SHIFT) as u8)
    }

    /// As the flags of a description have it.
    pub(crate) const fn flags(self) -> u16 {
        (self.0 as u16) << SHIFT
    }
}
