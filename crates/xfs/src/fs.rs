//! The vfs adapter: the filesystem contract in terms of this crate.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use undercroft_block::Device;
use undercroft_diskfs::{Changeable as _, WriteStats};
use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, FileSystem, Ino, Inode as VfsInode, Limits, Result, StatFs};

use crate::ag::{Agf, Agi};
use crate::btree;
use crate::check::{self, CheckOptions, CheckReport};
use crate::format::Superblock;
use crate::inode::Inode;
use crate::live::{self, Live};
use crate::log::{LogPosition, Recovery};
use crate::open::{OpenOptions, Probed, Ready};
use crate::options::WriteOptions;
use crate::statfs;
use crate::volume::Volume;
use crate::writer::{Mounted, Service};

/// An opened XFS filesystem.
pub struct Xfs {
    volume: Arc<Mounted>,
    recovery: Option<Recovery>,
    log: Option<LogPosition>,
    /// What `statfs` counts from, after its first call.
    counts: OnceLock<statfs::Counts>,
    /// The threads that write changes to the disk; `None` if it was opened for reading.
    service: Option<Service>,
}

/// What an allocation group holds, as its headers have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgUsage {
    /// Blocks of the group.
    pub blocks: u32,
    /// Free blocks, those on the free list among them.
    pub free_blocks: u32,
    /// Blocks of the longest run of free ones.
    pub longest_free: u32,
    /// Inodes in chunks.
    pub inodes: u32,
    /// Of those, the free ones.
    pub free_inodes: u32,
}

/// How many free extents have a length within a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeExtents {
    /// The shortest length that counts here, a power of two of blocks.
    pub from_blocks: u32,
    /// Free extents of such a length.
    pub extents: u64,
    /// Blocks in them.
    pub blocks: u64,
}

/// The two trees of inode chunks that a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeTree {
    /// All chunks (inobt).
    All,
    /// Those with free inodes (finobt). A filesystem may be without it.
    Free,
}

/// A chunk of 64 inodes, as a tree has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeChunk {
    /// Its first inode.
    pub first: Ino,
    /// The block within the group in which that lies.
    pub first_block: u32,
    /// A bit for each inode that exists, the first the lowest: a sparse chunk has parts that do not.
    pub existing: u64,
    /// A bit for each inode in use.
    pub used: u64,
}

impl fmt::Debug for Xfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xfs")
            .field("superblock", self.superblock())
            .field("device", &self.volume.device().name())
            .field("read_only", &self.service.is_none())
            .finish_non_exhaustive()
    }
}

impl Xfs {
    /// Opens a filesystem for reading. A log that holds changes is replayed into memory; the device's bytes do not
    /// change.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`], [`Error::Io`].
    pub fn open_read_only(device: Device, options: OpenOptions) -> Result<Arc<Self>> {
        let Ready { volume, recovery, log } = Probed::probe(device, options)?.recover()?;
        // A filesystem without a root directory is no filesystem: say so now, not at the first path.
        Inode::read_root(&volume)?;
        let volume = Arc::new(Mounted::new(volume));
        Ok(Arc::new(Self { volume, recovery, log, counts: OnceLock::new(), service: None }))
    }

    /// Opens a filesystem for reading and writing. A log that holds changes is replayed onto the device, work that it ends
    /// in is finished, and unlinked inodes that a crash left are deleted. The caller must close the filesystem; a
    /// drop without a close tries the same and reports nothing.
    ///
    /// # Errors
    /// As for [`open_read_only`](Self::open_read_only); [`Error::Unsupported`] naming what cannot be written, and
    /// [`Error::ReadOnly`] for a device that takes no writes.
    pub fn open(device: Device, options: OpenOptions, write_options: WriteOptions) -> Result<Arc<Self>> {
        let ready = Probed::probe(device, options)?.recover_onto_device(write_options.logged)?;
        Inode::read_root(&ready.volume)?;
        let (volume, recovery, log) = ready.finish_recovery(write_options)?;
        let service = Service::start(Arc::clone(&volume), write_options.commit_interval());
        let (counts, log) = (OnceLock::new(), Some(log));
        let fs = Self { volume, recovery, log, counts, service: Some(service) };
        let writer = fs.volume.writer()?;
        let copies = if fs.recovery.is_some() { writer.allocator.free_copies(&fs.volume) } else { Ok(()) };
        if let Err(error) = copies.and_then(|()| live::delete_unlinked(&fs.volume)) {
            // The log stays as after a crash, so that the next opening, by Linux too, frees and deletes them.
            writer.transactions.abort_because(&error);
            return Err(error);
        }
        Ok(Arc::new(fs))
    }

