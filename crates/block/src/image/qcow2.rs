//! A qcow2 image as a device. The format is imago's affair; here are ranges, refusals and errors.
//!
//! Compressed clusters, backing files and external data files are read; writes allocate clusters as they need
//! them. Discards give nothing back: imago does that only for a sole owner.
//! Before an image is opened for writing, its reference counts are checked: `counts.rs`.
//! Left out: encryption, and the features that imago does not know; both are refused by name.
//!
//! What a power cut leaves is an image in order, at most with clusters that nothing uses: `ordered.rs` sees to the order of
//! writes. imago decides what has to be written before what at one moment and writes at another; so that no cluster is
//! allocated in between, allocation excludes everything else here. Reads, and writes over clusters that are there, go side
//! by side.
//!
//! Locks: the allocator's, class `DEVICE_STACK`, held exclusively to allocate and to write tables back, shared for
//! everything else. Then imago's own, inside its calls.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use imago::file::File;
use imago::format::PreallocateMode;
use imago::qcow2::Qcow2;
use imago::{DynStorage, FormatAccess, FormatCreateBuilder, Mapping, StorageOpenOptions};
use undercroft_sync::{RwLock, order};

use super::gate::Gate;
use super::ordered::{Order, Ordered};
use super::tables::Tables;
use super::{ImageOptions, counts, header};
use crate::device::{check_range, check_write};
use crate::{Access, BlockDevice, Device, Error, FileDevice, NextData, OpenError, Operation, Result};

/// New clusters that are written in one piece at most.
const RUN_BYTES: u64 = 1 << 20;
/// The size of an image is a multiple of this.
const SECTOR_BYTES: u64 = 512;

/// A qcow2 image, opened.
pub struct Qcow2Device {
    /// Before the files: it writes what it still holds when it is dropped, and only then may locks be given back.
    image: FormatAccess<Ordered>,
    file: Device,
    /// Backing files and external data files: they keep the locks.
    others: Vec<FileDevice>,
    size_bytes: u64,
    cluster_bytes: u64,
    allocating: RwLock<()>,
    /// Whether tables in memory may be newer than those in the file.
    has_changed: AtomicBool,
    /// Remembers a failed flush.
    order: Arc<Order>,
}

impl fmt::Debug for Qcow2Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qcow2Device")
            .field("file", &self.file)
            .field("others", &self.others)
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}

impl Qcow2Device {
    /// Opens the image in a file. Other files that it needs are opened if `options` allow it.
    ///
    /// # Errors
    /// [`OpenError::OtherFileDenied`], or [`OpenError::Image`] if the image is damaged or needs what is not
    /// supported.
    pub fn open(file: FileDevice, options: ImageOptions) -> std::result::Result<Self, OpenError> {
        let path = file.path().to_owned();
        let failed = |source| OpenError::Image { path: path.clone(), format: "qcow2", source };
        header::check(&file).map_err(failed)?;
        let writable = file.access() == Access::ReadWrite;
        let storage_options =
            StorageOpenOptions::new().filename(&path).write(writable).direct(options.file.direct);
        let storage =
            file.duplicate().and_then(|file| File::from_open_file(file, storage_options)).map_err(failed)?;
        let storage: Arc<dyn DynStorage> = Arc::new(storage);
        let order = Order::new(file.name());
        if let Some(finding) = unfit(&file, &storage).map_err(failed)? {
            return Err(OpenError::Inconsistent { path, format: "qcow2", finding: finding.to_string() });
        }
        let mut image = open_image(storage, &order, writable).map_err(failed)?;
        let others = Rc::default();
        let named = if image.requires_external_data_file() {
            Some(image.implicit_external_data_file().cloned().unwrap_or_default())
        } else {
            image.implicit_backing_file().cloned()
        };
        match named {
            Some(named) if !options.allow_backing => return Err(OpenError::OtherFileDenied { path, named }),
            _ => image
                .open_implicit_dependencies_gated(Gate::new(
                    options.file,
                    Rc::clone(&others),
                    Arc::clone(&order),
                ))
                .map_err(failed)?,
        }
        Self::with(image, Arc::new(file), others.take(), order).map_err(failed)
    }

