//! A regular file or a block device as a device.
//!
//! Single requests are positioned reads and writes. Batches go to the kernel at once through io_uring where that
//! is allowed; where it is not, their reads are announced and then done one after the other. With direct I/O the page
//! cache is left out; what alignment that needs is done here, see `direct.rs`.
//!
//! A device has one writer, in whatever program or part of the kernel (`exclusion`). Inside the program the kernel does
//! the ordering, except for the edges of unaligned direct writes.
//!
//! A flush that failed is the last one that means anything: see `FlushLatch`.
//!
//! Locks: class `DEVICE`, the list of idle rings (never held across I/O) or the edges of direct writes (held
//! across I/O on this file only), never both.
//! Left out: files that change their size while open; a read of what was cut off reports an early end.

mod direct;
mod exclusion;
mod geometry;
mod holes;
mod options;
mod ring;
mod zeroing;

use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Advice, OFlags, fadvise};

pub(crate) use exclusion::Shown;
pub use exclusion::{Holder, InUse};
pub use options::{FileOptions, Locking};

use self::direct::Direct;
use self::exclusion::Exclusion;
use self::geometry::Kind;
use self::ring::RingPool;
use self::zeroing::Zeroing;
use crate::device::{check_range, check_write};
use crate::{
    Access, BlockDevice, ClaimedDevice, Error, FlushLatch, NextData, OpenError, Operation, Request, Result,
    Topology,
};

/// The kernel's blocks of a device are no larger than a page is at least.
const SOFT_BLOCK_MAX: u32 = 4096;

