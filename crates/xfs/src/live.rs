//! An inode in use: the vfs contract in terms of this crate. Nothing changes, so there is nothing to lock.

use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{
    Attr, DirEntry, DirOffset, Error, Extent, FileType, Found, HashedName, Ino, Inode as VfsInode,
    InodeFlags, Mapping, Ownership, Result,
};

use crate::da::mapped::{MappedFork, Piece};
use crate::da::{Content, Layout};
use crate::error::{Verdict, corrupt_inode};
use crate::format::FileBlock;
use crate::format::dinode::{DiFlags, DiFlags2};
use crate::inode::{Fork, Inode};
use crate::map::{self, Run};
use crate::volume::Volume;
use crate::{attr, dir, symlink};

/// The least preferred size of I/O that Linux reports: a page.
const PAGE_BYTES: u32 = 4096;

/// An inode in use.
#[derive(Debug)]
pub(crate) struct Live {
    volume: Arc<Volume>,
    inode: Inode,
}

impl Live {
    pub(crate) const fn new(volume: Arc<Volume>, inode: Inode) -> Self {
        Self { volume, inode }
    }

    fn flags(&self) -> InodeFlags {
        let mut shown = InodeFlags::empty();
        for (flag, means) in [
            (DiFlags::IMMUTABLE, InodeFlags::IMMUTABLE),
            (DiFlags::APPEND, InodeFlags::APPEND),
            (DiFlags::SYNC, InodeFlags::SYNC),
            (DiFlags::NOATIME, InodeFlags::NOATIME),
            (DiFlags::NODUMP, InodeFlags::NODUMP),
            (DiFlags::PROJECT_INHERIT, InodeFlags::PROJECT_INHERIT),
        ] {
            shown.set(means, self.inode.core.flags.contains(flag));
        }
        shown.set(InodeFlags::DAX, self.inode.core.flags2.contains(DiFlags2::DAX));
        shown
    }

