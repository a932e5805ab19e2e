//! A device that remembers every change and flush, so that a test can go back to any moment, or crash there.
//!
//! The base is never written to: changes go to an overlay, and each state that is asked for is an overlay of its own.
//! A change is recorded when it is complete. A flush records how many changes had been recorded when it began: those
//! are the ones it promises.
//!
//! Locks: the list of events, class `DEVICE`, never held while the overlay is called. Of overlapping writes at the
//! same time, which have no order, the recorded one may therefore not be the one that the device shows.

use std::sync::Arc;

use undercroft_sync::{Mutex, order};

use super::Crash;
use super::crash::{SECTOR_BYTES, apply_survivors};
use crate::forward_block_device;
use crate::{Access, BlockDevice, Device, Overlay, Result};

/// Something that happened on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were stored.
    Write {
        /// First byte on the device.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// A range was made zero.
    WriteZeroes {
        /// First byte on the device.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// A range was discarded.
    Discard {
        /// First byte on the device.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// A flush returned.
    Flush {
        /// How many events had been recorded when it began; their changes are durable.
        covers: usize,
    },
}

impl Event {
    /// Whether it changed the device's content.
    #[must_use]
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Flush { .. })
    }

    /// Does it again on another device.
    pub(super) fn apply<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        match self {
            Self::Write { offset, data } => device.write_at(*offset, data),
            Self::WriteZeroes { offset, len } => device.write_zeroes(*offset, *len),
            Self::Discard { offset, len } => device.discard(*offset, *len),
            Self::Flush { .. } => Ok(()),
        }
    }
}

/// A device that records what is done to it; see the module's description.
#[derive(Debug)]
pub struct Recorder {
    base: Device,
    live: Overlay,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// A recorder that begins with the content of `base`, which is only read.
    #[must_use]
    pub fn new(base: Device) -> Self {
        Self { live: Overlay::new(base.clone()), base, events: Mutex::new(&order::DEVICE, Vec::new()) }
    }

    /// Everything that has happened so far.
    #[must_use]
    pub fn recording(&self) -> Recording {
        Recording { base: self.base.clone(), events: self.events.lock().clone() }
    }

    fn record(&self, event: Event) {
        self.events.lock().push(event);
    }
}

impl BlockDevice for Recorder {
    forward_block_device!(self.live: size_bytes, topology, read_at);

    fn name(&self) -> String {
        format!("recorder on {}", self.base.name())
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.live.write_at(offset, data)?;
        self.record(Event::Write { offset, data: data.into() });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let covers = self.events.lock().len();
        self.live.flush()?;
        self.record(Event::Flush { covers });
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.live.discard(offset, len)?;
        self.record(Event::Discard { offset, len });
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.live.write_zeroes(offset, len)?;
        self.record(Event::WriteZeroes { offset, len });
        Ok(())
    }
}

/// What happened on a [`Recorder`], and the states this went through.
#[derive(Clone, Debug)]
pub struct Recording {
    base: Device,
    events: Vec<Event>,
}

impl Recording {
    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The device after the first `count` events, when nothing was lost; writable, and independent of all others.
    ///
    /// # Errors
    /// A failure of the base.
    ///
    /// # Panics
    /// If there are fewer events.
    pub fn cut(&self, count: usize) -> Result<Device> {
        let device = Overlay::new(self.base.clone());
        self.events[..count].iter().try_for_each(|event| event.apply(&device))?;
        Ok(Arc::new(device))
    }

    /// The device as a crash after the first `count` events may leave it, as `seed` decides; and what became of the
    /// changes.
    ///
    /// # Errors
    /// A failure of the base.
    ///
    /// # Panics
    /// If there are fewer events.
    pub fn crash(&self, count: usize, seed: u64) -> Result<(Device, Crash)> {
        self.crash_in_sectors(count, seed, SECTOR_BYTES)
    }

    /// The same on a disk that writes `sector_bytes` at once, whole or not at all: a write is torn nowhere else.
    ///
    /// # Errors
    /// A failure of the base.
    ///
    /// # Panics
    /// If there are fewer events.
    pub fn crash_in_sectors(&self, count: usize, seed: u64, sector_bytes: u32) -> Result<(Device, Crash)> {
        let events = &self.events[..count];
        let durable = events
            .iter()
            .filter_map(|event| if let Event::Flush { covers } = event { Some(*covers) } else { None })
            .max()
            .unwrap_or(0);
        let (flushed, unflushed) = events.split_at(durable);
        let device = Overlay::new(self.base.clone());
        flushed.iter().try_for_each(|event| event.apply(&device))?;
        let flushed = flushed.iter().filter(|event| event.is_change()).count();
        let crash = apply_survivors(&device, flushed, unflushed, seed, sector_bytes)?;
        Ok((Arc::new(device), crash))
    }
}
