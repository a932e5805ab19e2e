//! Copying a device to another one: only what it holds, and holes stay holes.
//!
//! A thread reads ahead in batches, and the calling thread writes them in order, each batch with several requests in
//! progress. What reads as zeroes is left out, or zeroed where the target may hold something else.

use std::sync::mpsc::sync_channel;
use std::thread;

use crate::{BlockDevice, Error, NextData, Operation, Request, Result};

/// Bytes of one request.
const PIECE_BYTES: usize = 1 << 20;
/// Requests in a batch.
const PIECES: usize = 8;
/// Batches that are read and not written yet.
const BATCHES_AHEAD: usize = 2;
/// Runs of zeroes are found in units of this.
const GRAIN_BYTES: usize = 64 << 10;

/// How much was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that were read: what the source could not tell to be zeroes.
    pub read_bytes: u64,
    /// Bytes that were written, zeroes left out.
    pub written_bytes: u64,
}

/// What was read, in order, each piece with its offset.
type Batch = Vec<(u64, Vec<u8>)>;

/// Copies all of `from` to the beginning of `to`, which must be as large, and makes it durable. `is_zeroed` says that the
/// target reads as zeroes everywhere, so that zeroes need not be written. `progress` hears up to which byte the copy has come.
///
/// # Errors
/// The first failure of either device; [`Error::OutOfRange`] where the target is too small.
pub fn copy<S: BlockDevice + ?Sized, T: BlockDevice + ?Sized>(
    from: &S,
    to: &T,
    is_zeroed: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Copied> {
    let size = from.size_bytes();
    crate::check_write(to, Operation::Write, 0, size)?;
    let mut writer = Writer { to, is_zeroed, at: 0, copied: Copied::default() };
    thread::scope(|scope| {
        let (full, batches) = sync_channel::<Result<Batch>>(BATCHES_AHEAD);
        scope.spawn(move || {
            let mut reader = Reader { from, at: 0, size };
            loop {
                let batch = reader.next_batch();
                let is_last = !matches!(&batch, Ok(batch) if !batch.is_empty());
                // The writer may have ended with a failure.
                if full.send(batch).is_err() || is_last {
                    return;
                }
            }
        });
        loop {
            match batches.recv() {
                Ok(batch) => {
                    let batch = batch?;
                    if batch.is_empty() {
                        break;
                    }
                    writer.write(&batch)?;
                    progress(writer.at);
                }
                Err(_) => return Err(stopped(from)),
            }
        }
        writer.zeroes_to(size)?;
        to.flush()?;
        progress(size);
        Ok(writer.copied)
    })
}

/// The reading thread has ended without an answer.
fn stopped<S: BlockDevice + ?Sized>(from: &S) -> Error {
    Error::Io {
        operation: Operation::Read,
        offset: 0,
        len: from.size_bytes(),
        device: from.name(),
        source: std::io::Error::other("the reading thread has ended"),
    }
}

struct Reader<'a, S: ?Sized> {
    from: &'a S,
    at: u64,
    size: u64,
}

impl<S: BlockDevice + ?Sized> Reader<'_, S> {
    /// The next pieces that may hold data; an empty batch behind the last.
    fn next_batch(&mut self) -> Result<Batch> {
        let mut batch = Batch::new();
        while batch.len() < PIECES && self.at < self.size {
            let range = match self.from.next_data(self.at)? {
                NextData::Unknown => self.at..self.size,
                NextData::Nowhere => {
                    self.at = self.size;
                    break;
                }
                NextData::At(range) => range.start.max(self.at)..range.end.min(self.size),
            };
            self.at = range.start;
            while batch.len() < PIECES && self.at < range.end {
                // Pieces end at multiples of their size, so that runs of zeroes are those of the target.
                let within = (self.at % PIECE_BYTES as u64) as usize;
                let len = ((PIECE_BYTES - within) as u64).min(range.end - self.at);
                batch.push((self.at, vec![0; len as usize]));
                self.at += len;
            }
        }
        let mut requests: Vec<Request<'_>> =
            batch.iter_mut().map(|(offset, buf)| Request::Read { offset: *offset, buf }).collect();
        self.from.run_batch(&mut requests)?;
        Ok(batch)
    }
}

