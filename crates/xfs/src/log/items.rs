//! The items of a checkpoint that is written: buffers, whole or in part, and buffers that were freed.
//!
//! A buffer item is a description and its regions: one region with the whole buffer, or one for each run of changed
//! 128-byte parts. Inodes are logged as buffers too, but without the flag `XFS_BLF_INODE_BUF`. With the flag, recovery would
//! replay only the pointers between unlinked inodes; without it, recovery replays all logged parts and does not seal them
//! again.
//!
//! Source: Linux, `xfs_buf_log_format` and its use at recovery.

use std::ops::Range;

use undercroft_vfs::Result;

use super::buffer::{PART, flags};
use super::write::{Checkpoint, buffer_description};
use crate::format::buffer_kind::BufferKind;

/// Bytes of a description, before the map of the changed parts.
const DESCRIPTION_BYTES: usize = 20;

/// Parts that a word of the map stands for.
const PARTS_IN_WORD: usize = 32;

/// Regions of a logged buffer, and their bytes.
pub(crate) fn size_of_buffer(buffer_bytes: usize) -> (u64, u64) {
    let words = buffer_bytes.div_ceil(PART * PARTS_IN_WORD);
    (2, (DESCRIPTION_BYTES + 4 * words + buffer_bytes) as u64)
}

/// Regions of a buffer of which runs of parts are logged, and their bytes.
pub(crate) fn size_of_runs(buffer_bytes: usize, runs: &[Range<usize>]) -> (u64, u64) {
    let words = buffer_bytes.div_ceil(PART * PARTS_IN_WORD);
    let bytes: usize = runs.iter().map(Range::len).sum();
    (1 + runs.len() as u64, (DESCRIPTION_BYTES + 4 * words + bytes) as u64)
}

/// Regions of a freed buffer, and their bytes.
pub(crate) const fn size_of_cancelled() -> (u64, u64) {
    (1, DESCRIPTION_BYTES as u64 + 4)
}

impl Checkpoint<'_> {
    /// Adds a buffer of a kind that begins at sector `daddr`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn buffer(&mut self, daddr: u64, kind: BufferKind, bytes: &[u8]) -> Result<()> {
        self.runs(daddr, kind, bytes, std::slice::from_ref(&(0..bytes.len())))
    }

    /// Adds runs of parts of a buffer that begins at sector `daddr`, in order and apart from each other.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn runs(
        &mut self,
        daddr: u64,
        kind: BufferKind,
        bytes: &[u8],
        runs: &[Range<usize>],
    ) -> Result<()> {
        let mut map = vec![0_u32; (bytes.len() / PART).div_ceil(PARTS_IN_WORD)];
        for part in runs.iter().flat_map(|run| run.start / PART..run.end / PART) {
            map[part / PARTS_IN_WORD] |= 1 << (part % PARTS_IN_WORD);
        }
        let (regions, sectors) = (1 + runs.len() as u16, (bytes.len() / 512) as u16);
        self.region(&buffer_description(regions, kind.flags(), sectors, daddr, &map))?;
        runs.iter().try_for_each(|run| self.region(&bytes[run.clone()]))
    }

    /// Adds a buffer that was freed: what the log has of it from before is not replayed.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn cancelled(&mut self, daddr: u64, buffer_bytes: u32) -> Result<()> {
        self.region(&buffer_description(1, flags::CANCELLED, (buffer_bytes / 512) as u16, daddr, &[0]))
    }
}
