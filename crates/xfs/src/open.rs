//! From a device to a filesystem whose log has been recovered.
//!
//! A [`Probed`] volume may have changes in its log that its blocks do not show yet; only [`Probed::recover`] leads to a
//! [`Ready`] one, so "mounted without replay" cannot be written by mistake.

use undercroft_block::Device;
use undercroft_vfs::Result;

use crate::format::Superblock;
use crate::log::{self, LogPosition, Recovery};
use crate::volume::Volume;

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
