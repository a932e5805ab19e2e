//! The vfs adapter: the filesystem contract in terms of this crate.

use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_diskfs::{Changeable as _, WriteStats};
use undercroft_vfs::{Error, FileSystem, FileType, Ino, Inode as VfsInode, Limits, Result, StatFs};

use crate::fast_commit::redo;
use crate::features::Incompat;
use crate::group::GroupDescriptor;
use crate::grow::copies;
use crate::inode::{self, Inode, InodeFlags, NamedBy, ROOT_INODE};
use crate::jbd2::RecoveryReport;
use crate::live::Live;
use crate::numbers::{FsBlock, Group};
use crate::open::{OpenOptions, Probed, Ready, Writable};
use crate::options::WriteOptions;
use crate::superblock::{self, Superblock};
use crate::volume::Volume;
use crate::writer::Service;
use crate::writer::{Mounted, Writer};
use crate::{dir, map, orphan, statfs};

/// Blocks of the inode table that are read around a requested inode: its neighbours were most likely created with it
/// and will be requested next.
const INODE_READAHEAD_BLOCKS: u64 = 16;

/// A mounted ext2, ext3 or ext4 filesystem.
pub struct Ext4 {
    volume: Arc<Mounted>,
    recovery: Option<RecoveryReport>,
    /// The threads that write changes to the disk; `None` if it was opened for reading.
    service: Option<Service>,
}

impl fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ext4")
            .field("superblock", self.superblock())
            .field("device", &self.volume.device().name())
            .field("read_only", &self.service.is_none())
            .finish_non_exhaustive()
    }
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
        let fs = Self { volume: Arc::new(Mounted::new(volume)), recovery, service: None };
        fs.check_root()?;
        Ok(Arc::new(fs))
    }

    /// Opens a filesystem for reading and writing. A journal that holds changes is replayed onto the device, and
    /// orphans that a crash left are deleted or truncated. The caller must close the filesystem; a drop without a close
    /// tries the same and reports nothing.
    ///
    /// # Errors
    /// As for [`open_read_only`](Self::open_read_only); [`Error::Unsupported`] naming what cannot be written, and
    /// [`Error::ReadOnly`] for a device that takes no writes.
    pub fn open(device: Device, options: OpenOptions, write_options: WriteOptions) -> Result<Arc<Self>> {
        let writable = Probed::probe(device, options)?.recover_onto_device(&write_options)?;
        let Writable { volume, shown, transactions, recovery, found_clean, needed_recovery } = writable;
        let volume = Arc::new(Mounted::new(volume));
        let every = write_options.commit_interval();
        volume.set_writer(Writer { found_clean, ..Writer::new(&volume, transactions, write_options)? });
        if let Some(shown) = shown {
            redo::redo(&volume, &shown)?;
        }
        let service = Service::start(Arc::clone(&volume), every);
        let fs = Self { volume, recovery, service: Some(service) };
        fs.check_root()?;
        orphan::recover(&fs.volume)?;
        if needed_recovery {
            copies::refresh(&fs.volume)?;
        }
        Ok(Arc::new(fs))
    }

    /// Ends the changes: what was done before is durable afterwards, and the filesystem is clean. Remaining users can
    /// still read; every change is refused. Nothing happens to a filesystem that was opened for reading.
    ///
    /// # Errors
    /// The first failure since the filesystem was opened; it has not been left clean then.
    pub fn close(&self) -> Result<()> {
        self.service.as_ref().map_or(Ok(()), |service| self.volume.close(service))
    }

    /// How changes have gone to the disk; all zero for a filesystem that was opened for reading.
    #[must_use]
    pub fn write_stats(&self) -> WriteStats {
        self.volume.write_stats()
    }

    /// A filesystem without a root directory is no filesystem: say so now, not at the first path.
    fn check_root(&self) -> Result<()> {
        let root = Inode::read_own(&self.volume, ROOT_INODE, NamedBy::Format)?;
        if root.kind != FileType::Directory {
            return Err(crate::error::corrupt_inode(
                "root directory",
                ROOT_INODE,
                None,
                "is not a directory",
            ));
        }
        Ok(())
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

    pub(crate) fn volume(&self) -> &Arc<Mounted> {
        &self.volume
    }

    /// Free and used blocks of each group, first to last: (free blocks, blocks in the group).
    ///
    /// # Errors
    /// Corruption of a group descriptor; I/O failure.
    pub fn group_usage(&self) -> impl Iterator<Item = Result<(u64, u64)>> + '_ {
        let geometry = self.volume.superblock().geometry();
        (0..geometry.groups()).map(move |group| {
            let group = Group(group);
            let descriptor = match self.volume.writer() {
                Ok(writer) => writer.allocator.descriptor(group),
                Err(_) => GroupDescriptor::read(&self.volume, group)?,
            };
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
        let mut inode = Inode::read_located(&self.volume, number, location)?;
        inode.links = dir::links(&self.volume, &inode)?;
        if inode.flags.contains(InodeFlags::EA_INODE) {
            // An attribute's value has no name and is no user's file.
            return Err(Error::Stale);
        }
        Ok(Live::shared(Arc::clone(&self.volume), inode, location))
    }

    fn data_device(&self) -> Option<&Device> {
        Some(self.volume.device())
    }

    fn statfs(&self) -> Result<StatFs> {
        statfs::statfs(&self.volume)
    }

    fn is_read_only(&self) -> bool {
        self.service.is_none()
    }

    fn sync(&self) -> Result<()> {
        self.volume.sync_all()
    }

    fn close(&self) -> Result<()> {
        Self::close(self)
    }

    fn when_failed(&self, listener: Box<dyn Fn(&Error) + Send + Sync>) {
        self.volume.when_failed(listener);
    }

    fn failure(&self) -> Option<Error> {
        self.volume.failure()
    }

    fn shut_down(&self, flush_log: bool) -> Result<()> {
        self.volume.shut_down(flush_log)
    }

    /// As Linux keeps it, in the superblock, with the next commit. What does not fit is cut off.
    fn mounted_on(&self, dir: &Path) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let handle = self.volume.start(1)?;
        let path = dir.as_os_str().as_bytes();
        superblock::change(&handle, |raw| {
            let kept = path.len().min(raw.s_last_mounted.len());
            raw.s_last_mounted.fill(0);
            raw.s_last_mounted[..kept].copy_from_slice(&path[..kept]);
        })
    }

    /// Commits first, so that blocks freed before are free.
    fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        let writer = self.volume.writer()?;
        let geometry = self.volume.superblock().geometry();
        let block_bytes = u64::from(geometry.block_bytes());
        let group_bytes = u64::from(geometry.blocks_per_group()) * block_bytes;
        if range.start >= geometry.blocks() * block_bytes
            || range.end.saturating_sub(range.start) < block_bytes
            || min_len > group_bytes
        {
            return Err(Error::InvalidArgument("no free space of the filesystem can lie in such a range"));
        }
        writer.transactions.commit_everything(&self.volume)?;
        writer.allocator.trim(&self.volume, range, min_len)
    }

    /// Inodes that end before the nanoseconds have whole seconds.
    fn time_step_ns(&self) -> u32 {
        if self.volume.superblock().geometry().inode_bytes() > 128 { 1 } else { 1_000_000_000 }
    }

    fn limits(&self) -> Limits {
        let superblock = self.volume.superblock();
        let extents = superblock.features().incompat.contains(Incompat::EXTENTS);
        let blocks = map::limit_of_maps(&self.volume, extents);
        Limits {
            name_max_bytes: dir::NAME_MAX_BYTES as u32,
            file_max_bytes: blocks << superblock.geometry().block_bits(),
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
