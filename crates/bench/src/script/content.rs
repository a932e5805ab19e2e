//! What workers do to the content of files.

use super::Script;
use crate::BenchError;
use crate::aligned::AlignedBytes;
use crate::directory::{Content, Resizable};
use crate::random::Random;
use crate::sizes::{OVERWRITE_BYTES, WRITE_BYTES};

/// The largest size of the file that [`Orphan`] truncates.
const ORPHAN_BYTES: u64 = 4096;

/// Truncates a file of its own byte by byte down to one byte, then extends it again: the program that the Linux
/// developers measured their orphan list with in 2014.
pub(super) struct Orphan<C> {
    file: C,
    size: u64,
}

/// Writes over random places of one file that all share.
pub(crate) struct Overwrite<C> {
    file: C,
    block: AlignedBytes,
    blocks: u64,
    random: Random,
}

/// Writes a file of its own from its beginning on; the time ends when it is durable.
pub(crate) struct Write<C> {
    file: C,
    bytes: AlignedBytes,
    end: u64,
}

impl<C: Resizable> Orphan<C> {
    pub(super) fn new(file: C) -> Result<Self, BenchError> {
        file.write(0, &[b'o'; ORPHAN_BYTES as usize])?;
        Ok(Self { file, size: ORPHAN_BYTES })
    }
}

impl<C: Resizable> Script for Orphan<C> {
    fn step(&mut self) -> Result<(), BenchError> {
        self.size = if self.size == 1 { ORPHAN_BYTES } else { self.size - 1 };
        self.file.set_size(self.size)
    }
}

impl<C: Content> Overwrite<C> {
    /// `file` has at least `len` bytes, which is at least one block.
    pub(crate) fn new(file: C, len: u64, index: u32) -> Self {
        let block = AlignedBytes::filled(OVERWRITE_BYTES as usize, index as u8);
        Self { file, block, blocks: len / OVERWRITE_BYTES, random: Random::of_worker(index) }
    }
}

impl<C: Content> Script for Overwrite<C> {
    fn step(&mut self) -> Result<(), BenchError> {
        let block = self.random.next() % self.blocks;
        self.file.write(block * OVERWRITE_BYTES, self.block.get())
    }
}

impl<C: Content> Write<C> {
    pub(crate) fn new(file: C, index: u32, piece_bytes: u64) -> Self {
        Self { file, bytes: AlignedBytes::filled(piece_bytes as usize, index as u8), end: 0 }
    }
}

impl<C: Content> Script for Write<C> {
    fn step(&mut self) -> Result<(), BenchError> {
        let bytes = self.bytes.get();
        self.file.write(self.end, bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), BenchError> {
        self.file.sync()
    }
}

/// Writes `len` bytes from the beginning on, durably.
pub(crate) fn fill<C: Content>(file: &C, len: u64) -> Result<(), BenchError> {
    let bytes = AlignedBytes::filled(WRITE_BYTES as usize, b'f');
    for begin in (0..len).step_by(WRITE_BYTES as usize) {
        let some = WRITE_BYTES.min(len - begin) as usize;
        file.write(begin, &bytes.get()[..some])?;
    }
    file.sync()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Remembers what was asked for.
    #[derive(Default)]
    struct Asked {
        writes: RefCell<Vec<(u64, usize)>>,
        sizes: RefCell<Vec<u64>>,
        syncs: RefCell<usize>,
    }

    impl Content for &Asked {
        fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BenchError> {
            self.writes.borrow_mut().push((offset, bytes.len()));
            Ok(())
        }

        fn sync(&self) -> Result<(), BenchError> {
            *self.syncs.borrow_mut() += 1;
            Ok(())
        }
    }

    impl Resizable for &Asked {
        fn set_size(&self, size: u64) -> Result<(), BenchError> {
            self.sizes.borrow_mut().push(size);
            Ok(())
        }
    }

    #[test]
    fn a_file_shrinks_by_bytes_to_one_and_is_extended_again() {
        let asked = Asked::default();
        let mut script = Orphan::new(&asked).unwrap();
        (0..2 * 4096).for_each(|_| script.step().unwrap());
        let round: Vec<u64> = (1..4096).rev().chain([4096]).collect();
        assert_eq!(*asked.sizes.borrow(), round.repeat(2));
        assert_eq!(*asked.writes.borrow(), [(0, 4096)]);
    }

    #[test]
    fn every_block_is_overwritten_sooner_or_later_and_nothing_else() {
        let asked = Asked::default();
        let mut script = Overwrite::new(&asked, 100 * 4096 + 1, 3);
        (0..2000).for_each(|_| script.step().unwrap());
        let mut writes = asked.writes.take();
        writes.sort_unstable();
        writes.dedup();
        assert_eq!(writes, (0..100).map(|block| (block * 4096, 4096)).collect::<Vec<_>>());
    }

    #[test]
    fn writing_goes_on_where_it_ended_and_ends_durably() {
        for piece_bytes in [1 << 20, 4096] {
            let asked = Asked::default();
            let mut script = Write::new(&asked, 0, piece_bytes);
            (0..3).for_each(|_| script.step().unwrap());
            assert_eq!(*asked.syncs.borrow(), 0);
            script.finish().unwrap();
            assert_eq!(*asked.syncs.borrow(), 1);
            let pieces = [0, 1, 2].map(|at| (at * piece_bytes, piece_bytes as usize));
            assert_eq!(*asked.writes.borrow(), pieces);
        }
    }

    #[test]
    fn a_file_is_filled_to_the_byte() {
        let asked = Asked::default();
        fill(&&asked, (1 << 20) + 4096).unwrap();
        assert_eq!((asked.writes.take(), asked.syncs.take()), (vec![(0, 1 << 20), (1 << 20, 4096)], 1));
    }
}
