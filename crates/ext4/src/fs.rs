//! The vfs adapter: the filesystem contract in terms of this crate.

use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_vfs::{
    Attr, DirEntry, DirOffset, Error, Extent, FileSystem, FileType, Found, Ino, Inode as VfsInode,
    InodeFlags, Limits, Mapping, Result, StatFs,
};

use crate::inode::{self, Inode, ROOT_INODE};
use crate::journal::RecoveryReport;
use crate::map::{self, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::open::{OpenOptions, Probed, Ready};
use crate::superblock::Superblock;
use crate::volume::Volume;
use crate::{dir, inline, orphan, statfs, symlink, xattr};

/// Blocks of the inode table brought in around an inode that was asked for: what lies beside it was most
/// likely created with it and will be asked for next.
const INODE_READAHEAD_BLOCKS: u64 = 16;

/// A mounted ext2, ext3 or ext4 filesystem.
#[derive(Debug)]
pub struct Ext4 {
    volume: Arc<Volume>,
    recovery: Option<RecoveryReport>,
}

impl Ext4 {
    /// Opens a filesystem for reading. A journal that holds changes is replayed into memory; the device's
    /// bytes do not change.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`], [`Error::InUse`], [`Error::Io`].
    pub fn open_read_only(device: Device, options: OpenOptions) -> Result<Arc<Self>> {
        let ready = Probed::probe(device, options)?.recover_in_memory()?;
        let Ready { volume, recovery } = ready;
        let fs = Self { volume: Arc::new(volume), recovery };
        // A filesystem without a root directory is no filesystem: say so now, not at the first path.
        let root = Inode::read(&fs.volume, ROOT_INODE)?;
        if root.kind != FileType::Directory {
            return Err(crate::error::corrupt_inode(
                "root directory",
                ROOT_INODE,
                None,
                "is not a directory",
            ));
        }
        Ok(Arc::new(fs))
    }

    /// The superblock, as the replayed journal left it.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        self.volume.superblock()
    }

    /// What opening replayed, if the journal held changes.
    #[must_use]
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        self.recovery.as_ref()
    }

    /// Inodes that were unlinked while open, or whose truncation was under way, when the system stopped.
    ///
    /// # Errors
    /// Corruption of the orphan list or file; I/O failure.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        Ok(orphan::collect(&self.volume)?.into_iter().map(|number| Ino(u64::from(number))).collect())
    }

    #[cfg(feature = "testing")]
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Free and used blocks of each group, first to last: (free blocks, blocks in the group).
    ///
    /// # Errors
    /// Corruption of a group descriptor; I/O failure.
    pub fn group_usage(&self) -> impl Iterator<Item = Result<(u64, u64)>> + '_ {
        let geometry = self.volume.superblock().geometry();
        (0..geometry.groups()).map(move |group| {
            let group = crate::numbers::Group(group);
            let descriptor = crate::group::GroupDescriptor::read(&self.volume, group)?;
            let start = geometry.group_start(group).0;
            let blocks = (geometry.blocks() - start).min(u64::from(geometry.blocks_per_group()));
            let free = u64::from(descriptor.free_clusters) * u64::from(geometry.blocks_per_cluster());
            Ok((free.min(blocks), blocks))
        })
    }
}

impl FileSystem for Ext4 {
    fn kind(&self) -> &'static str {
        self.volume.superblock().family()
    }

    fn root(&self) -> Ino {
        Ino(u64::from(ROOT_INODE))
    }

    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn VfsInode>> {
        let geometry = self.volume.superblock().geometry();
        let number = u32::try_from(ino.0).map_err(|_| Error::Stale)?;
        if number > geometry.inodes() || number < geometry.first_inode() && number != ROOT_INODE {
            return Err(Error::Stale);
        }
        let location = inode::locate(&self.volume, number)?;
        prefetch_around(&self.volume, location.block);
        let inode = Inode::read_located(&self.volume, number, location)?;
        if inode.flags.contains(InodeFlags::EA_INODE) {
            // An attribute's value has no name and is nobody's file.
            return Err(Error::Stale);
        }
        Ok(Arc::new(Handle { volume: Arc::clone(&self.volume), inode }))
    }

    fn data_device(&self) -> Option<&Device> {
        Some(self.volume.device())
    }

    fn statfs(&self) -> Result<StatFs> {
        statfs::statfs(&self.volume)
    }

    fn limits(&self) -> Limits {
        let blocks_by_number = u64::from(u32::MAX);
        Limits {
            name_max_bytes: dir::NAME_MAX_BYTES as u32,
            file_max_bytes: blocks_by_number << self.volume.superblock().geometry().block_bits(),
        }
    }

    fn prefetch_inodes(&self, entries: &[Ino]) {
        let mut blocks: Vec<u64> = entries
            .iter()
            .filter_map(|ino| inode::locate(&self.volume, u32::try_from(ino.0).ok()?).ok())
            .map(|location| location.block.0)
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        self.volume.buffers().prefetch_scattered(&blocks);
    }
}

