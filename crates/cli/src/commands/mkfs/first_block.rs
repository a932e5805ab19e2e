//! A device whose first block is written last.
//!
//! What is filled in place goes to no log, so until it is complete it must not look like a filesystem. The first 4 KiB,
//! which hold the primary superblock of every format made here, are kept in memory, with zeroes in their place on the
//! device, until everything else is durable.

use undercroft_block::{BlockDevice, Device, MemoryDevice, NextData, Request, Result, forward_block_device};

const FIRST_BYTES: u64 = 4096;

/// A device without its first block, and that block.
#[derive(Debug)]
pub(super) struct FirstBlockLast {
    base: Device,
    first: MemoryDevice,
}

impl FirstBlockLast {
    /// Takes the first block away from a device, durably.
    pub(super) fn new(base: Device) -> Result<Self> {
        let len = FIRST_BYTES.min(base.size_bytes());
        let first = MemoryDevice::new(len);
        copy_first(&*base, &first, len)?;
        base.write_zeroes(0, len)?;
        base.flush()?;
        Ok(Self { base, first })
    }

    /// Makes everything durable, and then the first block.
    pub(super) fn finish(&self) -> Result<()> {
        self.base.flush()?;
        copy_first(&self.first, &*self.base, self.first.size_bytes())?;
        self.base.flush()
    }

    /// How many bytes of a range lie in the first block.
    fn of_first(&self, offset: u64, len: u64) -> u64 {
        self.first.size_bytes().saturating_sub(offset).min(len)
    }

    /// Does something to both parts of a range, each if it is there.
    fn each(
        &self,
        offset: u64,
        len: u64,
        what: impl Fn(&dyn BlockDevice, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let of_first = self.of_first(offset, len);
        if of_first > 0 {
            what(&self.first, offset, of_first)?;
        }
        if of_first == 0 || of_first < len {
            what(&*self.base, offset + of_first, len - of_first)?;
        }
        Ok(())
    }
}

fn copy_first(from: &dyn BlockDevice, to: &dyn BlockDevice, len: u64) -> Result<()> {
    let mut bytes = vec![0; len as usize];
    from.read_at(0, &mut bytes)?;
    to.write_at(0, &bytes)
}

#[deny(clippy::missing_trait_methods)]
impl BlockDevice for FirstBlockLast {
    forward_block_device!(self.base: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
    forward_block_device!(self.base: prefetch, flush);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (first, rest) = buf.split_at_mut(self.of_first(offset, buf.len() as u64) as usize);
        if !first.is_empty() {
            self.first.read_at(offset, first)?;
        }
        if first.is_empty() || !rest.is_empty() {
            self.base.read_at(offset + first.len() as u64, rest)?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.each(offset, data.len() as u64, |device, at, len| {
            let from = (at - offset) as usize;
            device.write_at(at, &data[from..from + len as usize])
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.each(offset, len, |device, at, len| device.write_zeroes(at, len))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.each(offset, len, |device, at, len| device.discard(at, len))
    }

    fn next_data(&self, offset: u64) -> Result<NextData> {
        if offset < self.first.size_bytes() { Ok(NextData::Unknown) } else { self.base.next_data(offset) }
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        if batch.iter().all(|request| self.of_first(request.offset(), request.len()) == 0) {
            return self.base.run_batch(batch);
        }
        for request in batch {
            match request {
                Request::Read { offset, buf } => self.read_at(*offset, buf)?,
                Request::Write { offset, data } => self.write_at(*offset, data)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_first_block_is_written_last() {
        let base: Device = Arc::new(MemoryDevice::new(1 << 16));
        base.write_at(0, &[1; 1 << 16]).unwrap();
        let device = FirstBlockLast::new(Arc::clone(&base)).unwrap();
        let on_base = || {
            let mut bytes = vec![0; 3 * 4096];
            base.read_at(0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(on_base(), [[0; 4096], [1; 4096], [1; 4096]].concat());
        device.write_at(1024, &[2; 4096]).unwrap();
        device.write_zeroes(4000, 200).unwrap();
        device.run_batch(&mut [Request::Write { offset: 0, data: &[3; 10] }]).unwrap();
        let mut expected = vec![1; 3 * 4096];
        expected[1024..5120].fill(2);
        expected[4000..4200].fill(0);
        expected[..10].fill(3);
        let mut seen = vec![0; 3 * 4096];
        device.read_at(0, &mut seen).unwrap();
        assert!(seen == expected);
        assert_eq!(on_base()[..4096], [0; 4096]);
        assert!(on_base()[4096..] == expected[4096..]);
        device.finish().unwrap();
        assert!(on_base() == expected);
    }
}
