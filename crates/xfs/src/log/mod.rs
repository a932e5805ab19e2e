//! The log: what it holds is replayed, in memory for reading and onto the device for writing, and transactions are
//! written to it.
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
//! | [`parts`] | directory blocks that are logged in several buffers |
//! | [`cancelled`] | buffers that were freed |
//! | [`intents`] | work that was interrupted |
//! | [`remap`] | changes of files' maps among it, carried out |
//! | [`target`], [`sealing`] | the layer in memory, and positions and checksums in it |
//! | [`counters`] | free space and inodes, recounted |
//! | [`freed_by_recovery`] | space that Linux gives back after the replay |
//! | [`report`] | what was done |
//! | [`write`](self::write), [`items`] | writing it: records, and the items of checkpoints |
//! | `survey` | for tests: where the records that count lie |
//!
//! A recovery reads the device and changes an [`Overlay`] over it. Opening for writing copies the overlay to the device
//! when all of it is there. One thread recovers, before the filesystem is used, so it takes no locks. All passes are loops
//! bounded by the log's length. What they remember is bounded by constants, whatever the log says, and a log that needs more
//! is refused:
//!
//! - transactions without a commit: 256 MiB with all that describes them; a committed one while it is replayed is one of
//!   these;
//! - interrupted work: 64 MiB;
//! - freed buffers: 4 million, 256 MiB;
//! - parts of directory blocks, and the directories that the log names beside them: 1 million each, 64 MiB;
//! - the buffers of one position: 1 million, 64 MiB;
//! - changes in memory: 64 MiB, and the index of those in a temporary file: 256 MiB;
//! - unlinked inodes: 1 million, 16 MiB;
//! - extents of files whose maps change: 1 million, 64 MiB.
//!
//! Recovery follows Linux in the ends of the log, the order of changes, and the treatment of blocks that are newer than
//! the log. The work that Linux does after the replay, in transactions of its own, is done as far as a reader can see
//! it: files have the maps that interrupted work was to give them, and the counters of the superblock are as if all of
//! it were done. The trees of the groups stay as the log has them, and [`Recovery`] lists what was interrupted.
//! Interrupted changes of extended attributes and exchanges of ranges are refused.

mod area;
mod buffer;
mod cancelled;
mod counters;
mod ends;
mod format;
mod freed_by_recovery;
mod head;
mod icreate;
mod inode;
mod intents;
mod items;
mod parts;
mod record;
mod remap;
mod replay;
mod report;
mod sealing;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod survey;
mod target;
#[cfg(test)]
mod tests;
mod transactions;
mod walk;
mod write;

use std::sync::Arc;

use undercroft_block::{BlockDevice, Device, Overlay};
use undercroft_vfs::{Error, Result};
use uuid::Uuid;

use self::area::LogArea;
use self::ends::LogEnds;
use self::freed_by_recovery::FreedByRecovery;
use self::target::Target;
use crate::ag::{Agf, Agi};
use crate::error::corrupt;
use crate::format::{LogIncompat, Superblock};
use crate::inode::Remapped;
use crate::volume::Volume;

pub(crate) use self::counters::store_anew as store_counters;
pub(crate) use self::format::Lsn;
#[cfg(test)]
pub(crate) use self::freed_by_recovery::unfinished_copies as copies;
pub(crate) use self::intents::{MapChange, OwnerChange, OwnerChangeKind, Unfinished, UsersChange};
pub(crate) use self::items::{size_of_buffer, size_of_cancelled, size_of_runs};
pub use self::report::{LogPosition, Recovery};
pub(crate) use self::write::{LogWriter, can_write};

/// Changes that are kept in memory, in bytes; more of them lie in a temporary file.
const IN_MEMORY_BYTES: u64 = 64 << 20;

/// Metadata in memory while what becomes free is counted, in bytes.
const CACHE_BYTES: usize = 4 << 20;

/// Bytes that are written at once when a replay goes to the device.
const WRITE_BYTES: u64 = 1 << 20;