    /// Makes an image of this size, all zeroes, in an empty file. The size is rounded up to whole sectors. The same size gives
    /// the same bytes.
    ///
    /// # Errors
    /// [`OpenError::Image`] if the file is not empty, the size is more than the format takes, or the file cannot be
    /// written.
    pub fn create(file: &FileDevice, size_bytes: u64) -> std::result::Result<(), OpenError> {
        let failed = |source| OpenError::NewImage { path: file.path().to_owned(), format: "qcow2", source };
        let size = size_bytes.checked_next_multiple_of(SECTOR_BYTES).filter(|_| file.size_bytes() == 0);
        let Some(size) = size else {
            let reason =
                if file.size_bytes() == 0 { "the size is too large" } else { "the file is not empty" };
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        };
        let options = StorageOpenOptions::new().filename(file.path()).write(true);
        let storage =
            file.duplicate().and_then(|file| File::from_open_file(file, options)).map_err(failed)?;
        Qcow2::<File>::create_builder(storage).size(size).create().map_err(failed)?;
        file.refresh_size().map_err(|error| failed(io::Error::other(error)))?;
        header::sort_feature_names(file).map_err(failed)
    }

    /// Makes the image larger, and durable; what is new reads as zeroes. It is closed after it: the size of one that is in
    /// use stays as it is. Sizes are rounded up to whole sectors.
    ///
    /// # Errors
    /// The image would become smaller, or more than the format takes; the file cannot be written.
    pub fn grow(self, size_bytes: u64) -> io::Result<()> {
        let size = size_bytes.checked_next_multiple_of(SECTOR_BYTES).filter(|&size| size >= self.size_bytes);
        let Some(size) = size else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a qcow2 image is not made smaller"));
        };
        self.image.resize_grow(size, PreallocateMode::None)?;
        self.image.flush()?;
        self.image.sync()
    }

    /// Opens an image that lies on a device, which is so large that the image need not grow.
    ///
    /// # Errors
    /// The image is damaged, or needs other files or what is not supported.
    #[cfg(feature = "test-devices")]
    pub fn on_device(device: Device) -> io::Result<Self> {
        header::check(&*device)?;
        let storage = super::on_device::DeviceStorage::new(Arc::clone(&device));
        let storage: Arc<dyn DynStorage> = Arc::new(storage);
        let order = Order::new(device.name());
        if let Some(finding) = unfit(&*device, &storage)? {
            return Err(io::Error::new(io::ErrorKind::InvalidData, finding));
        }
        let image = open_image(storage, &order, device.access() == Access::ReadWrite)?;
        if image.requires_external_data_file() || image.implicit_backing_file().is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Self::with(image, device, Vec::new(), order)
    }

    fn with(
        image: Qcow2<Ordered>,
        file: Device,
        others: Vec<FileDevice>,
        order: Arc<Order>,
    ) -> io::Result<Self> {
        let tables = Tables::read(|at, buf| file.read_at(at, buf).map_err(io::Error::other))?;
        let image = FormatAccess::new(image);
        Ok(Self {
            size_bytes: image.size(),
            image,
            file,
            others,
            cluster_bytes: tables.cluster_bytes(),
            allocating: RwLock::new(&order::DEVICE_STACK, ()),
            has_changed: AtomicBool::new(false),
            order,
        })
    }

    fn error(&self, operation: Operation, offset: u64, len: u64, source: io::Error) -> Error {
        Error::Io { operation, offset, len, device: self.name(), source }
    }

    /// Writes as much as lies in clusters that may be written over, from the beginning on. Nothing is allocated
    /// meanwhile.
    fn write_over(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (mapping, len) = self.image.get_mapping(at, (data.len() - done) as u64)?;
            let Mapping::Raw { storage, offset: to, writable: true, .. } = mapping else { break };
            let len = (len as usize).min(data.len() - done);
            if len == 0 {
                break;
            }
            storage.write_over(&data[done..done + len], to)?;
            done += len;
        }
        Ok(done)
    }

    /// Writes at least one byte, into new clusters where there are none. The caller holds the lock exclusively.
    fn allocate(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let start = offset / self.cluster_bytes * self.cluster_bytes;
        let head = offset - start;
        let most = (data.len() as u64).min(RUN_BYTES.max(self.cluster_bytes));
        let whole = most / self.cluster_bytes * self.cluster_bytes;
        if head == 0 && whole > 0 {
            let len = whole as usize;
            return self.write_new(offset, &data[..len]).map(|()| len);
        }
        // Whole clusters are new in one piece, so that imago has nothing to fill up.
        let mut cluster = vec![0; self.cluster_bytes.min(self.size_bytes - start) as usize];
        self.image.read(&mut cluster[..], start)?;
        let len = data.len().min(cluster.len() - head as usize);
        cluster[head as usize..][..len].copy_from_slice(&data[..len]);
        self.write_new(start, &cluster).map(|()| len)
    }

    /// The data is in place before anything points to it.
    fn write_new(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let mapping = self.image.prepare_data_mapping(at, (data.len() - done) as u64, true)?;
            let len = (mapping.length() as usize).min(data.len() - done);
            mapping.storage().write_new(&data[done..done + len], mapping.offset())?;
            self.image.commit_data_mapping(mapping)?;
            done += len;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(cause) = self.order.flushes().cause() {
            return Err(io::Error::other(cause));
        }
        let mut done = 0;
        while done < data.len() {
            let shared = self.allocating.read();
            done += self.write_over(offset + done as u64, &data[done..])?;
            drop(shared);
            if done < data.len() {
                let _exclusive = self.allocating.write();
                self.has_changed.store(true, Ordering::SeqCst);
                done += self.allocate(offset + done as u64, &data[done..])?;
            }
        }
        Ok(())
    }

    fn write_zeroes_as_data(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeroes = vec![0; len.min(RUN_BYTES) as usize];
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let step = (end - at).min(RUN_BYTES);
            self.write(at, &zeroes[..step as usize])?;
            at += step;
        }
        Ok(())
    }

    /// Writes back what has been allocated, and makes everything durable. A failure is remembered before another flush
    /// may write back what this one has not.
    fn make_durable(&self) -> Result<()> {
        let failed = |source| {
            let error = self.error(Operation::Flush, 0, self.size_bytes, source);
            self.order.flushes().fail(error.to_string());
            error
        };
        if self.has_changed.load(Ordering::SeqCst) {
            let _exclusive = self.allocating.write();
            self.order.flushes().check(&self.name(), self.size_bytes)?;
            self.image.flush().map_err(failed)?;
            self.has_changed.store(false, Ordering::SeqCst);
        }
        self.image.sync().map_err(failed)
    }
}

