//! A device whose small writes are put together, and which is flushed by its owner, when all is written.
//!
//! Small files lie behind one another and are written one by one: what continues the last write waits for more, up to
//! [`GATHERED_BYTES`]. Whatever else is asked of the device, but for a hint to prefetch, finds written what was asked for before.
//! What could not be written stays, and is tried again by the next request that needs it written: no failure is lost with a
//! caller that does not tell it.
//!
//! Locks: what is gathered (`gathered_writes`) is held while it is written. Threads do not ask for overlapping ranges at one
//! time: the filesystem's own locks keep them from it.

use undercroft_block::{
    BlockDevice, Device, NextData, Operation, Request, Result, check_write, forward_block_device,
};
use undercroft_sync::{Mutex, order};

/// Bytes that are gathered at most. A write of more than a quarter of it goes to the device as it is.
const GATHERED_BYTES: usize = 256 << 10;

/// A device with writes that it has not been asked for yet.
#[derive(Debug)]
pub(super) struct Gathered {
    base: Device,
    pending: Mutex<Pending>,
}

/// Bytes that belong together, and where.
#[derive(Debug, Default)]
struct Pending {
    offset: u64,
    bytes: Vec<u8>,
}

impl Gathered {
    pub(super) fn new(base: Device) -> Self {
        Self { base, pending: Mutex::new(&order::GATHERED_WRITES, Pending::default()) }
    }

    /// Writes what is gathered.
    pub(super) fn write_out(&self) -> Result<()> {
        self.pending.lock().write_to(&*self.base)
    }

    /// Writes what is gathered of a range.
    fn write_out_of(&self, offset: u64, len: u64) -> Result<()> {
        let mut pending = self.pending.lock();
        let end = pending.offset + pending.bytes.len() as u64;
        if offset < end && pending.offset < offset.saturating_add(len) {
            return pending.write_to(&*self.base);
        }
        Ok(())
    }
}

impl Pending {
    fn write_to(&mut self, base: &dyn BlockDevice) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        base.write_at(self.offset, &self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl BlockDevice for Gathered {
    forward_block_device!(self.base: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
    forward_block_device!(self.base: prefetch);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.write_out_of(offset, buf.len() as u64)?;
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        if data.len() > GATHERED_BYTES / 4 {
            self.write_out_of(offset, data.len() as u64)?;
            return self.base.write_at(offset, data);
        }
        check_write(self, Operation::Write, offset, data.len() as u64)?;
        let mut pending = self.pending.lock();
        let continues = offset == pending.offset + pending.bytes.len() as u64;
        if !continues || pending.bytes.len() + data.len() > GATHERED_BYTES {
            pending.write_to(&*self.base)?;
            pending.offset = offset;
        }
        pending.bytes.extend_from_slice(data);
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.write_out_of(offset, len)?;
        self.base.write_zeroes(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.write_out_of(offset, len)?;
        self.base.discard(offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<NextData> {
        self.write_out()?;
        self.base.next_data(offset)
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        for request in &*batch {
            self.write_out_of(request.offset(), request.len())?;
        }
        self.base.run_batch(batch)
    }

    fn flush(&self) -> Result<()> {
        self.write_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{Access, MemoryDevice};

    use super::*;

    const SIZE: u64 = 1 << 20;

    /// A request, and a byte that the device has after it.
    type Later<'a> = (&'a str, &'a dyn Fn() -> Result<()>, u8);

    fn gathered() -> (Device, Gathered) {
        let base: Device = Arc::new(MemoryDevice::new(SIZE));
        (Arc::clone(&base), Gathered::new(base))
    }

    fn byte(device: &dyn BlockDevice, offset: u64) -> u8 {
        let mut byte = [0];
        device.read_at(offset, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn small_writes_wait_until_they_are_asked_for() {
        let (base, device) = gathered();
        device.write_at(1000, &[1; 1000]).unwrap();
        device.write_at(2000, &[2; 1000]).unwrap();
        assert_eq!((byte(&*base, 1000), byte(&*base, 2000)), (0, 0));
        assert_eq!(byte(&device, 999), 0);
        assert_eq!(byte(&*base, 1000), 0, "what is beside it was read");
        assert_eq!(byte(&device, 2999), 2);
        assert_eq!((byte(&*base, 1000), byte(&*base, 2000)), (1, 2));
        device.write_at(3000, &[3; 1000]).unwrap();
        device.write_at(10_000, &[4; 1000]).unwrap();
        assert_eq!((byte(&*base, 3000), byte(&*base, 10_000)), (3, 0), "only what continues it is added");
        device.write_out().unwrap();
        assert_eq!(byte(&*base, 10_999), 4);
    }

    #[test]
    fn as_much_is_gathered_as_there_is_room_for() {
        let (base, device) = gathered();
        let piece = vec![1; GATHERED_BYTES / 4];
        for at in 0..5 {
            device.write_at((at * piece.len()) as u64, &piece).unwrap();
        }
        assert_eq!(byte(&*base, GATHERED_BYTES as u64 - 1), 1);
        assert_eq!(byte(&*base, GATHERED_BYTES as u64), 0);
    }

    #[test]
    fn later_requests_do_not_overtake_what_is_gathered() {
        let (base, device) = gathered();
        let large = vec![2; GATHERED_BYTES];
        let later: [Later<'_>; 4] = [
            ("a large write", &|| device.write_at(0, &large), 2),
            ("a batch", &|| device.run_batch(&mut [Request::Write { offset: 0, data: &large }]), 2),
            ("zeroes", &|| device.write_zeroes(0, SIZE), 0),
            ("discarded", &|| device.discard(0, SIZE), 0),
        ];
        for (what, request, expected) in later {
            device.write_at(4096, &[1; 4096]).unwrap();
            request().unwrap();
            device.write_out().unwrap();
            assert_eq!(byte(&*base, 5000), expected, "{what}");
        }
        device.write_at(4096, &[1; 4096]).unwrap();
        device.next_data(0).unwrap();
        assert_eq!(byte(&*base, 5000), 1);
        device.write_at(4096, &[3; 4096]).unwrap();
        device.flush().unwrap();
        assert_eq!(byte(&*base, 5000), 3);
    }

    #[test]
    fn what_could_not_be_written_is_tried_again() {
        let base: Device = Arc::new(MemoryDevice::from_bytes(vec![0; SIZE as usize], Access::ReadOnly));
        let device = Gathered::new(base);
        device.pending.lock().bytes = vec![1; 100];
        for _ in 0..2 {
            assert!(device.write_out().is_err() && device.flush().is_err());
            assert!(device.read_at(50, &mut [0]).is_err());
        }
    }

    #[test]
    fn writes_outside_of_the_device_are_refused_at_once() {
        let (_, device) = gathered();
        assert!(device.write_at(SIZE - 10, &[1; 11]).is_err());
        assert!(device.write_at(u64::MAX, &[1; 11]).is_err());
    }
}