/// A device whose content is that of the filesystem with all of its log replayed.
pub(crate) struct Recovered {
    /// The device itself where the filesystem was unmounted.
    pub(crate) device: Device,
    /// As it is after the replay.
    pub(crate) superblock: Superblock,
    /// Inodes whose maps interrupted work was to change.
    pub(crate) remapped: Remapped,
    /// `None` where the log was clean.
    pub(crate) recovery: Option<Recovery>,
    /// Which part of the log was replayed.
    pub(crate) position: LogPosition,
    /// The layers that hold what was replayed, the lower first; none where the device itself shows it.
    layers: Vec<Arc<Overlay>>,
}

/// A log whose changes are all in place, durably, on the device.
pub(crate) struct Replayed {
    area: LogArea,
    ends: LogEnds,
    /// As it is after the replay.
    pub(crate) superblock: Superblock,
    /// `None` where the log was clean.
    pub(crate) recovery: Option<Recovery>,
    /// Which part of the log was replayed.
    pub(crate) position: LogPosition,
}

impl Replayed {
    /// Says that the filesystem was unmounted, in a record of a filesystem with this UUID; durable on return.
    ///
    /// # Errors
    /// `Unsupported` for a log that cannot be written; `Io`.
    pub(crate) fn unmount_as(self, device: &Device, uuid: Uuid) -> Result<()> {
        let area = self.area.on(device).with_uuid(uuid);
        LogWriter::begin(area, &self.ends, &self.superblock, true)?.unmount()
    }

    /// Begins to write the log, on other devices over the same bytes: the filesystem's, and the log's if it has one of its
    /// own. If work is left, the first transaction finishes it.
    ///
    /// # Errors
    /// `Unsupported` for a log that cannot be written; `Io`.
    pub(crate) fn begin(self, device: &Device, log_device: Option<&Device>) -> Result<LogWriter> {
        let is_finished = self.recovery.as_ref().is_none_or(|recovery| recovery.unfinished.is_empty());
        let area = self.area.on(log_device.unwrap_or(device));
        let writer = LogWriter::begin(area, &self.ends, &self.superblock, is_finished)?;
        Ok(if log_device.is_some() { writer.beside(device) } else { writer })
    }
}

/// Refuses a log that ends before a position that a header of a group names: it is an old copy, or has lost records. What it
/// would replay may be older than what lies there, and a later recovery would skip changes of this log.
fn check_newest(recovered: &Recovered, ends: &LogEnds) -> Result<()> {
    let volume = Volume::new(Arc::clone(&recovered.device), recovered.superblock.clone(), CACHE_BYTES);
    let mut newest = Lsn(0);
    for ag in volume.geometry().ags() {
        let (agf, agi) = (Agf::read(&volume, ag)?, Agi::read(&volume, ag)?);
        for lsn in [agf.raw().agf_lsn, agi.raw().agi_lsn] {
            // All ones stand for none.
            newest = newest.max(Some(Lsn(lsn.get())).filter(|lsn| *lsn != Lsn::NULL).unwrap_or(newest));
        }
    }
    let head = LogWriter::head_behind(ends);
    if newest <= head {
        return Ok(());
    }
    let detail =
        format!("ends at {head}, and metadata was changed at {newest}: run xfs_repair on the filesystem");
    Err(corrupt("log", detail))
}