/// A regular file or a block device, opened.
pub struct FileDevice {
    file: File,
    path: PathBuf,
    /// What it is called in messages, where that is not its path.
    shown: Option<String>,
    size_bytes: AtomicU64,
    access: Access,
    topology: Topology,
    may_hang: bool,
    kind: Kind,
    direct: Option<Direct>,
    rings: Option<RingPool>,
    zeroing: Zeroing,
    flushes: FlushLatch,
    exclusion: Exclusion,
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("path", &self.path)
            .field("size_bytes", &self.size_bytes())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl FileDevice {
    /// Opens an image file or a block device.
    ///
    /// To be written, it must have no other user: see [`Locking::Advisory`]. A block device is claimed from the
    /// kernel.
    ///
    /// # Errors
    /// [`OpenError`]: the file is missing, of the wrong kind, in use, or cannot do what `options` ask for.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> std::result::Result<Self, OpenError> {
        let path = path.as_ref();
        let system =
            |action| move |source: io::Error| OpenError::System { action, path: path.to_owned(), source };
        // Looked at by name first: opening a pipe would wait for its other end.
        let metadata = std::fs::metadata(path).map_err(system("open"))?;
        let kind = Kind::of(&metadata, path)?;
        let writable = options.access == Access::ReadWrite;
        let claim = exclusion::claim(path, kind, options)?;
        let mut flags = OFlags::empty();
        flags.set(OFlags::DIRECT, options.direct);
        let opened =
            File::options().read(true).write(writable).custom_flags(flags.bits().cast_signed()).open(path);
        let file = opened.map_err(|source| match rustix::io::Errno::from_io_error(&source) {
            Some(rustix::io::Errno::BUSY) if kind == Kind::BlockDevice => {
                let holders = exclusion::busy(path);
                OpenError::InUse { path: path.to_owned(), wanted: options.access, holders }
            }
            Some(rustix::io::Errno::INVAL) if options.direct => {
                OpenError::DirectUnsupported { path: path.to_owned() }
            }
            _ => system("open")(source),
        })?;
        let kind = Kind::of(&file.metadata().map_err(system("look at"))?, path)?;
        let exclusion = exclusion::acquire(&file, path, kind, options, claim)?;
        let size_bytes = geometry::size_bytes(&file, kind).map_err(system("find the size of"))?;
        let topology = geometry::topology(&file, kind).map_err(system("look at"))?;
        let may_hang = geometry::may_hang(&file, kind).map_err(system("look at"))?;
        let direct = options.direct.then(|| Direct::new(&file, kind, topology));
        if let Some(direct) = &direct
            && writable
            && !size_bytes.is_multiple_of(direct.offset_align())
        {
            let align = direct.offset_align();
            return Err(OpenError::DirectSize { path: path.to_owned(), size: size_bytes, align });
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            shown: None,
            size_bytes: AtomicU64::new(size_bytes),
            access: options.access,
            topology,
            may_hang,
            kind,
            direct,
            rings: options.io_uring.then(RingPool::new),
            zeroing: Zeroing::default(),
            flushes: FlushLatch::new(),
            exclusion,
        })
    }

    /// Gives it another name for messages than its path.
    #[must_use]
    pub fn shown_as(mut self, shown: impl Into<String>) -> Self {
        self.shown = Some(shown.into());
        self
    }

    /// Whether batches go through io_uring: asked for, and not refused by the kernel so far.
    #[must_use]
    pub fn uses_io_uring(&self) -> bool {
        self.rings.as_ref().is_some_and(RingPool::is_usable)
    }

    /// The open file once more, for a reader of image formats. The lock stays with this device.
    pub(crate) fn duplicate(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The file as it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, operation: Operation, offset: u64, len: u64, source: io::Error) -> Error {
        Error::Io { operation, offset, len, device: self.name(), source }
    }

    /// Reads without looking at the range again.
    fn transfer_in(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let done = match &self.direct {
            Some(direct) => direct.read(&self.file, offset, buf),
            None => self.file.read_exact_at(buf, offset),
        };
        done.map_err(|source| self.error(Operation::Read, offset, buf.len() as u64, source))
    }

    /// Writes without looking at the range again.
    fn transfer_out(&self, offset: u64, data: &[u8]) -> Result<()> {
        let done = match &self.direct {
            Some(direct) => direct.write(&self.file, offset, data),
            None => self.file.write_all_at(data, offset),
        };
        done.map_err(|source| self.error(Operation::Write, offset, data.len() as u64, source))
    }

    fn transfer(&self, request: &mut Request<'_>) -> Result<()> {
        match request {
            Request::Read { offset, buf } => self.transfer_in(*offset, buf),
            Request::Write { offset, data } => self.transfer_out(*offset, data),
        }
    }

    /// Hands a batch to the kernel at once; `None` if it takes no batches.
    fn transfer_together(&self, batch: &mut [Request<'_>]) -> Option<Result<()>> {
        // Goes back to the pool after the lock on the edges is gone: it is declared first.
        let mut ring = self.rings.as_ref()?.take()?;
        let mut together = Vec::with_capacity(batch.len());
        for request in batch {
            match &self.direct {
                Some(direct) if !direct.is_aligned(request) => {
                    if let Err(error) = self.transfer(request) {
                        return Some(Err(error));
                    }
                }
                _ => together.push(request),
            }
        }
        let _edges = self.direct.as_ref().map(Direct::share_edges);
        match ring.run(&self.file, &mut together) {
            Ok(()) => Some(Ok(())),
            Err(ring::Failure::Request { index, source }) => {
                let request = &together[index];
                let operation = match request {
                    Request::Read { .. } => Operation::Read,
                    Request::Write { .. } => Operation::Write,
                };
                Some(Err(self.error(operation, request.offset(), request.len(), source)))
            }
            Err(ring::Failure::Refused) => None,
        }
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        self.exclusion.release(&self.file);
    }
}

impl ClaimedDevice for FileDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn share_claim(&self) {
        self.exclusion.share_claim();
    }

    fn claim_again(&self) -> std::result::Result<(), OpenError> {
        self.exclusion.claim_again(&self.file, &self.path, self.access)
    }

    fn number(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.rdev())
    }

    fn soft_block_bytes(&self) -> u32 {
        let mut bytes = self.topology.logical_block_bytes;
        while bytes < SOFT_BLOCK_MAX && self.size_bytes().is_multiple_of(2 * u64::from(bytes)) {
            bytes *= 2;
        }
        bytes
    }
}