    /// Ends the changes: what was done before is durable afterwards, and the filesystem is as Linux unmounts it. Remaining
    /// users can still read; every change is refused. Nothing happens to a filesystem that was opened for reading.
    ///
    /// # Errors
    /// The first failure since the filesystem was opened; its log holds changes then.
    pub fn close(&self) -> Result<()> {
        self.service.as_ref().map_or(Ok(()), |service| self.volume.close(service))
    }

    /// How changes have gone to the disk; all zero for a filesystem that was opened for reading.
    #[must_use]
    pub fn write_stats(&self) -> WriteStats {
        let inodes_left = self.volume.writer().map_or(0, |writer| writer.inodes_left.load(Ordering::Relaxed));
        WriteStats { inodes_left, ..self.volume.write_stats() }
    }

    pub(crate) fn volume(&self) -> &Mounted {
        &self.volume
    }

    /// The superblock, as the recovered log left it.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        self.volume.superblock()
    }

    /// What opening replayed, if the log held changes.
    #[must_use]
    pub const fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// Checks the filesystem as it is shown, with its log replayed, and as it will be when what the log interrupted is
    /// finished.
    ///
    /// # Errors
    /// As for [`check`](crate::check::check()).
    pub fn check(&self, options: &CheckOptions) -> Result<CheckReport> {
        let recovered = self.recovery.as_ref().map(|recovery| (recovery, self.volume.remapped()));
        check::check_recovered(self.volume.device(), options, recovered)
    }

    /// Where the log was found to begin and end, if it was looked at.
    #[must_use]
    pub const fn log_position(&self) -> Option<LogPosition> {
        self.log
    }

    /// Where the log lies, if not on another device: its group, its first block within that, and how many.
    #[must_use]
    pub fn log_extent(&self) -> Option<(u32, u32, u32)> {
        let superblock = self.superblock();
        let (ag, first) = superblock.geometry().split(superblock.log_start()?)?;
        Some((ag.0, first.0, superblock.log_blocks()))
    }

    /// What each allocation group holds, first to last; of inodes in a filesystem that is changed, what it held when that was
    /// committed last.
    ///
    /// # Errors
    /// Corruption of a group's headers; I/O failure.
    pub fn ag_usage(&self) -> impl ExactSizeIterator<Item = Result<AgUsage>> + '_ {
        self.volume.geometry().ags().map(|ag| {
            let _still = self.volume.hold_still(ag);
            let (agf, agi) = (Agf::read(&self.volume, ag)?, Agi::read(&self.volume, ag)?);
            Ok(AgUsage {
                blocks: self.volume.geometry().ag_len(ag),
                free_blocks: agf.free_blocks().saturating_add(agf.free_list_blocks()),
                longest_free: agf.longest(),
                inodes: agi.inodes(),
                free_inodes: agi.free_inodes(),
            })
        })
    }

    /// Free extents of an allocation group by length, in powers of two, without lengths that none has. Without such a group
    /// there are none.
    ///
    /// # Errors
    /// Corruption of the group's header or the tree of free space; I/O failure.
    pub fn free_extents(&self, group: u32) -> Result<Vec<FreeExtents>> {
        let Some(ag) = self.volume.geometry().ag(group) else { return Ok(Vec::new()) };
        let mut counts = [(0_u64, 0_u64); 32];
        let still = self.volume.hold_still(ag);
        Agf::read(&self.volume, ag)?.by_size(&self.volume)?.for_each(|extent| {
            let (extents, blocks) = &mut counts[extent.count.ilog2() as usize];
            *extents += 1;
            *blocks += u64::from(extent.count);
            Ok(())
        })?;
        drop(still);
        let by_log = counts.into_iter().enumerate().filter(|(_, (extents, _))| *extents > 0);
        Ok(by_log
            .map(|(log, (extents, blocks))| FreeExtents { from_blocks: 1 << log, extents, blocks })
            .collect())
    }

    /// Calls `visit` with each chunk of inodes that a tree of an allocation group has, in order. Without such a group or
    /// tree there is none. In a filesystem that is changed, chunks are as they were when that was committed last, or newer;
    /// `visit` must not use the filesystem then: the group is locked.
    ///
    /// # Errors
    /// Corruption of the group's header or the tree; I/O failure.
    pub fn for_each_inode_chunk(
        &self,
        group: u32,
        tree: InodeTree,
        mut visit: impl FnMut(InodeChunk),
    ) -> Result<()> {
        let Some(ag) = self.volume.geometry().ag(group) else { return Ok(()) };
        let _still = self.volume.hold_still(ag);
        let (volume, geometry): (&Volume, _) = (&self.volume, self.volume.geometry());
        let agi = Agi::read(volume, ag)?;
        let mut tell = |chunk: btree::InodeChunk| {
            // A chunk that was validated begins in its group.
            let Some(first) = geometry.join_ino(ag, chunk.start) else { return Ok(()) };
            let first_block = chunk.start.0 >> geometry.inodes_per_block_log();
            visit(InodeChunk { first, first_block, existing: chunk.existing(), used: chunk.used() });
            Ok(())
        };
        match tree {
            InodeTree::All => agi.chunks(volume)?.for_each(&mut tell),
            InodeTree::Free => agi.free_chunks(volume)?.map_or(Ok(()), |chunks| chunks.for_each(&mut tell)),
        }
    }

    /// Calls `visit` with first block and length of each free extent of an allocation group, in order. Without such a
    /// group there is none. `visit` must not use a filesystem that is changed: the group is locked.
    ///
    /// # Errors
    /// Corruption of the group's header or the tree of free space; I/O failure.
    pub fn for_each_free_extent(&self, group: u32, mut visit: impl FnMut(u32, u32)) -> Result<()> {
        let Some(ag) = self.volume.geometry().ag(group) else { return Ok(()) };
        let _still = self.volume.hold_still(ag);
        Agf::read(&self.volume, ag)?.by_space(&self.volume)?.for_each(|extent| {
            visit(extent.start.0, extent.count);
            Ok(())
        })
    }
}

