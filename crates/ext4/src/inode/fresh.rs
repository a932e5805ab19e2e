//! New inodes, as Linux makes them.
//!
//! Source: kernel documentation, "Index Nodes"; which flags a directory hands on, and to what, is what `lsattr` shows
//! of files that Linux made.

use std::hash::{BuildHasher, RandomState};

use undercroft_vfs::{DeviceNumber, FileType, NewInode, NewKind, clock};

use super::{BASE_BYTES, Inode, InodeFlags, RawInodeExtra, time};
use crate::features::{Incompat, RoCompat};
use crate::map;
use crate::numbers::FsBlock;
use crate::volume::Volume;

/// What a directory hands on.
const INHERITED: InodeFlags = InodeFlags::SECURE_DELETION
    .union(InodeFlags::UNDELETE)
    .union(InodeFlags::COMPRESSED)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOT_COMPRESSED)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);

/// What only directories have.
const OF_DIRECTORIES: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::PROJECT_INHERIT);

/// All that what is neither file nor directory can have.
const OF_OTHERS: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// The flags among `flags` that an inode of this kind can have.
pub(crate) fn possible_flags(kind: FileType, flags: InodeFlags) -> InodeFlags {
    match kind {
        FileType::Directory => flags,
        FileType::Regular => flags.difference(OF_DIRECTORIES),
        _ => flags & OF_OTHERS,
    }
}

/// What a new inode may have from the directory for whose sake it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inheritance {
    pub(crate) flags: InodeFlags,
    pub(crate) project: u32,
}

impl Inode {
    /// What the directory hands on.
    pub(crate) fn inheritance(&self) -> Inheritance {
        Inheritance { flags: self.flags, project: self.project }
    }

    /// A new inode in memory, made at this moment: no content, no attributes. `parent` is of the directory for whose
    /// sake it is made; not an encrypted one, in which nothing is made without the key.
    pub(crate) fn fresh(
        volume: &Volume,
        parent: Inheritance,
        number: u32,
        new: &NewInode<'_>,
        links: u16,
    ) -> Self {
        let kind = new.kind.file_type();
        let mut flags = possible_flags(kind, parent.flags & INHERITED);
        let mut i_block = [0; 60];
        let has_content = matches!(kind, FileType::Regular | FileType::Directory | FileType::Symlink);
        if has_content && volume.superblock().features().incompat.contains(Incompat::EXTENTS) {
            flags |= InodeFlags::EXTENTS;
            i_block = map::empty(true);
        }
        if let NewKind::CharDevice(device) | NewKind::BlockDevice(device) = new.kind {
            i_block[..8].copy_from_slice(&encode_device(device));
        }
        let has_projects = volume.superblock().features().ro_compat.contains(RoCompat::PROJECT);
        let inherits_project = has_projects && parent.flags.contains(InodeFlags::PROJECT_INHERIT);
        let extra_bytes = wanted_extra_bytes(volume);
        let now = time::nearest(clock::Coarse::now().timestamp(), extra_bytes >= 16);
        Self {
            number,
            kind,
            permissions: new.permissions,
            uid: new.uid,
            gid: new.gid,
            links,
            flags,
            generation: RandomState::new().hash_one(number) as u32,
            version: 1,
            size_bytes: 0,
            sectors: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: (extra_bytes >= 20).then_some(now),
            project: if inherits_project && extra_bytes >= 32 { parent.project } else { 0 },
            xattr_block: FsBlock(0),
            extra_bytes,
            i_block,
        }
    }
}

/// How many bytes after the first 128 are fields in new inodes.
fn wanted_extra_bytes(volume: &Volume) -> u16 {
    const KNOWN: u16 = size_of::<RawInodeExtra>() as u16;
    let superblock = volume.superblock();
    let room = superblock.geometry().inode_bytes() - BASE_BYTES as u16;
    let mut wanted = KNOWN;
    if superblock.features().ro_compat.contains(RoCompat::EXTRA_ISIZE) {
        let raw = superblock.raw();
        wanted = wanted.max(raw.s_want_extra_isize.get()).max(raw.s_min_extra_isize.get());
    }
    if wanted > room || !wanted.is_multiple_of(4) { KNOWN.min(room) } else { wanted }
}

/// Whether a device node can hold a number: 12 bits of the driver, and 20 of the device, as Linux has them.
pub(crate) const fn holds_device(device: DeviceNumber) -> bool {
    device.major < 1 << 12 && device.minor < 1 << 20
}

/// The first two words of a device node that [holds](holds_device) the number: 8 bits each in the first where that is enough, otherwise 12 and 20 bits in
/// the second.
pub(super) fn encode_device(device: DeviceNumber) -> [u8; 8] {
    let DeviceNumber { major, minor } = device;
    let (old, new) = if major < 256 && minor < 256 {
        (major << 8 | minor, 0)
    } else {
        (0, (major & 0xfff) << 8 | minor & 0xff | (minor & 0xf_ff00) << 12)
    };
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&old.to_le_bytes());
    bytes[4..].copy_from_slice(&new.to_le_bytes());
    bytes
}
