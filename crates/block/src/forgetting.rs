//! A device whose discarded ranges are known, for images that cannot give space back in place: a copy leaves them out.
//!
//! Locks: the ranges, class `DEVICE`, never held across I/O.

use std::collections::BTreeMap;
use std::ops::Range;

use undercroft_sync::{Mutex, order};

use crate::device::check_write;
use crate::{BlockDevice, Device, NextData, Operation, Request, Result, forward_block_device};

/// Another device, of which what was discarded and not written since counts as zeroes.
#[derive(Debug)]
pub struct ForgettingDevice {
    base: Device,
    /// Starts and ends of ranges that are apart from each other.
    forgotten: Mutex<BTreeMap<u64, u64>>,
}

impl ForgettingDevice {
    /// `base`, of which nothing is discarded.
    #[must_use]
    pub fn new(base: Device) -> Self {
        Self { base, forgotten: Mutex::new(&order::DEVICE, BTreeMap::new()) }
    }

    /// Bytes that are discarded.
    #[must_use]
    pub fn forgotten_bytes(&self) -> u64 {
        self.forgotten.lock().iter().map(|(start, end)| end - start).sum()
    }

    /// What is written is not discarded any more.
    fn remember(&self, range: &Range<u64>) {
        let mut forgotten = self.forgotten.lock();
        take_out(&mut forgotten, range);
    }

    /// What of a range is discarded.
    fn forgotten_of(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let forgotten = self.forgotten.lock();
        let first = forgotten.range(..=range.start).next_back().map_or(range.start, |(&start, _)| start);
        let parts = forgotten.range(first..range.end.max(first));
        parts
            .map(|(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|part| !part.is_empty())
            .collect()
    }

    fn read_around(&self, offset: u64, buf: &mut [u8]) {
        for part in self.forgotten_of(&(offset..offset + buf.len() as u64)) {
            buf[(part.start - offset) as usize..(part.end - offset) as usize].fill(0);
        }
    }
}

fn take_out(ranges: &mut BTreeMap<u64, u64>, taken: &Range<u64>) {
    while let Some((start, end)) = ranges
        .range(..taken.end)
        .next_back()
        .map(|(&start, &end)| (start, end))
        .filter(|&(_, end)| end > taken.start)
    {
        ranges.remove(&start);
        if end > taken.end {
            ranges.insert(taken.end, end);
        }
        if start < taken.start {
            ranges.insert(start, taken.start);
        }
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl BlockDevice for ForgettingDevice {
    forward_block_device!(self.base: name, size_bytes, refresh_size, access, topology, may_hang, claimed);
    forward_block_device!(self.base: flush, prefetch);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.base.read_at(offset, buf)?;
        self.read_around(offset, buf);
        Ok(())
    }

    /// What is forgotten of a range that is written in part reads as zeroes still, so the range is remembered first.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.base.write_at(offset, data)?;
        self.remember(&(offset..offset + data.len() as u64));
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_write(&*self.base, Operation::Discard, offset, len)?;
        if len > 0 {
            let mut forgotten = self.forgotten.lock();
            take_out(&mut forgotten, &(offset..offset + len));
            forgotten.insert(offset, offset + len);
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.discard(offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<NextData> {
        let mut at = offset;
        loop {
            let range = match self.base.next_data(at)? {
                NextData::Unknown => at..self.size_bytes(),
                NextData::Nowhere => return Ok(NextData::Nowhere),
                NextData::At(range) => range,
            };
            let forgotten = self.forgotten_of(&range);
            match forgotten.first() {
                Some(first) if first.start == range.start => at = first.end,
                Some(first) => return Ok(NextData::At(range.start..first.start)),
                None if range.is_empty() => return Ok(NextData::Nowhere),
                None => return Ok(NextData::At(range)),
            }
        }
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        self.base.run_batch(batch)?;
        for request in batch {
            match request {
                Request::Read { offset, buf } => self.read_around(*offset, buf),
                Request::Write { offset, data } => self.remember(&(*offset..*offset + data.len() as u64)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn what_is_discarded_reads_as_zeroes_until_it_is_written() {
        let base = Arc::new(MemoryDevice::new(1000));
        base.write_at(0, &[1; 1000]).unwrap();
        let device = ForgettingDevice::new(base);
        device.discard(100, 300).unwrap();
        device.discard(300, 300).unwrap();
        device.write_at(200, &[2; 50]).unwrap();
        device.write_zeroes(900, 100).unwrap();
        assert_eq!(device.forgotten_bytes(), 550);
        let mut read = [9; 1000];
        device.read_at(0, &mut read).unwrap();
        let of = |at: usize| match at {
            200..250 => 2,
            100..600 | 900.. => 0,
            _ => 1,
        };
        assert!(read.iter().enumerate().all(|(at, &byte)| byte == of(at)));
        let found: Vec<_> =
            [0, 99, 100, 220, 250, 950].iter().map(|&at| device.next_data(at).unwrap()).collect();
        let next = [
            NextData::At(0..100),
            NextData::At(99..100),
            NextData::At(200..250),
            NextData::At(220..250),
            NextData::At(600..900),
            NextData::Nowhere,
        ];
        assert_eq!(found, next);
        let mut read = [9; 30];
        device
            .run_batch(&mut [
                Request::Read { offset: 590, buf: &mut read },
                Request::Write { offset: 300, data: &[3; 10] },
            ])
            .unwrap();
        assert_eq!((&read[..10], &read[10..], device.forgotten_bytes()), (&[0; 10][..], &[1; 20][..], 540));
        assert!(device.discard(900, 101).is_err());
    }
}
