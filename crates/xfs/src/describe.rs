//! XFS's own description of an inode, beside what all filesystems have: where it lies, its flags by name, and its
//! forks.

use undercroft_vfs::{Error, Ino, Result};

use crate::error::corrupt_inode;
use crate::format::AgIno;
use crate::format::dinode::{DiFlags, DiFlags2};
use crate::format::geometry::CHUNK_INODES;
use crate::fs::Xfs;
use crate::inode::{Fork, Inode};
use crate::volume::Volume;
use crate::{ag::Agi, map};

/// An inode, as XFS has it.
#[derive(Clone, Debug)]
pub struct InodeDescription {
    /// Its allocation group.
    pub group: u32,
    /// Its number within the group.
    pub number_in_group: u32,
    /// The block in which it lies: the number that xfs_db calls fsblock.
    pub block: u64,
    /// The first inode of its chunk, if the tree of chunks has it.
    pub chunk_first: Option<Ino>,
    /// Flags in the words of xfs_io's `lsattr -a`, and those of the second set.
    pub flags: Vec<&'static str>,
    /// The extent size hint, in blocks; 0 without one.
    pub extent_size_blocks: u32,
    /// The CoW extent size hint, in blocks; 0 without one.
    pub cow_extent_size_blocks: u32,
    /// Its content.
    pub data: ForkDescription,
    /// Its extended attributes, if it ever had one.
    pub attributes: Option<ForkDescription>,
}

/// A fork.
#[derive(Clone, Debug)]
pub struct ForkDescription {
    /// `dev`, `local`, `extents` or `btree`, as xfs_db has them.
    pub form: &'static str,
    /// Extents, by the inode's count.
    pub extents: u64,
    /// The first of them.
    pub first: Vec<ExtentDescription>,
}

/// Blocks that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentDescription {
    /// The block of the file.
    pub file_block: u64,
    /// The block of the filesystem: the number that xfs_db calls fsblock.
    pub block: u64,
    /// Its allocation group.
    pub group: u32,
    /// Its number within the group.
    pub block_in_group: u32,
    /// How many there are.
    pub blocks: u64,
    /// Allocated, and never written.
    pub unwritten: bool,
}

impl Xfs {
    /// Describes an inode in use, with at most so many extents of each fork.
    ///
    /// # Errors
    /// [`Error::Stale`] for one that is free or cannot exist; corruption; I/O failure.
    pub fn describe(&self, ino: Ino, extents_max: usize) -> Result<InodeDescription> {
        let volume = self.volume();
        let inode = Inode::read(volume, ino)?;
        let geometry = volume.geometry();
        let place = geometry.split_ino(ino).zip(geometry.inode_place(ino));
        let Some(((ag, within), (block, _))) = place else { return Err(Error::Stale) };
        let chunk = {
            let _still = volume.hold_still(ag);
            Agi::read(volume, ag).and_then(|agi| agi.chunks(volume)?.cursor().lookup_le(&within))
        };
        // An inode is found without the tree, so damage there does not prevent the rest of the description.
        let chunk = match chunk {
            Err(Error::Corrupt(_)) => None,
            chunk => chunk?,
        };
        let chunk_first = chunk
            .filter(|chunk| within.0 - chunk.start.0 < CHUNK_INODES)
            .and_then(|chunk| geometry.join_ino(ag, AgIno(chunk.start.0)));
        let core = &inode.core;
        let fork = |fork: &Fork, extents| describe_fork(volume, ino, fork, extents, extents_max);
        Ok(InodeDescription {
            group: ag.0,
            number_in_group: within.0,
            block: block.0,
            chunk_first,
            flags: flag_names(core.flags, core.flags2),
            extent_size_blocks: core.extent_size,
            cow_extent_size_blocks: core.cow_extent_size,
            data: fork(&inode.data, core.data_extents)?,
            attributes: inode.attr.as_ref().map(|attr| fork(attr, core.attr_extents.into())).transpose()?,
        })
    }
}

fn describe_fork(
    volume: &Volume,
    ino: Ino,
    fork: &Fork,
    extents: u64,
    extents_max: usize,
) -> Result<ForkDescription> {
    let form = match fork {
        Fork::Device(_) => "dev",
        Fork::Local(_) => "local",
        Fork::Extents(_) => "extents",
        Fork::Btree(_) => "btree",
    };
    let mut first = Vec::new();
    let mut at = crate::format::FileBlock(0);
    while matches!(fork, Fork::Extents(_) | Fork::Btree(_)) && first.len() < extents_max {
        let extent = match map::lookup(volume, ino, fork, at)? {
            map::Run::Extent(extent) => extent,
            map::Run::Hole { end, .. } if end < crate::format::extent::FILE_BLOCK_END => {
                at.0 = end;
                continue;
            }
            map::Run::Hole { .. } => break,
        };
        let Some((ag, within)) = volume.geometry().split(extent.block) else {
            return Err(corrupt_inode("fork", ino, Some(extent.block), "lies outside the filesystem"));
        };
        first.push(ExtentDescription {
            file_block: extent.file.0,
            block: extent.block.0,
            group: ag.0,
            block_in_group: within.0,
            blocks: extent.count.into(),
            unwritten: extent.unwritten,
        });
        at.0 = extent.end();
    }
    Ok(ForkDescription { form, extents, first })
}

fn flag_names(flags: DiFlags, flags2: DiFlags2) -> Vec<&'static str> {
    let first = [
        (DiFlags::REALTIME, "realtime"),
        (DiFlags::PREALLOC, "prealloc"),
        (DiFlags::IMMUTABLE, "immutable"),
        (DiFlags::APPEND, "append-only"),
        (DiFlags::SYNC, "sync"),
        (DiFlags::NOATIME, "no-atime"),
        (DiFlags::NODUMP, "no-dump"),
        (DiFlags::RT_INHERIT, "rt-inherit"),
        (DiFlags::PROJECT_INHERIT, "proj-inherit"),
        (DiFlags::NO_SYMLINKS, "nosymlinks"),
        (DiFlags::EXTENT_SIZE, "extsize"),
        (DiFlags::EXTENT_SIZE_INHERIT, "extsz-inherit"),
        (DiFlags::NO_DEFRAG, "no-defrag"),
        (DiFlags::FILESTREAM, "filestream"),
    ];
    let second = [
        (DiFlags2::DAX, "dax"),
        (DiFlags2::REFLINK, "reflink"),
        (DiFlags2::COW_EXTENT_SIZE, "cowextsize"),
        (DiFlags2::BIGTIME, "bigtime"),
        (DiFlags2::NREXT64, "nrext64"),
        (DiFlags2::METADATA, "metadata"),
    ];
    let first = first.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name);
    let second = second.into_iter().filter(|(flag, _)| flags2.contains(*flag)).map(|(_, name)| name);
    first.chain(second).collect()
}