struct Writer<'a, T: ?Sized> {
    to: &'a T,
    is_zeroed: bool,
    /// Everything in front of it is as it should be.
    at: u64,
    copied: Copied,
}

impl<T: BlockDevice + ?Sized> Writer<'_, T> {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut requests = Vec::new();
        for (offset, bytes) in batch {
            self.copied.read_bytes += bytes.len() as u64;
            for run in runs_of_data(*offset, bytes) {
                let start = offset + run.start as u64;
                self.zeroes_to(start)?;
                self.copied.written_bytes += run.len() as u64;
                self.at = start + run.len() as u64;
                requests.push(Request::Write { offset: start, data: &bytes[run] });
            }
        }
        self.to.run_batch(&mut requests)
    }

    /// What lies between the last data and this byte reads as zeroes.
    fn zeroes_to(&mut self, end: u64) -> Result<()> {
        if !self.is_zeroed && end > self.at {
            self.to.write_zeroes(self.at, end - self.at)?;
        }
        self.at = self.at.max(end);
        Ok(())
    }
}

/// The parts that are not zeroes, in whole grains of the device.
fn runs_of_data(offset: u64, bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let within = ((offset + at as u64) % GRAIN_BYTES as u64) as usize;
        let end = (at + GRAIN_BYTES - within).min(bytes.len());
        if bytes[at..end].iter().any(|&byte| byte != 0) {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => runs.push(at..end),
            }
        }
        at = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, MemoryDevice, PartitionDevice};
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
        let mut bytes = vec![0; device.size_bytes() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_copy_is_equal_and_holes_stay_holes() {
        let from = MemoryDevice::new(40 * MIB + 512);
        for at in [0, 100, 3 * MIB - 7, 20 * MIB, 40 * MIB] {
            from.write_at(at, &[7; 500]).unwrap();
        }
        from.write_at(5 * MIB, &vec![0; 1 << 20]).unwrap();
        let to = MemoryDevice::new(41 * MIB);
        let mut seen = Vec::new();
        let copied = copy(&from, &to, true, &mut |at| seen.push(at)).unwrap();
        assert!(bytes_of(&to).starts_with(&bytes_of(&from)));
        assert!(copied.written_bytes <= 6 * GRAIN_BYTES as u64, "{copied:?}");
        assert!(seen.is_sorted() && seen.last() == Some(&from.size_bytes()), "{seen:?}");
    }

    #[test]
    fn what_was_there_is_zeroed() {
        let from = MemoryDevice::new(10 * MIB);
        from.write_at(3 * MIB, &[1; 10]).unwrap();
        let to = MemoryDevice::from_bytes(vec![9; 11 << 20], Access::ReadWrite);
        copy(&from, &to, false, &mut |_| ()).unwrap();
        let found = bytes_of(&to);
        assert!(found[..10 << 20] == bytes_of(&from)[..] && found[10 << 20..].iter().all(|&byte| byte == 9));
    }

    #[test]
    fn a_target_that_is_too_small_is_left_alone() {
        let from = MemoryDevice::from_bytes(vec![1; 2 << 20], Access::ReadOnly);
        let to = MemoryDevice::new(MIB);
        assert!(matches!(copy(&from, &to, true, &mut |_| ()), Err(Error::OutOfRange { .. })));
        assert!(bytes_of(&to).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn parts_of_devices_are_copied() {
        let disk = Arc::new(MemoryDevice::new(8 * MIB));
        disk.write_at(0, &vec![3; 8 << 20]).unwrap();
        let part = PartitionDevice::new(disk, 512, 3 * MIB).unwrap();
        let to = MemoryDevice::new(3 * MIB);
        let copied = copy(&part, &to, true, &mut |_| ()).unwrap();
        assert_eq!((bytes_of(&to), copied.written_bytes), (vec![3; 3 << 20], 3 * MIB));
    }
}