/// Replays the log of a filesystem onto its device, where `accept` agrees with what the recovery found; nothing has been
/// written otherwise. The log itself stays as it is: a crash before it goes on leads to the same replay.
///
/// # Errors
/// As for [`recover`], and what `accept` returns. `Corrupt` also for a log that is older than the metadata.
pub(crate) fn recover_onto_device(
    device: &Device,
    log_device: Option<&Device>,
    superblock: &Superblock,
    accept: impl FnOnce(&Recovered) -> Result<()>,
) -> Result<Replayed> {
    let area = LogArea::locate(device, log_device, superblock)?;
    let ends = LogEnds::find(&area)?;
    if log_device.is_some() && ends.next == Lsn(0) {
        // Records name the filesystem; zeroes may be anything.
        return Err(corrupt("log", "has no record, so the device may be another one than the log's"));
    }
    let recovered = recover_between(device, &area, ends, superblock)?;
    accept(&recovered)?;
    check_newest(&recovered, &ends)?;
    let Recovered { recovery, position, layers, .. } = recovered;
    for layer in &layers {
        write_through(layer, device)?;
    }
    if !layers.is_empty() {
        device.flush()?;
        // Not as they will be when what was interrupted is finished, but as they are.
        let superblock = Superblock::read(&**device)?;
        counters::store_anew(device, &superblock)?;
        device.flush()?;
    }
    let superblock = Superblock::read(&**device)?;
    Ok(Replayed { area, ends, superblock, recovery, position })
}

/// Writes to a device what a layer over it has of it, no block in two requests: a device that loses power may then keep
/// each block whole.
fn write_through(layer: &Overlay, device: &Device) -> Result<()> {
    let mut bytes = Vec::new();
    for range in layer.changed_ranges() {
        let mut at = range.start;
        while at < range.end {
            let now = range.end.min((at / WRITE_BYTES + 1) * WRITE_BYTES) - at;
            bytes.resize(now as usize, 0);
            layer.read_at(at, &mut bytes)?;
            device.write_at(at, &bytes)?;
            at += now;
        }
    }
    Ok(())
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
    recover_between(device, &area, LogEnds::find(&area)?, superblock)
}

/// The same for a log whose ends were found.
fn recover_between(
    device: &Device,
    area: &LogArea,
    ends: LogEnds,
    superblock: &Superblock,
) -> Result<Recovered> {
    let position = LogPosition { tail_block: ends.tail, head_block: ends.head };
    if ends.is_clean() {
        if !ends.unmounted && superblock.features().has_lazy_counters() {
            // A log of zeroes does not say that the counters were brought up to date.
            let (overlay, layers) = Target::new(device, superblock, IN_MEMORY_BYTES).into_device();
            let volume = Volume::new(Arc::clone(&overlay), superblock.clone(), CACHE_BYTES);
            let superblock = counters::count(&volume, FreedByRecovery::default())?;
            let remapped = Remapped::default();
            return Ok(Recovered { device: overlay, superblock, remapped, recovery: None, position, layers });
        }
        let (device, superblock) = (Arc::clone(device), superblock.clone());
        let remapped = Remapped::default();
        let layers = Vec::new();
        return Ok(Recovered { device, superblock, remapped, recovery: None, position, layers });
    }
    let known = LogIncompat::XATTRS;
    let unknown = superblock.features().log_incompat().difference(known);
    if !unknown.is_empty() {
        let what = format!("a log with the unknown features {:#x}", unknown.bits());
        return Err(Error::Unsupported(what.into()));
    }
    let mut target = Target::new(device, superblock, IN_MEMORY_BYTES);
    let mut recovery = replay::replay(area, ends, &mut target)?;
    recovery.torn_at = ends.torn_at;
    let (overlay, layers) = target.into_device();
    // A log may make the filesystem grow.
    let superblock = Superblock::read(&*overlay)?;
    let mut volume = Volume::new(Arc::clone(&overlay), superblock, CACHE_BYTES);
    (recovery.unlinked, recovery.broken_lists) = counters::unlinked(&volume)?;
    volume.remap(remap::remapped(&volume, &recovery.unfinished)?);
    let given = match freed_by_recovery::freed_by_recovery(&volume, &recovery) {
        Ok(given) => given,
        // Only counters depend on it; the check will say what is wrong.
        Err(Error::Corrupt(_)) => FreedByRecovery::default(),
        Err(error) => return Err(error),
    };
    let superblock = counters::count(&volume, given)?;
    let remapped = volume.into_remapped();
    Ok(Recovered { device: overlay, superblock, remapped, recovery: Some(recovery), position, layers })
}
