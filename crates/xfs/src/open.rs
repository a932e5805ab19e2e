//! From a device to a filesystem whose log has been recovered.
//!
//! A [`Probed`] volume may have changes in its log that its blocks do not show yet; only [`Probed::recover`] leads to a
//! [`Ready`] one, and [`Probed::recover_onto_device`] to a [`ReadyToWrite`] one, so "mounted without replay" cannot be
//! written by mistake.

use std::sync::Arc;

use undercroft_block::{Access, Device, LatchedDevice};
use undercroft_journal::StoppableDevice;
use undercroft_vfs::{Error, Result};

use crate::format::{Superblock, superblock};
use crate::log::{self, LogPosition, Recovery};
use crate::options::WriteOptions;
use crate::transaction::{self, Stop};
use crate::unfinished;
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

/// How to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bound of the metadata cache in bytes.
    pub buffer_bytes: usize,
    /// Where the log lies if it lies on a device of its own.
    pub log_device: Option<Device>,
    /// Whether a log that holds changes is replayed. Without it the filesystem is shown as its blocks have it: changes
    /// that the log holds are missing, some perhaps in part.
    pub recover: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { buffer_bytes: 32 << 20, log_device: None, recover: true }
    }
}

/// A device whose superblock is good and whose log has not been looked at.
pub(crate) struct Probed {
    device: Device,
    superblock: Superblock,
    options: OpenOptions,
}

/// A volume that shows what a mount by Linux would show.
pub(crate) struct Ready {
    pub(crate) volume: Volume,
    pub(crate) recovery: Option<Recovery>,
    /// `None` where the log was not looked at.
    pub(crate) log: Option<LogPosition>,
}

impl Probed {
    pub(crate) fn probe(device: Device, options: OpenOptions) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        Ok(Self { device, superblock, options })
    }

    /// Replays the log, if it holds changes, into a layer over the device.
    pub(crate) fn recover(self) -> Result<Ready> {
        let Self { device, superblock, options } = self;
        if !options.recover {
            let volume = Volume::new(device, superblock, options.buffer_bytes);
            return Ok(Ready { volume, recovery: None, log: None });
        }
        let recovered = log::recover(&device, options.log_device.as_ref(), &superblock)?;
        let mut volume = Volume::new(recovered.device, recovered.superblock, options.buffer_bytes);
        volume.remap(recovered.remapped);
        Ok(Ready { volume, recovery: recovered.recovery, log: Some(recovered.position) })
    }
}

/// A volume that shows what its log held, and that takes changes.
pub(crate) struct ReadyToWrite {
    pub(crate) volume: Volume,
    pub(crate) transactions: Transactions,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) log: LogPosition,
}

impl ReadyToWrite {
    /// The filesystem in use. What its log left in the middle of work is finished; unlinked inodes and copies that were
    /// being made are still there.
    ///
    /// # Errors
    /// Corruption; I/O failure; [`Unsupported`](Error::Unsupported) for more interrupted work than is finished at once. The
    /// log has been replayed onto the device then, and is to be replayed again.
    pub(crate) fn finish_recovery(
        self,
        options: WriteOptions,
    ) -> Result<(Arc<Mounted>, Option<Recovery>, LogPosition)> {
        let Self { volume, transactions, recovery, log } = self;
        let volume = Arc::new(Mounted::new(volume));
        volume.set_writer(Writer::new(&volume, transactions, options)?);
        if let Some(recovery) = &recovery
            && !recovery.unfinished.is_empty()
        {
            unfinished::finish(&volume, &recovery.unfinished)?;
            volume.writer()?.transactions.commit_running(&volume)?;
        }
        Ok((volume, recovery, log))
    }
}

impl Probed {
    /// Replays the log, if it holds changes, onto the device, and begins to write the log.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) naming what cannot be written: nothing has been written then.
    /// [`ReadOnly`](Error::ReadOnly) for a device that is. Corruption; I/O failure.
    pub(crate) fn recover_onto_device(self) -> Result<ReadyToWrite> {
        let Self { device, superblock, options } = self;
        // From the first change on: a flush that fails in here fails the opening, and later ones end the changes.
        let latched = Arc::new(LatchedDevice::new(device));
        let device = Arc::clone(&latched) as Device;
        let log_device = options.log_device.map(|log| Arc::new(LatchedDevice::new(log)) as Device);
        if [Some(&device), log_device.as_ref()]
            .into_iter()
            .flatten()
            .any(|it| it.access() == Access::ReadOnly)
        {
            return Err(Error::ReadOnly);
        }
        superblock.check_writable(log::can_write(&superblock))?;
        let replayed = log::recover_onto_device(&device, log_device.as_ref(), &superblock, |recovered| {
            // The log may have brought features that the superblock on the disk does not have yet.
            recovered.superblock.check_writable(log::can_write(&recovered.superblock))
        })?;
        superblock::prepare_for_changes(&*device, &replayed.superblock)?;
        let stop = Arc::<Stop>::default();
        let volume = Volume::for_changes(
            latched,
            replayed.superblock.clone(),
            options.buffer_bytes,
            Arc::clone(&stop),
        );
        let (recovery, position) = (replayed.recovery.clone(), replayed.position);
        let log_device =
            log_device.map(|log| Arc::new(StoppableDevice::new(log, Arc::clone(&stop))) as Device);
        let writer = replayed.begin(volume.device(), log_device.as_ref())?;
        let transactions = transaction::logged(writer, volume.geometry(), stop);
        Ok(ReadyToWrite { volume, transactions, recovery, log: position })
    }
}
