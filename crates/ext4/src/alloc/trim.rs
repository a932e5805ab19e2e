//! Telling the device what is free.

use std::ops::Range;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Result;

use super::Allocator;
use super::group::GroupCell;
use crate::volume::Volume;

/// Discards free blocks. Returns whether the device did so; one that cannot discard loses nothing.
pub(super) fn discard(volume: &Volume, blocks: Range<u64>) -> bool {
    let block_bytes = u64::from(volume.block_bytes());
    volume.device().discard(blocks.start * block_bytes, (blocks.end - blocks.start) * block_bytes).is_ok()
}

impl Allocator {
    /// Discards what is free of a range of the filesystem's bytes, in pieces of at least `min_len` bytes; returns how
    /// many bytes that was (`FITRIM`). What was freed a moment ago is left for after the next commit.
    ///
    /// # Errors
    /// I/O failure while bitmaps are read.
    pub(crate) fn trim(&self, volume: &Volume, range: Range<u64>, min_len: u64) -> Result<u64> {
        let bits = volume.superblock().geometry().block_bits();
        let wanted = range.start.div_ceil(1 << bits)..range.end >> bits;
        let least = min_len.div_ceil(1 << bits).max(1);
        let Ok(least) = u32::try_from(least) else { return Ok(0) };
        let mut blocks = 0;
        for cell in self.cells.iter() {
            let start = wanted.start.max(cell.start.0);
            let end = wanted.end.min(cell.start.0 + u64::from(cell.len()));
            if start < end && cell.free.load(Ordering::Relaxed) >= least {
                let within = (start - cell.start.0) as u32..(end - cell.start.0) as u32;
                blocks += self.trim_group(volume, cell, within, least)?;
            }
        }
        Ok(blocks << bits)
    }

    fn trim_group(&self, volume: &Volume, cell: &GroupCell, within: Range<u32>, least: u32) -> Result<u64> {
        let (mut from, mut trimmed) = (within.start, 0);
        loop {
            let mut blocks = match cell.lock_blocks(volume) {
                Ok(blocks) => blocks,
                Err(undercroft_vfs::Error::Corrupt(_)) => return Ok(trimmed),
                Err(error) => return Err(error),
            };
            let Some(run) = blocks.map().runs_of(from..within.end, least).next() else { return Ok(trimmed) };
            // They are not given out while the device forgets them, one run at a time; a caller that needs them waits
            // as for blocks that a commit frees.
            let count = run.end - run.start;
            self.take_from_map(cell, &mut blocks, run.clone());
            self.pending.add(i64::from(count));
            drop(blocks);
            if discard(volume, cell.absolute(&run)) {
                trimmed += u64::from(count);
            }
            from = run.end;
            let mut blocks = cell.relock_blocks();
            self.pending.add(-i64::from(count));
            self.give_to_map(cell, &mut blocks, run);
        }
    }
}
