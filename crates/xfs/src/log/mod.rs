//! The log: what it holds is replayed in memory, so that a filesystem that was not unmounted can be read.
//!
//! | module | what |
//! | --- | --- |
//! | [`format`] | the bytes of records and operations |
//! | [`area`] | where the log lies, and its blocks by number |
//! | [`head`], [`ends`] | which part of it counts |
//! | [`record`], [`walk`] | its records, one by one |
//! | [`transactions`] | transactions, put together from records |
//! | [`replay`] | the two passes over them |
//! | [`buffer`], [`inode`], [`icreate`] | changes by kind |
//! | [`cancelled`] | buffers that were freed |
//! | [`intents`] | work that was interrupted |
//! | [`target`], [`sealing`] | the layer in memory, and positions and checksums in it |
//! | [`counters`] | free space and inodes, counted anew |
//! | [`settled`] | space that Linux gives back after the replay |
//! | [`report`] | what was done |
//!
//! The device is only read; its changes lie in an [`Overlay`] over it. Recovery is called by the opener of a filesystem,
//! alone, so it takes no locks. All passes are loops bounded by the log's length, and what they remember is bounded by
//! it too; the changes themselves lie in a temporary file when the log is large.
//!
//! Linux is followed in what counts: the ends of the log, the order of changes, and what is newer than the log. What it
//! does after the replay in transactions of its own is not carried out: interrupted work is reported ([`Recovery`]), and
//! the counters of the superblock are as if it were done.

mod area;
mod buffer;
mod cancelled;
mod counters;
mod ends;
mod format;
mod head;
mod icreate;
mod inode;
mod intents;
mod record;
mod replay;
mod report;
mod sealing;
mod settled;
mod target;
#[cfg(test)]
mod tests;
mod transactions;
mod walk;

use std::sync::Arc;

use undercroft_block::{Device, Overlay, OverlayStore};
use undercroft_vfs::{Error, Result};

use self::area::LogArea;
use self::ends::LogEnds;
use self::settled::GivenBack;
use self::target::Target;
use crate::format::{LogIncompat, Superblock};
use crate::volume::Volume;

pub use self::report::Recovery;

/// The largest part of a log, in bytes, whose changes are kept in memory.
const IN_MEMORY_BYTES: u64 = 64 << 20;

/// Metadata in memory while what becomes free is counted, in bytes.
const CACHE_BYTES: usize = 4 << 20;

/// A device whose content is that of the filesystem with all of its log replayed.
pub(crate) struct Recovered {
    /// The device itself where the log was clean.
    pub(crate) device: Device,
    /// As it is after the replay.
    pub(crate) superblock: Superblock,
    /// `None` where the log was clean.
    pub(crate) recovery: Option<Recovery>,
}

/// Replays the log of a filesystem into a layer in memory over its device. `log_device` is where the log lies when the
/// filesystem says that it lies elsewhere.
///
/// # Errors
/// [`Error::Unsupported`] for a log with something unknown, or when the log's device is missing or needless;
/// [`Error::Corrupt`]; [`Error::Io`].
pub(crate) fn recover(
    device: &Device,
    log_device: Option<&Device>,
    superblock: &Superblock,
) -> Result<Recovered> {
    let area = LogArea::locate(device, log_device, superblock)?;
    let ends = LogEnds::find(&area)?;
    if ends.is_clean() {
        let (device, superblock) = (Arc::clone(device), superblock.clone());
        return Ok(Recovered { device, superblock, recovery: None });
    }
    let known = LogIncompat::XATTRS;
    let unknown = superblock.features().log_incompat().difference(known);
    if !unknown.is_empty() {
        let what = format!("a log with the unknown features {:#x}", unknown.bits());
        return Err(Error::Unsupported(what.into()));
    }
    let overlay: Device = Arc::new(overlay(device, area.bytes_between(ends.tail, ends.head))?);
    let mut target = Target::new(Arc::clone(&overlay), superblock);
    let mut recovery = replay::replay(&area, ends, &mut target)?;
    recovery.torn_at = ends.torn_at;
    drop(target);
    // A log may make the filesystem grow.
    let superblock = Superblock::read(&*overlay)?;
    recovery.unlinked = counters::unlinked(&overlay, &superblock)?;
    let volume = Volume::new(Arc::clone(&overlay), superblock.clone(), CACHE_BYTES);
    let given = match settled::given_back(&volume, &recovery) {
        Ok(given) => given,
        // Only counters depend on it; the check will say what is wrong.
        Err(Error::Corrupt(_)) => GivenBack::default(),
        Err(error) => return Err(error),
    };
    let superblock = counters::count(&overlay, &superblock, given)?;
    Ok(Recovered { device: overlay, superblock, recovery: Some(recovery) })
}

fn overlay(device: &Device, log_bytes: u64) -> Result<Overlay> {
    let device = Arc::clone(device);
    if log_bytes <= IN_MEMORY_BYTES {
        return Ok(Overlay::new(device));
    }
    let store = OverlayStore::TempFile(std::env::temp_dir());
    Overlay::with_store(device, &store).map_err(|error| {
        Error::Unsupported(
            format!("a log of {log_bytes} bytes, whose changes need a temporary file: {error}").into(),
        )
    })
}
