//! Where the log's blocks lie on the device.
//!
//! The log is a file: the journal inode's extents, found by the caller, map its blocks to the filesystem's. A
//! [`LogLocation`] is validated: it has no hole, lies within the filesystem and names no block twice, so a walk along
//! the log is never longer than the filesystem is large.

use std::fmt;

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;

use crate::error::corrupt;
use crate::numbers::FsBlock;

const STRUCTURE: &str = "journal inode";

/// A block of the log, counted from the journal superblock, which is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LogBlock(pub(crate) u32);

impl fmt::Display for LogBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What recovery needs of the filesystem around the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume {
    /// Size of a block in bytes; the log has the same.
    pub(crate) block_bytes: u32,
    /// Blocks in the filesystem.
    pub(crate) blocks: u64,
    /// Blocks on the device: the log may make the filesystem grow, and then change what is new.
    pub(crate) device_blocks: u64,
    /// Inodes in the filesystem.
    pub(crate) inodes: u32,
    /// Size of an inode on disk in bytes.
    pub(crate) inode_bytes: u16,
}

/// Consecutive blocks of the log that are consecutive on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRun {
    /// First block within the log.
    pub(crate) log: LogBlock,
    /// Where that block lies.
    pub(crate) home: FsBlock,
    /// Number of blocks.
    pub(crate) count: u32,
}

/// The whole log's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLocation {
    /// Ordered by place in the log.
    runs: Vec<LogRun>,
    /// First and one past the last filesystem block of each run, ordered.
    homes: Vec<(u64, u64)>,
    blocks: u32,
    block_bytes: u32,
}

impl LogLocation {
    /// Validates the journal inode's mapping; `runs` may come in any order.
    ///
    /// # Errors
    /// `Corrupt` when the runs leave a hole, overlap, or reach outside the filesystem.
    pub(crate) fn new(mut runs: Vec<LogRun>, volume: &Volume) -> Result<Self> {
        runs.retain(|run| run.count > 0);
        runs.sort_unstable_by_key(|run| run.log);
        let mut next: u32 = 0;
        for run in &runs {
            if run.log.0 != next {
                let what = if run.log.0 > next { "is a hole" } else { "is mapped twice" };
                return Err(corrupt(STRUCTURE, format!("block {} of the log {what}", next.min(run.log.0))));
            }
            next = next
                .checked_add(run.count)
                .ok_or_else(|| corrupt(STRUCTURE, "the log is longer than 2^32 blocks"))?;
        }
        let mut homes = Vec::with_capacity(runs.len());
        for run in &runs {
            match run.home.0.checked_add(u64::from(run.count)) {
                Some(end) if end <= volume.blocks => homes.push((run.home.0, end)),
                _ => {
                    return Err(corrupt(
                        STRUCTURE,
                        format!(
                            "{} blocks of the log at block {}, in a filesystem of {} blocks",
                            run.count, run.home, volume.blocks
                        ),
                    ));
                }
            }
        }
        homes.sort_unstable();
        if let Some(pair) = homes.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(corrupt(STRUCTURE, format!("block {} serves two places in the log", pair[1].0)));
        }
        Ok(Self { runs, homes, blocks: next, block_bytes: volume.block_bytes })
    }

    /// Blocks in the log.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Whether a filesystem block is one of the log's own.
    pub(super) fn holds(&self, block: FsBlock) -> bool {
        let after = self.homes.partition_point(|&(first, _)| first <= block.0);
        after > 0 && block.0 < self.homes[after - 1].1
    }

    /// Where a block of the log lies on the device.
    ///
    /// # Errors
    /// `Corrupt` when the log is not that long.
    pub(crate) fn home(&self, block: LogBlock) -> Result<FsBlock> {
        if block.0 >= self.blocks {
            return Err(corrupt(STRUCTURE, format!("block {block} of a log of {} blocks", self.blocks)));
        }
        let run = &self.runs[self.runs.partition_point(|run| run.log <= block) - 1];
        Ok(FsBlock(run.home.0 + u64::from(block.0 - run.log.0)))
    }

    /// Where a block of the log lies, and how many from there on lie behind one another.
    ///
    /// # Errors
    /// As for [`home`](Self::home).
    pub(super) fn run_at(&self, block: LogBlock) -> Result<(FsBlock, u32)> {
        let home = self.home(block)?;
        let run = &self.runs[self.runs.partition_point(|run| run.log <= block) - 1];
        Ok((home, run.count - (block.0 - run.log.0)))
    }

    /// The byte on the device at which a block of the log begins.
    ///
    /// # Errors
    /// As for [`home`](Self::home).
    pub(super) fn offset_bytes(&self, block: LogBlock) -> Result<u64> {
        // Cannot overflow: the block lies within a filesystem that lies within a device.
        Ok(self.home(block)?.0 * u64::from(self.block_bytes))
    }

    /// Reads one block of the log.
    ///
    /// # Errors
    /// `Corrupt` when the log is not that long; `Io`.
    pub(crate) fn read_block(&self, device: &dyn BlockDevice, block: LogBlock, buf: &mut [u8]) -> Result<()> {
        debug_assert_eq!(buf.len(), self.block_bytes as usize, "one block");
        Ok(device.read_at(self.offset_bytes(block)?, buf)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Volume =
        Volume { block_bytes: 1024, blocks: 1000, device_blocks: 1000, inodes: 100, inode_bytes: 256 };

    fn run(log: u32, home: u64, count: u32) -> LogRun {
        LogRun { log: LogBlock(log), home: FsBlock(home), count }
    }

    #[test]
    fn blocks_are_found_across_runs_in_any_order() {
        let location =
            LogLocation::new(vec![run(10, 100, 5), run(0, 500, 10), run(15, 90, 1)], &VOLUME).unwrap();
        assert_eq!(location.blocks(), 16);
        for (log, home) in [(0, 500), (9, 509), (10, 100), (14, 104), (15, 90)] {
            assert_eq!(location.home(LogBlock(log)).unwrap(), FsBlock(home));
            assert!(location.holds(FsBlock(home)));
        }
        assert!(location.home(LogBlock(16)).is_err());
        for outside in [0, 89, 91, 99, 105, 499, 510] {
            assert!(!location.holds(FsBlock(outside)), "{outside}");
        }
    }

    #[test]
    fn an_invalid_mapping_is_refused() {
        for runs in [
            vec![run(1, 5, 5)],
            vec![run(0, 5, 5), run(6, 20, 1)],
            vec![run(0, 5, 5), run(4, 20, 1)],
            vec![run(0, 5, 5), run(5, 9, 1)],
            vec![run(0, 996, 5)],
            vec![run(0, u64::MAX, 5)],
            vec![run(0, 5, u32::MAX), run(u32::MAX, 5, u32::MAX)],
        ] {
            assert!(LogLocation::new(runs.clone(), &VOLUME).is_err(), "{runs:?}");
        }
    }
}
