//! A device as imago sees it, so that tests can cut the power below an image.
//!
//! The device has a size of its own, and does not grow. `unsafe`: see `ordered.rs`.

#![expect(unsafe_code, reason = "imago's trait for storage has unsafe methods")]

use std::fmt;
use std::io;

use imago::Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::drivers::CommonStorageHelper;

use crate::Device;

/// See the module's description.
#[derive(Debug)]
pub(super) struct DeviceStorage {
    device: Device,
    helper: CommonStorageHelper,
}

impl DeviceStorage {
    pub(super) fn new(device: Device) -> Self {
        Self { device, helper: CommonStorageHelper::default() }
    }
}

impl Storage for DeviceStorage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.device.size_bytes())
    }

    unsafe fn pure_readv(&self, mut bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let mut bytes = vec![0; bufv.len() as usize];
        self.device.read_at(offset, &mut bytes).map_err(io::Error::other)?;
        bufv.copy_from_slice(&bytes);
        Ok(())
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        let mut bytes = vec![0; bufv.len() as usize];
        bufv.copy_into_slice(&mut bytes);
        self.device.write_at(offset, &bytes).map_err(io::Error::other)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.device.flush().map_err(io::Error::other)
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }
}

impl fmt::Display for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device.name())
    }
}
