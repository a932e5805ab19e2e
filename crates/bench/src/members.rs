//! The devices that an array under test is made of.

use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::thread::set_current_timer_slack;
use undercroft_block::forward_block_device;
use undercroft_block::{BlockDevice, Device, FileDevice, FileOptions, MemoryDevice, Result};

use crate::BenchError;

/// What kind of devices they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Files in memory instead of memory of this process.
    pub files: bool,
    /// How long each request sleeps before it is served.
    pub delay_us: u32,
    /// The requester polls for that time, and lets other threads run between two looks, instead of sleeping.
    pub polled: bool,
}

/// A device on which requests take time.
#[derive(Debug)]
struct Slow {
    base: Device,
    delay: Duration,
    polled: bool,
}

impl Members {
    /// A new one, all zero.
    pub(crate) fn make(self, size_bytes: u64) -> std::result::Result<Device, BenchError> {
        let base: Device =
            if self.files { in_file(size_bytes)? } else { Arc::new(MemoryDevice::new(size_bytes)) };
        Ok(match self.delay_us {
            0 => base,
            us => Arc::new(Slow { base, delay: Duration::from_micros(us.into()), polled: self.polled }),
        })
    }
}

/// A file without a name, in memory, which goes with the device.
fn in_file(size_bytes: u64) -> std::result::Result<Device, BenchError> {
    let refused = |error: &dyn std::fmt::Display| BenchError::MemoryFile(error.to_string());
    let file = memfd_create("undercroft-bench", MemfdFlags::CLOEXEC).map_err(|error| refused(&error))?;
    ftruncate(&file, size_bytes).map_err(|error| refused(&error))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let device = FileDevice::open(path, FileOptions::read_write()).map_err(|error| refused(&error))?;
    Ok(Arc::new(device))
}

impl Slow {
    /// Lets the delay pass, and not much more.
    fn wait(&self) {
        thread_local! {
            /// The kernel may wake a thread 50 us late to save wake-ups, unless the thread asks it not to.
            static PUNCTUAL: bool = set_current_timer_slack(Some(NonZeroU64::MIN)).is_ok();
        }
        if !self.polled {
            return PUNCTUAL.with(|_| thread::sleep(self.delay));
        }
        let begun = Instant::now();
        while begun.elapsed() < self.delay {
            thread::yield_now();
        }
    }
}

impl BlockDevice for Slow {
    forward_block_device!(self.base: name, size_bytes, access, topology);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.wait();
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.wait();
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.wait();
        self.base.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_holds_what_it_is_given_and_begins_with_zeroes() {
        for (files, delay_us, polled) in
            [(false, 0, false), (true, 0, false), (false, 200, false), (true, 200, true)]
        {
            let device = Members { files, delay_us, polled }.make(1 << 20).unwrap();
            assert_eq!(device.size_bytes(), 1 << 20);
            let begun = Instant::now();
            device.write_at(4096, &[7; 4096]).unwrap();
            assert!(begun.elapsed() >= Duration::from_micros(delay_us.into()));
            let mut found = [9; 8192];
            device.read_at(0, &mut found).unwrap();
            assert_eq!((&found[..4096], &found[4096..]), (&[0; 4096][..], &[7; 4096][..]));
        }
    }
}
