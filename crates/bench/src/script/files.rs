//! Whole files, each made durable before it is closed.

use super::{Name, Script};
use crate::BenchError;
use crate::aligned::AlignedBytes;
use crate::directory::{Caching, Content, Directory};
use crate::sizes::{FILE_BYTES, WRITE_BYTES};

/// Creates a file, writes it from end to end, makes it durable, closes and removes it, so that memory does not run out.
pub(super) struct WriteFiles<'d, D> {
    dir: &'d D,
    owner: u32,
    written: u64,
    bytes: AlignedBytes,
}

impl<'d, D: Directory> WriteFiles<'d, D> {
    pub(super) fn new(dir: &'d D, index: u32) -> Self {
        let bytes = AlignedBytes::filled(WRITE_BYTES as usize, index as u8);
        Self { dir, owner: index, written: 0, bytes }
    }
}

impl<D: Directory> Script for WriteFiles<'_, D> {
    fn step(&mut self) -> Result<(), BenchError> {
        let name = Name::new(self.owner, self.written);
        self.written += 1;
        let file = self.dir.open(&name.0, Caching::Any)?;
        for begin in (0..FILE_BYTES).step_by(WRITE_BYTES as usize) {
            file.write(begin, self.bytes.get())?;
        }
        file.sync()?;
        drop(file);
        self.dir.unlink(&name.0)
    }
}
