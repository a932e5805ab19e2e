//! Kinds of numbers that must not be mixed up.
//!
//! A number from the disk is not yet known to lie within the filesystem; [`Geometry`](super::Geometry) converts
//! between the kinds and checks on the way.

use std::fmt;

/// An allocation group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AgNumber(pub(crate) u32);

/// A block within an allocation group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AgBlock(pub(crate) u32);

/// An inode number within an allocation group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AgIno(pub(crate) u32);

/// A filesystem block as the disk names it: the group's number above `agblklog` bits of the block within the group. It
/// is no linear count, unless groups have a power of two of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FsBlock(pub(crate) u64);

/// A disk address: 512-byte sectors from the start of the device, whatever size its sectors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Daddr(pub(crate) u64);

/// A block of a file's fork, counted from its start in units of the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileBlock(pub(crate) u64);

impl AgBlock {}

impl AgIno {
    /// No inode: the end of a chain.
    pub(crate) const NULL: Self = Self(u32::MAX);
}

impl FsBlock {
    /// No block: the end of a chain.
    pub(crate) const NULL: Self = Self(u64::MAX);
}

impl Daddr {
    /// The byte at which it begins; saturates for a number that lies past every device.
    pub(crate) const fn byte(self) -> u64 {
        self.0.saturating_mul(512)
    }
}

macro_rules! shown_as_number {
    ($($kind:ty),*) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

shown_as_number!(AgNumber, AgBlock, AgIno, FsBlock, Daddr, FileBlock);
