//! Copy-on-write: a writable device over one that stays as it is.
//!
//! Writes go to a store of chunks beside the base, in memory or in a temporary file; what has not been written is
//! read from the base. So a read-only image can be mounted for writing, an image can be recovered on trial, and a
//! test can go back to where it started. Nothing written survives the overlay: a flush has nothing to make durable.
//!
//! A read of a range that was never written costs one look into a bitmap (`touched.rs`) and is passed on to the
//! base as it is. Where the bitmap cannot exclude a write, the store is asked chunk by chunk.
//!
//! Locks: those of the store, class `DEVICE`; none is held while the base is called.
//! States of a chunk: unwritten, then data or zeroes. It never goes back to unwritten.
//!
//! Left out: a compact form of long zeroed ranges; each of their chunks has an entry in memory.

mod store;
mod touched;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use self::store::{Place, Store};
use self::touched::Touched;
use crate::device::{check_range, check_write};
use crate::forward_block_device;
use crate::span::{Span, spans};
use crate::{
    Access, BlockDevice, ClaimedDevice, Device, Error, NextData, OpenError, Operation, Request, Result,
};

/// The unit of copying in bytes: the block size of most filesystems.
const CHUNK_BYTES: usize = 4096;

/// Where an overlay keeps what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayStore {
    /// In memory.
    Memory,
    /// In a sparse file without a name in this directory, which should not be one in memory. The space is free
    /// again when the overlay is gone, also after a crash.
    TempFile(PathBuf),
}

fn temp_file(directory: &Path) -> std::result::Result<File, OpenError> {
    tempfile::tempfile_in(directory).map_err(|source| OpenError::System {
        action: "make a temporary file in",
        path: directory.to_owned(),
        source,
    })
}