/// Why the image must not be written to, if it is to be. What imago refuses anyway is refused first.
fn unfit(file: &dyn BlockDevice, storage: &Arc<dyn DynStorage>) -> io::Result<Option<counts::Finding>> {
    if file.access() == Access::ReadOnly {
        return Ok(None);
    }
    drop(open_image(Arc::clone(storage), &Order::new(file.name()), false)?);
    counts::check(file, counts::Limits::USUAL)
}

fn open_image(
    storage: Arc<dyn DynStorage>,
    order: &Arc<Order>,
    writable: bool,
) -> io::Result<Qcow2<Ordered>> {
    Qcow2::open_image(Ordered::new(storage, order, true), writable)
}

impl BlockDevice for Qcow2Device {
    fn name(&self) -> String {
        self.file.name()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn access(&self) -> Access {
        self.file.access()
    }

    fn may_hang(&self) -> bool {
        self.file.may_hang() || self.others.iter().any(BlockDevice::may_hang)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        check_range(self, Operation::Read, offset, len)?;
        let _shared = self.allocating.read();
        self.image.read(buf, offset).map_err(|source| self.error(Operation::Read, offset, len, source))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let len = data.len() as u64;
        check_write(self, Operation::Write, offset, len)?;
        self.write(offset, data).map_err(|source| self.error(Operation::Write, offset, len, source))
    }

    fn flush(&self) -> Result<()> {
        if self.access() == Access::ReadOnly {
            return Ok(());
        }
        self.order.flushes().check(&self.name(), self.size_bytes)?;
        self.make_durable()
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)?;
        let failed = |source| self.error(Operation::WriteZeroes, offset, len, source);
        if let Some(cause) = self.order.flushes().cause() {
            return Err(failed(io::Error::other(cause)));
        }
        let exclusive = self.allocating.write();
        self.has_changed.store(true, Ordering::SeqCst);
        let zeroed = self.image.write_zeroes(offset, len);
        drop(exclusive);
        match zeroed {
            // The second version of the format has no clusters of zeroes.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_zeroes_as_data(offset, len)
            }
            done => done,
        }
        .map_err(failed)
    }

    fn next_data(&self, offset: u64) -> Result<NextData> {
        let _shared = self.allocating.read();
        let mut at = offset;
        while at < self.size_bytes {
            let rest = self.size_bytes - at;
            let mapped = self.image.get_mapping(at, rest);
            let (mapping, len) = mapped.map_err(|source| self.error(Operation::Read, at, rest, source))?;
            // A length of zero leads nowhere: what cannot be told is data.
            match (mapping, len.min(rest)) {
                (Mapping::Zero { .. }, len) if len > 0 => at += len,
                (Mapping::Eof { .. }, _) => return Ok(NextData::Nowhere),
                (_, 0) => return Ok(NextData::At(at..self.size_bytes)),
                (_, len) => return Ok(NextData::At(at..at + len)),
            }
        }
        Ok(NextData::Nowhere)
    }
}
