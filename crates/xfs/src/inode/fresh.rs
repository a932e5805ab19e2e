//! New inodes, as Linux makes them.
//!
//! Which flags a directory hands on, and to what, is what `xfs_io -c lsattr` shows of files that Linux made, with its
//! `fs.xfs.inherit_*` settings as they are by default: no-symlinks is not handed on.
//!
//! A regular file begins with an empty list of extents, a directory and a symbolic link with empty content in the
//! inode, which the caller replaces before it stores the inode, and every other kind with a device's number.

use undercroft_vfs::{DeviceNumber, FileType, Ino, NewInode, NewKind, clock};

use super::{Fork, Inheritance, Inode};
use crate::format::dinode::{CORE_V3_BYTES, DiFlags, DiFlags2, Dinode, ForkFormat};
use crate::format::extent::EXTENT_MAX_BLOCKS;
use crate::format::{AgIno, Incompat, time};
use crate::volume::Volume;

/// What a directory hands on to files and directories alike.
const INHERITED: DiFlags = DiFlags::NOATIME
    .union(DiFlags::NODUMP)
    .union(DiFlags::SYNC)
    .union(DiFlags::NO_DEFRAG)
    .union(DiFlags::FILESTREAM);

/// What it hands on to directories only.
const INHERITED_BY_DIRECTORIES: DiFlags =
    DiFlags::RT_INHERIT.union(DiFlags::EXTENT_SIZE_INHERIT).union(DiFlags::PROJECT_INHERIT);

impl Inheritance {
    /// Nothing: for an inode that no directory is there for.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self {
            flags: DiFlags::empty(),
            flags2: DiFlags2::empty(),
            extent_size: 0,
            cow_extent_size: 0,
            project: 0,
        }
    }
}

impl Inode {
    /// A new inode in memory, made at this moment: no content, no attributes. `parent` is of the directory for whose
    /// sake it is made.
    pub(crate) fn fresh(
        volume: &Volume,
        parent: &Inheritance,
        ino: Ino,
        generation: u32,
        new: &NewInode<'_>,
        links: u32,
    ) -> Self {
        let kind = new.kind.file_type();
        let flags2 = new_flags2(volume);
        let now = time::nearest(clock::Coarse::now().timestamp(), flags2.contains(DiFlags2::BIGTIME));
        let device = match new.kind {
            NewKind::CharDevice(device) | NewKind::BlockDevice(device) => device,
            _ => DeviceNumber::default(),
        };
        let (data_format, data) = match kind {
            FileType::Regular => (ForkFormat::Extents, Fork::Extents(Vec::new().into())),
            FileType::Directory | FileType::Symlink => (ForkFormat::Local, Fork::Local(Vec::new().into())),
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                (ForkFormat::Device, Fork::Device(device))
            }
        };
        let inode_bytes = volume.geometry().inode_bytes() as usize;
        let inherits_project = parent.flags.contains(DiFlags::PROJECT_INHERIT);
        let mut core = Dinode {
            version: 3,
            kind,
            permissions: new.permissions,
            uid: new.uid,
            gid: new.gid,
            links,
            project: if inherits_project { parent.project } else { 0 },
            size_bytes: 0,
            blocks: 0,
            extent_size: 0,
            cow_extent_size: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: Some(now),
            generation,
            change_count: 1,
            flags: DiFlags::empty(),
            flags2,
            next_unlinked: AgIno::NULL,
            data_format,
            data_extents: 0,
            data_fork: CORE_V3_BYTES..inode_bytes,
            attr_format: ForkFormat::Extents,
            attr_extents: 0,
            attr_fork: inode_bytes..inode_bytes,
        };
        inherit_flags(volume, parent, &mut core);
        Self { ino, core, data, attr: None }
    }
}

/// The flags that an inode has from the beginning: in which form it keeps times and counts.
pub(crate) fn new_flags2(volume: &Volume) -> DiFlags2 {
    let incompat = volume.superblock().features().incompat();
    let mut flags2 = DiFlags2::empty();
    flags2.set(DiFlags2::BIGTIME, incompat.contains(Incompat::BIGTIME));
    flags2.set(DiFlags2::NREXT64, incompat.contains(Incompat::NREXT64));
    flags2
}

/// Whether Linux takes this for an extent size hint: an extent at most, and half of a group.
pub(crate) fn is_extent_size(volume: &Volume, blocks: u32) -> bool {
    (1..=EXTENT_MAX_BLOCKS).contains(&blocks) && blocks <= volume.geometry().ag_blocks() / 2
}

/// Gives a file or a directory what its directory hands on.
fn inherit_flags(volume: &Volume, parent: &Inheritance, core: &mut Dinode) {
    let is_directory = core.kind == FileType::Directory;
    if !is_directory && core.kind != FileType::Regular {
        return;
    }
    core.flags |= parent.flags & INHERITED;
    if is_directory {
        core.flags |= parent.flags & INHERITED_BY_DIRECTORIES;
    }
    let can_be = |blocks: u32| is_extent_size(volume, blocks);
    if parent.flags.contains(DiFlags::EXTENT_SIZE_INHERIT) && can_be(parent.extent_size) {
        core.flags |= if is_directory { DiFlags::EXTENT_SIZE_INHERIT } else { DiFlags::EXTENT_SIZE };
        core.extent_size = parent.extent_size;
    } else {
        core.flags -= DiFlags::EXTENT_SIZE_INHERIT;
    }
    core.flags2 |= parent.flags2 & DiFlags2::DAX;
    let has_reflink = volume.superblock().features().has_reflink();
    if parent.flags2.contains(DiFlags2::COW_EXTENT_SIZE) && has_reflink && can_be(parent.cow_extent_size) {
        core.flags2 |= DiFlags2::COW_EXTENT_SIZE;
        core.cow_extent_size = parent.cow_extent_size;
    }
}