/// A writable view of a device that itself is only read.
pub struct Overlay {
    base: Device,
    size_bytes: u64,
    touched: Touched,
    store: Store,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Overlay {
    /// An overlay that keeps what is written in memory.
    #[must_use]
    pub fn new(base: Device) -> Self {
        Self::over(base, Store::new(CHUNK_BYTES, None))
    }

    /// An overlay that keeps what is written where `store` says.
    ///
    /// # Errors
    /// [`OpenError::System`] if the temporary file cannot be made.
    pub fn with_store(base: Device, store: &OverlayStore) -> std::result::Result<Self, OpenError> {
        let store = match store {
            OverlayStore::Memory => Store::new(CHUNK_BYTES, None),
            OverlayStore::TempFile(directory) => Store::new(CHUNK_BYTES, Some(temp_file(directory)?)),
        };
        Ok(Self::over(base, store))
    }

    fn over(base: Device, store: Store) -> Self {
        let size_bytes = base.size_bytes();
        Self { size_bytes, touched: Touched::new(size_bytes, CHUNK_BYTES as u64), store, base }
    }

    /// How much has been written to, in whole chunks of 4096 bytes; zeroed chunks, which take no space, included.
    #[must_use]
    pub fn changed_bytes(&self) -> u64 {
        self.store.chunks() * CHUNK_BYTES as u64
    }

    /// Where it has been written to: ranges of bytes in order, of whole chunks of 4096 bytes as far as the device has
    /// them.
    #[must_use]
    pub fn changed_ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for chunk in self.store.numbers() {
            let start = chunk * CHUNK_BYTES as u64;
            let end = (start + CHUNK_BYTES as u64).min(self.size_bytes);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// Reads a range that may have been written to in part. What lies together in the base or in the file is read
    /// in one request.
    fn read_mixed(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut run = Run { place: Place::Copied, bytes: 0..0 };
        let mut at = 0;
        for Span { chunk, start, len } in spans(offset, buf.len() as u64, CHUNK_BYTES) {
            let place = self.store.read_in_memory(chunk, start, &mut buf[at..at + len]);
            if place != run.place {
                self.read_run(offset, buf, run)?;
                run = Run { place, bytes: at..at };
            }
            at += len;
            run.bytes.end = at;
        }
        self.read_run(offset, buf, run)
    }

    fn read_run(&self, offset: u64, buf: &mut [u8], Run { place, bytes }: Run) -> Result<()> {
        let at = offset + bytes.start as u64;
        let buf = &mut buf[bytes];
        match place {
            Place::Copied => Ok(()),
            Place::Base => self.base.read_at(at, buf),
            Place::File => self
                .store
                .read_in_file(at, buf)
                .map_err(|source| self.error(Operation::Read, at, buf.len() as u64, source)),
        }
    }

    /// What a chunk must be filled with before a part of it is stored: the base's content, unless the chunk is
    /// there already or all of it is about to be stored.
    ///
    /// The base is read without a lock held. Should another thread store the chunk meanwhile, the store keeps that
    /// content and forgets this one.
    fn filler(&self, span: Span) -> Result<Option<Box<[u8]>>> {
        let chunk_start = span.chunk * CHUNK_BYTES as u64;
        // The last chunk may be cut off by the end of the device.
        let exists = (self.size_bytes - chunk_start).min(CHUNK_BYTES as u64) as usize;
        if span.len == exists || self.store.contains(span.chunk) {
            return Ok(None);
        }
        let mut bytes = vec![0; CHUNK_BYTES].into_boxed_slice();
        self.base.read_at(chunk_start, &mut bytes[..exists])?;
        Ok(Some(bytes))
    }

    fn error(&self, operation: Operation, offset: u64, len: u64, source: io::Error) -> Error {
        Error::Io { operation, offset, len, device: self.name(), source }
    }
}

/// Neighbouring bytes of a read that lie in the same place.
struct Run {
    place: Place,
    /// Counted from the start of the buffer.
    bytes: Range<usize>,
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl BlockDevice for Overlay {
    forward_block_device!(self.base: topology, may_hang, prefetch);

    fn name(&self) -> String {
        format!("overlay on {}", self.base.name())
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// It stays as large as it was made.
    fn refresh_size(&self) -> Result<u64> {
        Ok(self.size_bytes)
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    /// What is written here does not reach it.
    fn claimed(&self) -> Option<&dyn ClaimedDevice> {
        None
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        check_range(self, Operation::Read, offset, len)?;
        if self.touched.is_marked(offset, len) {
            self.read_mixed(offset, buf)
        } else {
            self.base.read_at(offset, buf)
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let len = data.len() as u64;
        check_write(self, Operation::Write, offset, len)?;
        // Marked first: a reader that sees the mark early finds nothing in the store, one that missed it would be
        // wrong.
        self.touched.mark(offset, len);
        let mut rest = data;
        for span in spans(offset, len, CHUNK_BYTES) {
            let (part, tail) = rest.split_at(span.len);
            let filler = self.filler(span)?;
            let stored = self.store.write(span.chunk, span.start, part, filler);
            stored.map_err(|source| self.error(Operation::Write, offset, len, source))?;
            rest = tail;
        }
        Ok(())
    }

    /// Promises nothing: what is written to an overlay is not meant to last.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Gives the space of what was written back; the base's content does not come back.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::Discard, offset, len)?;
        let chunk_bytes = CHUNK_BYTES as u64;
        self.store.zero_known(offset.div_ceil(chunk_bytes)..(offset + len) / chunk_bytes);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        static ZEROES: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];
        check_write(self, Operation::WriteZeroes, offset, len)?;
        self.touched.mark(offset, len);
        for span in spans(offset, len, CHUNK_BYTES) {
            if span.len == CHUNK_BYTES {
                self.store.zero(span.chunk);
            } else {
                let filler = self.filler(span)?;
                let stored = self.store.write(span.chunk, span.start, &ZEROES[..span.len], filler);
                stored.map_err(|source| self.error(Operation::WriteZeroes, offset, len, source))?;
            }
        }
        Ok(())
    }

    /// Not told: the store does not keep which of its chunks are zero.
    fn next_data(&self, _offset: u64) -> Result<NextData> {
        Ok(NextData::Unknown)
    }

    /// Reads of untouched ranges go to the base as one batch.
    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let mut of_base = Vec::new();
        for request in &*batch {
            request.check(self)?;
        }
        for request in batch {
            let marked = self.touched.is_marked(request.offset(), request.len());
            match request {
                Request::Read { offset, buf } if marked => self.read_mixed(*offset, buf)?,
                Request::Read { offset, buf } => of_base.push(Request::Read { offset: *offset, buf }),
                Request::Write { offset, data } => self.write_at(*offset, data)?,
            }
        }
        self.base.run_batch(&mut of_base)
    }
}
