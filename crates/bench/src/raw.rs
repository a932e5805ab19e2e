//! A device without a filesystem on it: an array, or the limit of what a filesystem or an array can reach there.

use std::sync::Arc;

use undercroft_block::{BlockDevice, Device, MemoryDevice};

use crate::directory::Content;
use crate::script::{Overwrite, Read, Rows, Script, Sequential, Write, fill, own_part};
use crate::sizes::{ROW_BYTES, SMALL_WRITE_BYTES, WRITE_BYTES};
use crate::{BenchError, Job, Workload};

/// Far more than what any measurement writes; memory is taken for what is written only.
const DEVICE_BYTES: u64 = 1 << 50;
/// The device is cut into so many parts, of which each worker has one for itself.
const PARTS: u64 = 2048;

/// A device.
pub(crate) struct RawDevice(pub(crate) Device);

/// The bytes of a device from some place on.
struct Part<'d> {
    device: &'d dyn BlockDevice,
    begin: u64,
}

impl RawDevice {
    /// One in memory.
    pub(crate) fn in_memory() -> Self {
        Self(Arc::new(MemoryDevice::new(DEVICE_BYTES)))
    }

    /// Makes what must be there before anything starts.
    pub(crate) fn prepare(&self, job: &Job) -> Result<(), BenchError> {
        let shared_bytes = job.file_bytes.get();
        let filled_bytes = match job.workload {
            Workload::Overwrite | Workload::RaidRead | Workload::RaidWriteRows => shared_bytes,
            Workload::RaidSequential => {
                own_part(shared_bytes, job.threads.get()) * u64::from(job.threads.get())
            }
            // What was never written to is read faster.
            Workload::RaidRebuild => self.0.size_bytes(),
            _ => return Ok(()),
        };
        fill(&self.part(0), filled_bytes)
    }

    /// The part of the worker with this index.
    pub(crate) fn script(&self, job: &Job, index: u32) -> Result<Box<dyn Script + '_>, BenchError> {
        let shared_bytes = job.file_bytes.get();
        match job.workload {
            Workload::Overwrite => Ok(Box::new(Overwrite::new(self.part(0), shared_bytes, index))),
            Workload::Write => Ok(Box::new(Write::new(self.part(index), index, WRITE_BYTES))),
            Workload::WriteSmall => Ok(Box::new(Write::new(self.part(index), index, SMALL_WRITE_BYTES))),
            Workload::RaidRead => Ok(Box::new(Read::new(&*self.0, shared_bytes, index))),
            Workload::RaidWriteRows => Ok(Box::new(Rows::new(&*self.0, shared_bytes, index))),
            Workload::RaidSequential => {
                Ok(Box::new(Sequential::new(&*self.0, own_part(shared_bytes, job.threads.get()), index)))
            }
            workload => Err(BenchError::NoFiles { workload }),
        }
    }

    fn part(&self, index: u32) -> Part<'_> {
        let part_bytes = self.0.size_bytes() / PARTS / ROW_BYTES * ROW_BYTES;
        Part { device: &*self.0, begin: u64::from(index) * part_bytes }
    }
}

impl Content for Part<'_> {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BenchError> {
        self.device.write_at(self.begin + offset, bytes).map_err(BenchError::Device)
    }

    fn sync(&self) -> Result<(), BenchError> {
        self.device.flush().map_err(BenchError::Device)
    }
}