impl BlockDevice for FileDevice {
    fn name(&self) -> String {
        self.shown.clone().unwrap_or_else(|| self.path.display().to_string())
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn refresh_size(&self) -> Result<u64> {
        let mut found = geometry::size_bytes(&self.file, self.kind)
            .map_err(|source| self.error(Operation::Read, self.size_bytes(), 0, source))?;
        if let Some(direct) = &self.direct {
            found -= found % direct.offset_align();
        }
        self.size_bytes.store(found, Ordering::Release);
        Ok(found)
    }

    fn access(&self) -> Access {
        self.access
    }

    fn topology(&self) -> Topology {
        self.topology
    }

    fn may_hang(&self) -> bool {
        self.may_hang
    }

    fn claimed(&self) -> Option<&dyn ClaimedDevice> {
        let is_claimed = self.kind == Kind::BlockDevice && self.exclusion.claim().is_some();
        if is_claimed { Some(self) } else { None }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self, Operation::Read, offset, buf.len() as u64)?;
        self.transfer_in(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        check_write(self, Operation::Write, offset, data.len() as u64)?;
        self.transfer_out(offset, data)
    }

    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.flushes.flush(&self.name(), self.size_bytes(), || {
            self.file.sync_data().map_err(|source| self.error(Operation::Flush, 0, self.size_bytes(), source))
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::Discard, offset, len)?;
        let unit = self.kind.allocation_unit(self.topology);
        let start = offset.next_multiple_of(unit);
        let end = (offset + len) / unit * unit;
        if start >= end {
            return Ok(());
        }
        let claim = self.exclusion.claim();
        let _edges = self.direct.as_ref().map(Direct::share_edges);
        let done = self.zeroing.punch(claim.as_deref().unwrap_or(&self.file), start, end - start);
        done.map_err(|source| self.error(Operation::Discard, offset, len, source))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)?;
        let unit = self.kind.allocation_unit(self.topology);
        let end = offset + len;
        let start_whole = offset.next_multiple_of(unit);
        let end_whole = end / unit * unit;
        if start_whole >= end_whole {
            return zeroing::by_writing(offset, len, |at, zeroes| self.transfer_out(at, zeroes));
        }
        let claim = self.exclusion.claim();
        let file = claim.as_deref().unwrap_or(&self.file);
        let edges = self.direct.as_ref().map(Direct::share_edges);
        let whole = self.zeroing.zero(file, self.kind, start_whole, end_whole - start_whole);
        drop(edges);
        let whole = whole.map_err(|source| self.error(Operation::WriteZeroes, offset, len, source))?;
        let parts = match whole {
            zeroing::Done::Yes => [(offset, start_whole), (end_whole, end)],
            zeroing::Done::No => [(offset, end), (end, end)],
        };
        for (from, to) in parts {
            zeroing::by_writing(from, to - from, |at, zeroes| self.transfer_out(at, zeroes))?;
        }
        Ok(())
    }

    fn prefetch(&self, offset: u64, len: u64) {
        let within = len.min(self.size_bytes().saturating_sub(offset));
        if let (Some(len), None) = (NonZeroU64::new(within), &self.direct) {
            // A hint: there is nothing to do about a kernel that does not take it.
            let _ = fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }

    fn next_data(&self, offset: u64) -> Result<NextData> {
        let found = holes::next_data(&self.file, self.kind, offset, self.size_bytes());
        found.map_err(|source| {
            self.error(Operation::Read, offset, self.size_bytes().saturating_sub(offset), source)
        })
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        for request in &*batch {
            request.check(self)?;
        }
        if batch.len() > 1
            && let Some(result) = self.transfer_together(batch)
        {
            return result;
        }
        // Announced first, the reads of a batch are in progress together while we wait for them one by one. On a
        // cold file this was measured to be as fast as io_uring and four times as fast as the loop alone; threads
        // gained less, and on a cached file cost ten times what they had to do.
        if batch.len() > 1 {
            for request in &*batch {
                if let Request::Read { offset, buf } = request {
                    self.prefetch(*offset, buf.len() as u64);
                }
            }
        }
        batch.iter_mut().try_for_each(|request| self.transfer(request))
    }
}
