//! What a new inode may have from the directory for whose sake it is made.

use super::Inode;
use crate::format::dinode::{DiFlags, DiFlags2};

/// The fields of a directory of which new inodes may get some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inheritance {
    pub(crate) flags: DiFlags,
    pub(crate) flags2: DiFlags2,
    pub(crate) project: u32,
    pub(crate) extent_size: u32,
    pub(crate) cow_extent_size: u32,
}

impl Inode {
    /// What the directory passes on.
    #[cfg(test)]
    pub(crate) fn inheritance(&self) -> Inheritance {
        let core = &self.core;
        Inheritance {
            flags: core.flags,
            flags2: core.flags2,
            project: core.project,
            extent_size: core.extent_size,
            cow_extent_size: core.cow_extent_size,
        }
    }
}
