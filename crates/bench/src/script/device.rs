//! What workers do to a device that has no files.

use undercroft_block::BlockDevice;
use undercroft_md::parity;

use super::Script;
use crate::BenchError;
use crate::aligned::AlignedBytes;
use crate::random::Random;
use crate::sizes::{CHUNK_BYTES, MEMBERS, OVERWRITE_BYTES, ROW_BYTES, SEQUENTIAL_BYTES};

/// Writes whole rows of chunks at random places.
pub(crate) struct Rows<'d> {
    device: &'d dyn BlockDevice,
    row: AlignedBytes,
    rows: u64,
    random: Random,
}

/// Reads 4 KiB at random places.
pub(crate) struct Read<'d> {
    device: &'d dyn BlockDevice,
    block: Vec<u8>,
    blocks: u64,
    random: Random,
}

/// Writes whole rows one after the other in a part of the device that is the worker's own, again and again.
pub(crate) struct Sequential<'d> {
    device: &'d dyn BlockDevice,
    bytes: AlignedBytes,
    begin: u64,
    len: u64,
    at: u64,
}

/// Does what [`Sequential`] asks of the array, and nothing else: copies the data to where the members have it, and
/// computes parity.
pub(crate) struct CopyAndXor {
    bytes: AlignedBytes,
    members: Vec<Vec<u8>>,
    at: usize,
}

impl<'d> Rows<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, shared_bytes: u64, index: u32) -> Self {
        let row = AlignedBytes::filled(ROW_BYTES as usize, index as u8);
        Self { device, row, rows: (shared_bytes / ROW_BYTES).max(1), random: Random::of_worker(index) }
    }
}

impl Script for Rows<'_> {
    fn step(&mut self) -> Result<(), BenchError> {
        let row = self.random.next() % self.rows;
        self.device.write_at(row * ROW_BYTES, self.row.get()).map_err(BenchError::Device)
    }
}

impl<'d> Read<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, shared_bytes: u64, index: u32) -> Self {
        let blocks = (shared_bytes / OVERWRITE_BYTES).max(1);
        Self { device, block: vec![0; OVERWRITE_BYTES as usize], blocks, random: Random::of_worker(index) }
    }
}

impl Script for Read<'_> {
    fn step(&mut self) -> Result<(), BenchError> {
        let block = self.random.next() % self.blocks;
        self.device.read_at(block * OVERWRITE_BYTES, &mut self.block).map_err(BenchError::Device)?;
        std::hint::black_box(&self.block);
        Ok(())
    }
}

/// The bytes of each worker's own part: whole pieces.
pub(crate) const fn own_part(shared_bytes: u64, threads: u32) -> u64 {
    let pieces = shared_bytes / threads as u64 / SEQUENTIAL_BYTES;
    if pieces == 0 { SEQUENTIAL_BYTES } else { pieces * SEQUENTIAL_BYTES }
}

impl<'d> Sequential<'d> {
    /// The parts of all workers lie side by side, each of `len` bytes.
    pub(crate) fn new(device: &'d dyn BlockDevice, len: u64, index: u32) -> Self {
        let bytes = AlignedBytes::filled(SEQUENTIAL_BYTES as usize, index as u8);
        Self { device, bytes, begin: u64::from(index) * len, len, at: 0 }
    }
}

impl Script for Sequential<'_> {
    fn step(&mut self) -> Result<(), BenchError> {
        let written = self.device.write_at(self.begin + self.at, self.bytes.get());
        self.at = (self.at + SEQUENTIAL_BYTES) % self.len;
        written.map_err(BenchError::Device)
    }

    fn finish(&mut self) -> Result<(), BenchError> {
        self.device.flush().map_err(BenchError::Device)
    }
}

impl CopyAndXor {
    pub(crate) fn new(len: u64, index: u32) -> Self {
        let bytes = AlignedBytes::filled(SEQUENTIAL_BYTES as usize, index as u8);
        // Not zero: memory that was never written to would first have to be found.
        let members = vec![vec![1; (len / ROW_BYTES * CHUNK_BYTES) as usize]; MEMBERS as usize];
        Self { bytes, members, at: 0 }
    }
}

impl Script for CopyAndXor {
    fn step(&mut self) -> Result<(), BenchError> {
        let (parity, data) = self.members.split_last_mut().expect("there are members");
        for row in self.bytes.get().chunks_exact(ROW_BYTES as usize) {
            let range = self.at..self.at + CHUNK_BYTES as usize;
            let chunks: Vec<&[u8]> = row.chunks_exact(CHUNK_BYTES as usize).collect();
            parity::xor_of(&mut parity[range.clone()], &chunks);
            for (member, chunk) in data.iter_mut().zip(chunks) {
                member[range.clone()].copy_from_slice(chunk);
            }
            self.at = range.end % parity.len();
        }
        std::hint::black_box(&self.members);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use undercroft_block::MemoryDevice;

    use super::*;

    fn nonzero(device: &MemoryDevice) -> Vec<bool> {
        let mut bytes = vec![0; device.size_bytes() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes.chunks_exact(ROW_BYTES as usize).map(|row| row.iter().all(|&byte| byte != 0)).collect()
    }

    #[test]
    fn rows_are_written_whole_and_everywhere() {
        let device = MemoryDevice::new(10 * ROW_BYTES);
        let mut script = Rows::new(&device, 9 * ROW_BYTES + 5, 3);
        (0..200).for_each(|_| script.step().unwrap());
        assert_eq!(nonzero(&device), [vec![true; 9], vec![false]].concat());
    }

    #[test]
    fn each_goes_through_its_own_part_again_and_again() {
        let len = own_part(3 * 2 * SEQUENTIAL_BYTES + 1000, 3);
        assert_eq!((len, own_part(1, 3)), (2 * SEQUENTIAL_BYTES, SEQUENTIAL_BYTES));
        let device = MemoryDevice::new(3 * len);
        let mut script = Sequential::new(&device, len, 1);
        (0..5).for_each(|_| script.step().unwrap());
        script.finish().unwrap();
        assert_eq!(nonzero(&device), [vec![false; 16], vec![true; 16], vec![false; 16]].concat());
    }

    #[test]
    fn the_limit_copies_all_data_and_has_its_parity() {
        let mut script = CopyAndXor::new(2 * SEQUENTIAL_BYTES, 5);
        (0..2).for_each(|_| script.step().unwrap());
        assert_eq!(script.at, 0);
        // The parity of three that are the same is the same.
        assert!(script.members.iter().flatten().all(|&byte| byte == 5));
        assert_eq!(script.members[3].len() as u64, 2 * SEQUENTIAL_BYTES / 3);
    }

    #[test]
    fn reads_stay_within_what_is_shared() {
        let device = MemoryDevice::new(3 * OVERWRITE_BYTES);
        let mut script = Read::new(&device, 3 * OVERWRITE_BYTES + 100, 0);
        (0..100).for_each(|_| script.step().unwrap());
    }
}