    /// Calls `use_it` with the content of a fork.
    fn with_content<T>(
        &self,
        fork: &Fork,
        structure: &'static str,
        use_it: impl FnOnce(Content<'_>) -> Result<T>,
    ) -> Result<T> {
        let (volume, ino) = (&*self.volume, self.inode.ino);
        let map = |at| {
            piece(&map::lookup(volume, ino, fork, at)?, at)
                .map_err(|detail| corrupt_inode(structure, ino, None, detail))
        };
        match fork {
            Fork::Local(bytes) => use_it(Content::Inline(bytes)),
            _ => use_it(Content::Blocks(&MappedFork { volume, owner: ino, structure, map })),
        }
    }

    fn with_directory<T>(&self, use_it: impl FnOnce(dir::Directory<'_>) -> Result<T>) -> Result<T> {
        if self.inode.core.kind != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let superblock = self.volume.superblock();
        let layout = &Layout::of(superblock);
        let ino = self.inode.ino;
        self.with_content(&self.inode.data, "directory", |content| {
            use_it(dir::Directory { ino, layout, superblock, content })
        })
    }

    fn with_attributes<T>(
        &self,
        use_it: impl FnOnce(attr::Attributes<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(fork) = &self.inode.attr else { return Ok(None) };
        if matches!(fork, Fork::Extents(extents) if extents.is_empty()) {
            return Ok(None);
        }
        let layout = &Layout::of(self.volume.superblock());
        let ino = self.inode.ino;
        self.with_content(fork, "attribute fork", |content| {
            use_it(attr::Attributes { ino, layout, content }).map(Some)
        })
    }
}

/// What lies under a block, for a reader of whole blocks. Directories, links and attributes are written as they get their
/// blocks.
fn piece(run: &Run, at: FileBlock) -> Verdict<Piece> {
    match run {
        Run::Extent(extent) if extent.unwritten => {
            Err(format!("the extent at block {} of its fork was never written", extent.file).into())
        }
        Run::Extent(extent) => Ok(Piece { len: extent.end() - at.0, home: Some(extent.block_of(at.0)) }),
        Run::Hole { end, .. } => Ok(Piece { len: end - at.0, home: None }),
    }
}

impl VfsInode for Live {
    fn attr(&self) -> Attr {
        let Inode { ino, core, .. } = &self.inode;
        let block_bytes = self.volume.geometry().block_bytes();
        Attr {
            ino: *ino,
            generation: core.generation,
            kind: core.kind,
            permissions: core.permissions,
            links: core.links,
            uid: core.uid,
            gid: core.gid,
            rdev: self.inode.device_number(),
            size_bytes: core.size_bytes,
            sectors: core.blocks.saturating_mul(u64::from(block_bytes / 512)),
            block_bytes: match core.kind {
                FileType::CharDevice | FileType::BlockDevice => PAGE_BYTES,
                _ => block_bytes.max(PAGE_BYTES),
            },
            accessed: core.accessed,
            modified: core.modified,
            changed: core.changed,
            created: core.created,
            flags: self.flags(),
            project: core.project,
        }
    }

    fn ownership(&self) -> Ownership {
        let core = &self.inode.core;
        let (kind, permissions, uid, gid) = (core.kind, core.permissions, core.uid, core.gid);
        let mut flags = self.flags();
        // Linux shows no flag for it: it applies to the whole volume.
        let folds_case = kind == FileType::Directory && self.volume.superblock().features().has_ascii_ci();
        flags.set(InodeFlags::CASEFOLD, folds_case);
        Ownership { kind, permissions, uid, gid, flags }
    }

    fn size_bytes(&self) -> u64 {
        self.inode.core.size_bytes
    }

    fn links(&self) -> u32 {
        self.inode.core.links
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<Inode>() + self.inode.memory_bytes()
    }

    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>> {
        self.with_directory(|directory| Ok(dir::lookup(directory, name.bytes())?.map(Found::Ino)))
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        self.with_directory(|directory| dir::read_dir(directory, from, sink))
    }

    fn read_dir_behind(&self, from: DirOffset) -> Option<DirOffset> {
        self.with_directory(|directory| Ok(dir::read_dir_behind(directory, from))).ok().flatten()
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.inode.core.kind != FileType::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        let layout = &Layout::of(self.volume.superblock());
        self.with_content(&self.inode.data, "symbolic link", |content| {
            symlink::read(self.inode.ino, layout, content, self.inode.core.size_bytes)
        })
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        match self.inode.core.kind {
            FileType::Regular => map_bytes(&self.volume, &self.inode, offset),
            FileType::Directory => Err(Error::IsDirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.with_attributes(|attributes| attr::get(attributes, name))?.flatten())
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.with_attributes(attr::list)?.unwrap_or_default())
    }
}

/// What lies under a byte of a regular file.
fn map_bytes(volume: &Volume, inode: &Inode, offset: u64) -> Result<Extent> {
    let shift = volume.geometry().block_log();
    let in_bytes = |start: u64, end: u64, mapping| {
        // Past what 64 bits count there is nothing.
        let bytes = |block: u64| block.saturating_mul(1 << shift);
        Extent { start: bytes(start), len: bytes(end) - bytes(start), mapping }
    };
    let at = offset >> shift;
    let extent = match map::lookup(volume, inode.ino, &inode.data, FileBlock(at))? {
        Run::Hole { start, end } => return Ok(in_bytes(start, end, Mapping::Hole)),
        Run::Extent(extent) => extent,
    };
    let byte_of = |at: u64| {
        volume.geometry().byte(extent.block_of(at)).ok_or_else(|| {
            corrupt_inode("data fork", inode.ino, Some(extent.block), "lies outside the filesystem")
        })
    };
    if extent.unwritten {
        let mapping = Mapping::Unwritten { offset: byte_of(extent.file.0)? };
        return Ok(in_bytes(extent.file.0, extent.end(), mapping));
    }
    if !inode.core.may_share_blocks() {
        let mapping = Mapping::Device { offset: byte_of(extent.file.0)? };
        return Ok(in_bytes(extent.file.0, extent.end(), mapping));
    }
    let left = (extent.end() - at) as u32;
    // Reading a file does not depend on the tree of reference counts: where that cannot be read, blocks count as
    // shared.
    let sharing = map::sharing(volume, extent.block_of(at), left);
    let (shared, count) = sharing.map_or((true, left), |sharing| (sharing.shared, sharing.count));
    let offset = byte_of(at)?;
    let mapping = if shared { Mapping::Shared { offset } } else { Mapping::Device { offset } };
    Ok(in_bytes(at, at + u64::from(count), mapping))
}

/// The inode numbers of directory entries that can be read ahead.
pub(crate) fn prefetch(volume: &Volume, entries: &[Ino]) {
    let geometry = volume.geometry();
    volume.prefetch_scattered(entries.iter().filter_map(|&ino| Some(geometry.inode_place(ino)?.0)));
}

#[cfg(test)]
mod tests {
    use undercroft_block::{BlockDevice, MemoryDevice};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::format::dinode::{self, RawDinode};
    use crate::format::extent::{Extent as Mapped, RawExtent};
    use crate::format::{FsBlock, Superblock, crc, testing};

    const INO: Ino = Ino(131);

    /// An inode whose data fork begins with `fork`, on a volume with these version bits.
    fn live(version_bits: u16, change: impl FnOnce(&mut RawDinode), fork: &[u8]) -> Live {
        let device = Arc::new(MemoryDevice::new(512 << 20));
        let sector = testing::superblock_sector(|raw| raw.sb_versionnum.set(version_bits));
        device.write_at(0, &sector).unwrap();
        let superblock = Superblock::read(&*device).unwrap();
        let mut bytes = testing::dinode(&superblock, INO, change);
        bytes[dinode::CORE_V3_BYTES..][..fork.len()].copy_from_slice(fork);
        crc::seal(&mut bytes, dinode::CRC_OFFSET);
        device.write_at(INO.0 * 512, &bytes).unwrap();
        let volume = Volume::new(device, superblock, 1 << 20);
        let inode = Inode::read(&volume, INO).unwrap();
        Live::new(Arc::new(volume), inode)
    }

    /// A name that differs by case leads to a directory too, so that its place must not depend on the spelling.
    #[test]
    fn directories_fold_case_where_the_volume_does() {
        let directory = |raw: &mut RawDinode| {
            raw.di_mode.set(0o040_755);
            raw.di_nlink.set(2);
            raw.di_format = 1;
            raw.di_size.set(6);
        };
        for (version_bits, folds_case) in [(0xb4a5, false), (0xf4a5, true)] {
            let live = live(version_bits, directory, &[0, 0, 0, 0, 0, 128]);
            assert_eq!(live.ownership().flags.contains(InodeFlags::CASEFOLD), folds_case);
            assert!(!live.attr().flags.contains(InodeFlags::CASEFOLD), "Linux shows no such flag");
        }
        assert!(!live(0xf4a5, |_| {}, &[]).ownership().flags.contains(InodeFlags::CASEFOLD));
    }

    #[test]
    fn a_target_in_blocks_that_were_never_written_is_corruption() {
        let link = |raw: &mut RawDinode| {
            raw.di_mode.set(0o120_777);
            raw.di_size.set(1000);
            raw.di_nextents.set(1);
            raw.di_nblocks.set(1);
        };
        let extent = Mapped { file: FileBlock(0), block: FsBlock(50), count: 1, unwritten: true };
        let refusal = live(0xb4a5, link, RawExtent::pack(&extent).as_bytes()).read_link().unwrap_err();
        assert!(refusal.to_string().contains("never written"), "{refusal}");
    }
}
