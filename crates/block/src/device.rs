//! The device contract: what every block device promises, and what its users must not assume.
//!
//! Everything above (md, the metadata cache, the filesystems) talks to a [`Device`], everything below (files,
//! memory, partitions, overlays, test devices) is one. A device is used by any number of threads through `&self` and
//! knows nothing of what is stored on it. Locks: a device takes locks of the classes from `DEVICE_STACK` on, which
//! come last in the lock order, so a caller may hold any lock but never needs one. A device made of others may
//! hold `DEVICE_STACK` while it calls them, never `DEVICE`. The suite behind the feature `conformance` checks these
//! promises on any device.
//!
//! Left out: becoming smaller while open, zones, and requests that complete after the call has returned.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use crate::{Error, OpenError, Operation, Result};

/// A device that several owners share.
pub type Device = Arc<dyn BlockDevice>;

/// Whether a device takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every write is refused with [`Error::ReadOnly`].
    ReadOnly,
    /// Writes are taken.
    ReadWrite,
}

/// Sizes in bytes that the device would like its users to respect; powers of two, except the optimal ones.
/// They are advice: a request of any other size or alignment is carried out as well, at a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Smallest unit of addressing below us (a disk's logical sector).
    pub logical_block_bytes: u32,
    /// Smallest unit written without reading first (a disk's physical sector).
    pub physical_block_bytes: u32,
    /// Best size of small I/O: a RAID chunk; 0 when unknown.
    pub minimum_io_bytes: u32,
    /// Best size of large I/O: a full RAID stripe; 0 when unknown.
    pub optimal_io_bytes: u32,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            minimum_io_bytes: 0,
            optimal_io_bytes: 0,
        }
    }
}

/// Where a device holds data, as far as it knows without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextData {
    /// It keeps no account of that.
    Unknown,
    /// From the offset on everything reads as zeroes.
    Nowhere,
    /// In this range, which is not empty, it may hold anything; what lies between the offset and the range reads as
    /// zeroes.
    At(Range<u64>),
}

/// One request of a batch.
#[derive(Debug)]
pub enum Request<'a> {
    /// Fill `buf` from `offset`.
    Read {
        /// First byte on the device.
        offset: u64,
        /// Where the bytes go.
        buf: &'a mut [u8],
    },
    /// Store `data` at `offset`.
    Write {
        /// First byte on the device.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
}

/// A block device of the kernel that was claimed for writing.
pub trait ClaimedDevice: Send + Sync {
    /// Where it was opened.
    fn path(&self) -> &Path;

    /// Gives up the kernel's exclusive claim, so that the caller can give it to a mount of its own. Locks between
    /// programs stay.
    fn share_claim(&self);

    /// Takes the claim again that was [shared](Self::share_claim), where no mount came of it.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when something else has claimed the device meanwhile; [`OpenError::System`].
    fn claim_again(&self) -> std::result::Result<(), OpenError>;

    /// The number of the device; 0 for a file.
    ///
    /// # Errors
    /// The system's.
    fn number(&self) -> io::Result<u64>;

    /// The size of a block as the kernel reads and writes them for this device when nothing else is asked for, in bytes.
    fn soft_block_bytes(&self) -> u32;
}

