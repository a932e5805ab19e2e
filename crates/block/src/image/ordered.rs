//! The files of a qcow2 image, whose writes reach the disk in an order that a power cut cannot break.
//!
//! imago writes its tables in the right order and lets the disk mix them: after a power cut an entry of an L2 table may be
//! there and the reference count of its cluster not, and the cluster is given away a second time. It also writes entries
//! of the L1 table and of the table of reference counts at once, while the counts of what they point to are still in its
//! cache. Both are put right below it, where its writes come by.
//!
//! What always holds:
//! - a write to the image's tables begins when everything written before is durable ([`Order::barrier`]), so of all such
//!   writes only the last one is ever in doubt;
//! - data that goes into a new cluster is written when the tables written before are durable: the cluster may have been
//!   freed by them. What is written over data that is there waits for nothing;
//! - before an entry points to a cluster of tables, the count of that cluster is on the disk ([`Tables::count`]).
//!
//! A barrier that fails is the last: no table is written after it. The counters tell when there is nothing to wait for.
//!
//! `unsafe`: imago's trait has its reads and writes of aligned buffers marked so; they are passed on as they come.
//!
//! Locks: the list of files, class `DEVICE`, not held while a file is called.

#![expect(unsafe_code, reason = "imago's trait for storage has unsafe methods, which are passed on")]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use imago::{DynStorage, Storage, StorageExt};
use undercroft_sync::{Mutex, order};

use super::tables::Tables;
use crate::{Error, FlushLatch};

/// What has been written to the files of an image, and how much of it is durable.
pub(super) struct Order {
    name: String,
    files: Mutex<Vec<Arc<dyn DynStorage>>>,
    /// Writes that are complete, and how many of the first of them are durable.
    written: AtomicU64,
    durable: AtomicU64,
    /// As many as were complete after the last write to tables.
    tables: AtomicU64,
    flushes: FlushLatch,
}

impl Order {
    /// For the image `name`.
    pub(super) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            files: Mutex::new(&order::DEVICE, Vec::new()),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            flushes: FlushLatch::new(),
        })
    }

    /// The one place where a failed flush of the image is remembered.
    pub(super) fn flushes(&self) -> &FlushLatch {
        &self.flushes
    }

    /// Makes all writes durable that have returned.
    ///
    /// # Errors
    /// The system's; the first failure ever after.
    pub(super) fn barrier(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::SeqCst);
        if self.durable.load(Ordering::SeqCst) >= written {
            // What failed before stays failed.
            return self.flushes.cause().map_or(Ok(()), |cause| Err(io::Error::other(cause)));
        }
        let files = self.files.lock().clone();
        let sync = || files.iter().map(|file| &**file).try_for_each(DynStorage::dyn_sync);
        let failed = |source| Error::Io {
            operation: crate::Operation::Flush,
            offset: 0,
            len: 0,
            device: self.name.clone(),
            source,
        };
        self.flushes.flush(&self.name, 0, || sync().map_err(failed)).map_err(io::Error::other)?;
        self.durable.fetch_max(written, Ordering::SeqCst);
        Ok(())
    }

    fn wrote(&self) {
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    fn wrote_tables(&self) {
        let written = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        self.tables.fetch_max(written, Ordering::SeqCst);
    }

    fn has_tables_in_doubt(&self) -> bool {
        self.tables.load(Ordering::SeqCst) > self.durable.load(Ordering::SeqCst)
    }
}

/// A file of an image, as imago sees it.
pub(super) struct Ordered {
    inner: Arc<dyn DynStorage>,
    order: Arc<Order>,
    /// Whether it holds the image's tables: other files have data only.
    has_tables: bool,
}

impl Ordered {
    /// A file that is written in the order of its image.
    pub(super) fn new(inner: Arc<dyn DynStorage>, order: &Arc<Order>, has_tables: bool) -> Self {
        order.files.lock().push(Arc::clone(&inner));
        Self { inner, order: Arc::clone(order), has_tables }
    }

    /// Writes data over data.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write_over(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let written = self.inner.write(data, offset);
        self.order.wrote();
        written
    }

    /// Writes data where nothing points to yet.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write_new(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.order.has_tables_in_doubt() {
            self.order.barrier()?;
        }
        self.write_over(data, offset)
    }

    /// Anything that imago writes by itself.
    fn write_tables(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.order.barrier()?;
        let written = write();
        // Also when it failed: a part of it may have been written.
        self.order.wrote_tables();
        written
    }

    /// Sees to the counts of clusters that these bytes begin to point to.
    fn count_what_is_new(&self, bytes: &IoVector<'_>, offset: u64) -> io::Result<()> {
        if !self.has_tables {
            return Ok(());
        }
        let read = |at: u64, buf: &mut [u8]| self.inner.read(buf, at);
        let tables = Tables::read(read)?;
        if !tables.concerns(offset, bytes.len()) {
            return Ok(());
        }
        let mut new = vec![0; bytes.len() as usize];
        bytes.copy_into_slice(&mut new);
        for count in tables.missing_counts(read, offset, &new)? {
            self.write_tables(|| self.inner.write(&count.bytes[..], count.offset))?;
        }
        Ok(())
    }
}

impl Storage for Ordered {
    fn mem_align(&self) -> usize {
        self.inner.dyn_mem_align()
    }

    fn req_align(&self) -> usize {
        self.inner.dyn_req_align()
    }

    fn zero_align(&self) -> usize {
        self.inner.dyn_zero_align()
    }

    fn discard_align(&self) -> usize {
        self.inner.dyn_discard_align()
    }

    fn size(&self) -> io::Result<u64> {
        self.inner.dyn_size()
    }

    fn resolve_relative_path<P: AsRef<Path>>(&self, relative: P) -> io::Result<PathBuf> {
        self.inner.dyn_resolve_relative_path(relative.as_ref())
    }

    fn get_filename(&self) -> Option<PathBuf> {
        self.inner.dyn_get_filename()
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        // SAFETY: as promised by the caller; alignments are the inner file's.
        unsafe { self.inner.dyn_pure_readv(bufv, offset) }
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        self.count_what_is_new(&bufv, offset)?;
        // SAFETY: as promised by the caller; alignments are the inner file's.
        self.write_tables(|| unsafe { self.inner.dyn_pure_writev(bufv, offset) })
    }

    unsafe fn pure_write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: as promised by the caller; alignments are the inner file's.
        self.write_tables(|| unsafe { self.inner.dyn_pure_write_zeroes(offset, length) })
    }

    unsafe fn pure_write_allocated_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: as promised by the caller; alignments are the inner file's.
        self.write_tables(|| unsafe { self.inner.dyn_pure_write_allocated_zeroes(offset, length) })
    }

    unsafe fn pure_discard(&self, offset: u64, length: u64) -> io::Result<()> {
        // SAFETY: as promised by the caller; alignments are the inner file's.
        self.write_tables(|| unsafe { self.inner.dyn_pure_discard(offset, length) })
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.dyn_flush()
    }

    fn sync(&self) -> io::Result<()> {
        self.order.barrier()
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        // SAFETY: as promised by the caller.
        unsafe { self.inner.dyn_invalidate_cache() }
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        self.inner.dyn_get_storage_helper()
    }

    fn resize(&self, new_size: u64, prealloc_mode: PreallocateMode) -> io::Result<()> {
        self.write_tables(|| self.inner.dyn_resize(new_size, prealloc_mode))
    }
}

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Display for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.order.name)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Order")
            .field("name", &self.name)
            .field("flushes", &self.flushes)
            .finish_non_exhaustive()
    }
}