/// Brings the neighbourhood of a block of the inode table into the cache, unless the block is there already.
fn prefetch_around(volume: &Volume, block: FsBlock) {
    if !volume.buffers().contains(block.0) {
        let first = block.0 / INODE_READAHEAD_BLOCKS * INODE_READAHEAD_BLOCKS;
        volume.buffers().prefetch(first, INODE_READAHEAD_BLOCKS);
    }
}

/// An inode in somebody's hands.
#[derive(Debug)]
struct Handle {
    volume: Arc<Volume>,
    inode: Inode,
}

impl Handle {
    fn require_directory(&self) -> Result<()> {
        if self.inode.kind == FileType::Directory { Ok(()) } else { Err(Error::NotDirectory) }
    }
}

impl VfsInode for Handle {
    fn attr(&self) -> Attr {
        let inode = &self.inode;
        // As Linux counts them: a file whose data lies in the inode has no blocks, and tools that read a count of
        // zero as "nothing but a hole" would not copy it.
        let inline_bytes =
            if inode.kind == FileType::Regular && inode.has_inline_data() { inode.size_bytes } else { 0 };
        Attr {
            ino: Ino(u64::from(inode.number)),
            generation: inode.generation,
            kind: inode.kind,
            permissions: inode.permissions,
            links: u32::from(inode.links),
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.device_number(),
            size_bytes: if inode.kind == FileType::Symlink {
                symlink::shown_bytes(inode)
            } else {
                inode.size_bytes
            },
            sectors: inode.sectors + inline_bytes.div_ceil(512),
            block_bytes: self.volume.block_bytes(),
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            created: inode.created,
            flags: inode.flags,
            project: inode.project,
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>()
    }

    fn lookup(&self, name: &[u8]) -> Result<Option<Found>> {
        self.require_directory()?;
        let found = dir::lookup(&self.volume, &self.inode, name)?;
        Ok(found.map(|number| Found::Ino(Ino(u64::from(number)))))
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        self.require_directory()?;
        dir::read_dir(&self.volume, &self.inode, from, sink)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        symlink::read(&self.volume, &self.inode)
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        match self.inode.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::InvalidArgument("not a regular file")),
        }
        if self.inode.flags.contains(InodeFlags::ENCRYPTED) {
            return Err(Error::NoKey);
        }
        if self.inode.has_inline_data() {
            let bytes = inline::read(&self.volume, &self.inode)?;
            return Ok(Extent { start: 0, len: u64::MAX, mapping: Mapping::Inline(bytes) });
        }
        let bits = self.volume.superblock().geometry().block_bits();
        let Ok(block) = u32::try_from(offset >> bits) else {
            // Past the last block that a file can have there is nothing.
            let start = 1 << (32 + bits);
            return Ok(Extent { start, len: u64::MAX - start, mapping: Mapping::Hole });
        };
        let run = map::lookup(&self.volume, &self.inode, FileBlock(block))?;
        let mapping = match run.state {
            RunState::Hole => Mapping::Hole,
            RunState::Unwritten(FsBlock(first)) => Mapping::Unwritten { offset: first << bits },
            RunState::Mapped(FsBlock(first)) => Mapping::Device { offset: first << bits },
        };
        Ok(Extent { start: u64::from(block) << bits, len: run.len << bits, mapping })
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        xattr::get(&self.volume, &self.inode, name)
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        xattr::list(&self.volume, &self.inode)
    }
}