/// A byte-addressed device that any number of threads may use at once.
///
/// - **Ranges.** Any byte range is allowed, aligned or not; the device does what alignment it needs. A range
///   that does not lie within [`size_bytes`](Self::size_bytes) is refused with [`Error::OutOfRange`], by the
///   device, before anything is transferred. Offsets come from untrusted disks, so this is not a panic. An empty
///   range transfers nothing and is allowed up to and including the end of the device.
/// - **Completion.** A call returns when its bytes are transferred. A read after a returned write sees it.
///   Overlapping concurrent requests have no order; each byte is old or new. Requests that do not overlap do not
///   touch each other's bytes, however close they lie: a device that must write larger units than it was asked
///   to keeps its neighbours' bytes itself.
/// - **Durability.** A completed write may be lost in a crash until [`flush`](Self::flush) has returned `Ok`
///   for a call that began after the write returned. Unflushed writes survive in any subset.
/// - **Refusals.** On a read-only device every write, discard and write of zeroes is refused with
///   [`Error::ReadOnly`], whatever its range; a flush is not.
/// - **Errors.** After a failed write the content of its range is old, new or torn, byte by byte. After a failed
///   read the content of the buffer is unspecified. The device does not retry and does not remember, but for
///   flushes: after one has failed, it, those that overlap it and all later ones fail with the first cause, for none
///   of them can promise what was written before. [`FlushLatch`](crate::FlushLatch) does that.
///
/// A device made of another one passes on every method, also those with a default that would do: `may_hang` and
/// `next_data` are about the device below. [`forward_block_device!`](crate::forward_block_device) writes what is passed
/// on, and `#[deny(clippy::missing_trait_methods)]` on the `impl` finds what is missing.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// A name for messages: a path, or what the device is.
    fn name(&self) -> String;

    /// Size in bytes. It changes only when it is [looked at again](Self::refresh_size), and becomes smaller only where a
    /// file has been cut.
    fn size_bytes(&self) -> u64;

    /// Looks again how large the device is, which may have been made larger since it was opened, and answers with the
    /// size that it has from now on. Devices that cannot become larger while they are open answer with the size they
    /// have. The caller must serialize calls.
    ///
    /// # Errors
    /// [`Error::Io`] when the size cannot be found out.
    fn refresh_size(&self) -> Result<u64> {
        Ok(self.size_bytes())
    }

    /// Whether writes are taken.
    fn access(&self) -> Access;

    /// What sizes the device prefers.
    fn topology(&self) -> Topology {
        Topology::default()
    }

    /// Whether a call may go unanswered for as long as a server likes: what lies on a network, or in another program.
    /// Devices that end every call, be it with an error, answer `false`.
    fn may_hang(&self) -> bool {
        false
    }

    /// The block device of the kernel that this is, if it is all of it and was claimed for writing: a mount can be given
    /// the claim ([`ClaimedDevice::share_claim`]). What lies on another device, or is a part of one, answers `None`.
    fn claimed(&self) -> Option<&dyn ClaimedDevice> {
        None
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], or [`Error::Io`] when not all bytes could be read.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Stores `data` at `offset`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`], or [`Error::Io`].
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Makes every write that returned before this call durable.
    ///
    /// # Errors
    /// [`Error::Io`]; what was written since the last flush is then in doubt. A read-only device answers `Ok`.
    fn flush(&self) -> Result<()>;

    /// Tells the device that a range's content no longer matters. Reads of it give anything until it is
    /// written again.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at). A device that cannot discard answers `Ok`.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(self, Operation::Discard, offset, len)
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at).
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        static ZEROES: [u8; 64 * 1024] = [0; 64 * 1024];
        check_write(self, Operation::WriteZeroes, offset, len)?;
        let mut at = offset;
        while at < offset + len {
            let step = (offset + len - at).min(ZEROES.len() as u64);
            self.write_at(at, &ZEROES[..step as usize])?;
            at += step;
        }
        Ok(())
    }

    /// Says that a range will probably be read soon. A hint: it never fails, transfers nothing to the caller
    /// and may be ignored, also when the range lies outside the device.
    fn prefetch(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Where the first bytes from `offset` on are that may be something else than zero.
    ///
    /// # Errors
    /// [`Error::Io`], if the device's own account of it cannot be read.
    fn next_data(&self, offset: u64) -> Result<NextData> {
        let _ = offset;
        Ok(NextData::Unknown)
    }

    /// Carries out all requests, as many at once as the device can, in no particular order. Requests of one
    /// batch do not overlap. Returns when none of them is in progress any more, also after a failure.
    ///
    /// # Errors
    /// The first failure that was noticed; the other requests may or may not have been carried out.
    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        for request in batch {
            match request {
                Request::Read { offset, buf } => self.read_at(*offset, buf)?,
                Request::Write { offset, data } => self.write_at(*offset, data)?,
            }
        }
        Ok(())
    }
}

/// Refuses a range that does not lie within the device.
///
/// # Errors
/// [`Error::OutOfRange`].
pub fn check_range<D: BlockDevice + ?Sized>(
    device: &D,
    operation: Operation,
    offset: u64,
    len: u64,
) -> Result<()> {
    let size = device.size_bytes();
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::OutOfRange { operation, offset, len, size, device: device.name() }),
    }
}

/// Refuses a write to a read-only device or outside the device.
///
/// # Errors
/// [`Error::ReadOnly`], [`Error::OutOfRange`].
pub fn check_write<D: BlockDevice + ?Sized>(
    device: &D,
    operation: Operation,
    offset: u64,
    len: u64,
) -> Result<()> {
    if device.access() == Access::ReadOnly {
        return Err(Error::ReadOnly { operation, device: device.name() });
    }
    check_range(device, operation, offset, len)
}

impl Request<'_> {
    /// First byte on the device.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match self {
            Self::Read { offset, .. } | Self::Write { offset, .. } => *offset,
        }
    }

    /// Number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty request is as good as any other")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Read { buf, .. } => buf.len() as u64,
            Self::Write { data, .. } => data.len() as u64,
        }
    }

    /// Refuses a request that `device` must not carry out.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`].
    pub fn check<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        match self {
            Self::Read { .. } => check_range(device, Operation::Read, self.offset(), self.len()),
            Self::Write { .. } => check_write(device, Operation::Write, self.offset(), self.len()),
        }
    }
}