impl FileSystem for Xfs {
    fn kind(&self) -> &'static str {
        "xfs"
    }

    fn root(&self) -> Ino {
        self.volume.superblock().root()
    }

    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn VfsInode>> {
        let inode = Inode::read(&self.volume, ino).map_err(|error| match error {
            // Its chunk may have gone since the caller learned the number, and the block hold something else.
            Error::Corrupt(_) if matches!(self.check_handle(ino), Err(Error::Stale)) => Error::Stale,
            error => error,
        })?;
        if inode.core.links == 0 {
            return Err(Error::Stale);
        }
        Ok(Live::shared(Arc::clone(&self.volume), inode))
    }

    fn check_handle(&self, ino: Ino) -> Result<()> {
        match self.volume.writer() {
            Ok(writer) => writer.allocator.check_in_use(&self.volume, ino),
            Err(_) => Inode::check_in_use(&self.volume, ino),
        }
    }

    fn data_device(&self) -> Option<&Device> {
        Some(self.volume.device())
    }

    fn statfs(&self) -> Result<StatFs> {
        if let Ok(writer) = self.volume.writer() {
            let counts = statfs::Counts::of_groups(&self.volume, &writer.allocator);
            return Ok(statfs::statfs(&self.volume, &counts));
        }
        let counts = match self.counts.get() {
            Some(counts) => counts,
            // Several callers may count at the same time; none waits for another's reads.
            None => {
                let counts = statfs::Counts::new(&self.volume, self.recovery.is_some())?;
                self.counts.get_or_init(|| counts)
            }
        };
        Ok(statfs::statfs(&self.volume, counts))
    }

    fn fssetxattr_clears_suid_sgid(&self) -> bool {
        true
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

    fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        let writer = self.volume.writer()?;
        let geometry = self.volume.geometry();
        let block_bytes = u64::from(geometry.block_bytes());
        if range.start >= geometry.blocks().saturating_mul(block_bytes)
            || range.end.saturating_sub(range.start) < block_bytes
            || min_len > u64::from(geometry.ag_blocks()) * block_bytes
        {
            return Err(Error::InvalidArgument("no free space of the filesystem can lie in such a range"));
        }
        writer.transactions.commit_everything(&self.volume)?;
        writer.allocator.trim(&self.volume, range, min_len)
    }

    fn limits(&self) -> Limits {
        Limits { name_max_bytes: statfs::NAME_MAX_BYTES, file_max_bytes: statfs::FILE_MAX_BYTES }
    }

    fn prefetch_inodes(&self, entries: &[Ino]) {
        live::prefetch(&self.volume, entries);
    }
}
