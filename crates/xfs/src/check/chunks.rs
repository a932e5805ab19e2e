//! Inode chunks of a group, and what the check has found out about each of their inodes.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use super::raw::{be16, be32, be64};
use crate::format::{AgNumber, Geometry};

/// Inodes in a chunk.
pub(super) const INODES: u32 = 64;

/// Inodes for each bit of the mask of holes.
const PER_HOLE: u32 = 4;

/// A record of an inode tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// First inode, within the group.
    pub(super) start: u32,
    /// Bits of parts that do not exist.
    pub(super) holes: u16,
    /// Inodes that exist, as the record counts them.
    counted: u32,
    free_counted: u32,
    /// Bits of free inodes.
    pub(super) free: u64,
}

impl Chunk {
    pub(super) fn from_record(record: &[u8], sparse: bool) -> Self {
        let (holes, counted, free_counted) = if sparse {
            (be16(record, 4), u32::from(record[6]), u32::from(record[7]))
        } else {
            (0, INODES, be32(record, 4))
        };
        Self { start: be32(record, 0), holes, counted, free_counted, free: be64(record, 8) }
    }

    /// Bits of inodes that do not exist.
    pub(super) fn missing(&self) -> u64 {
        (0..16).filter(|bit| self.holes >> bit & 1 == 1).fold(0, |mask, bit| mask | 0xf << (bit * PER_HOLE))
    }

    pub(super) fn inodes(&self) -> u32 {
        INODES - self.holes.count_ones() * PER_HOLE
    }

    pub(super) fn free_inodes(&self) -> u32 {
        (self.free & !self.missing()).count_ones()
    }

    /// Whether inode `n` of it exists.
    pub(super) fn exists(&self, n: u32) -> bool {
        self.missing() >> n & 1 == 0
    }

    pub(super) fn is_free(&self, n: u32) -> bool {
        self.free >> n & 1 == 1
    }

    /// Whether its inodes have places in the group.
    pub(super) fn is_placed(&self, geometry: &Geometry, group: u32) -> bool {
        let per_block = geometry.inodes_per_block();
        let end = u64::from(self.start) + u64::from(INODES);
        let last = self.blocks(geometry).last();
        let blocks = geometry.ag_len(AgNumber(group));
        end <= u64::from(u32::MAX)
            && self.start.is_multiple_of(per_block.min(INODES))
            && last.is_none_or(|last| last < blocks)
    }

    pub(super) fn validate(&self, geometry: &Geometry, group: u32) -> Result<(), String> {
        if !self.is_placed(geometry, group) {
            return Err("lies outside the group, or not at the start of a block".to_owned());
        }
        if self.counted != self.inodes() {
            return Err(format!("counts {} inodes, and has {}", self.counted, self.inodes()));
        }
        if self.free_counted != self.free_inodes() {
            return Err(format!("counts {} free inodes, and has {}", self.free_counted, self.free_inodes()));
        }
        if self.free & self.missing() != self.missing() {
            return Err("has inodes in use where it has none".to_owned());
        }
        let block = self.start / geometry.inodes_per_block();
        let alignment = if geometry.sparse_alignment() > 0 {
            geometry.chunk_blocks()
        } else {
            geometry.inode_alignment()
        };
        if geometry.inodes_per_block() < INODES && alignment > 0 && !block.is_multiple_of(alignment) {
            return Err(format!("begins at block {block}, and chunks begin at multiples of {alignment}"));
        }
        Ok(())
    }

    /// The blocks within the group that its inodes lie in; a block that holds several chunks is named by each.
    pub(super) fn blocks(&self, geometry: &Geometry) -> impl Iterator<Item = u32> + use<> {
        let per_block = geometry.inodes_per_block();
        let (first, missing) = (self.start / per_block, self.missing());
        let count = (INODES / per_block).max(1);
        (0..count).filter_map(move |n| {
            let inodes = per_block.min(INODES);
            let mask = if inodes == 64 { u64::MAX } else { ((1 << inodes) - 1) << (n * inodes) };
            (missing & mask != mask).then(|| first.saturating_add(n))
        })
    }

    /// Runs of inodes that exist, as numbers within the chunk.
    pub(super) fn runs(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for part in 0..INODES / PER_HOLE {
            if self.holes >> part & 1 == 1 {
                continue;
            }
            let (from, to) = (part * PER_HOLE, (part + 1) * PER_HOLE);
            match runs.last_mut() {
                Some(run) if run.end == from => run.end = to,
                _ => runs.push(from..to),
            }
        }
        runs
    }
}

/// What the check has found out about one inode; any thread may set it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Names that lead to it; 255 for more than can be counted here.
    pub(super) found: AtomicU8,
    /// Links that it says it has; 255 for more than can be kept here.
    pub(super) stored: AtomicU8,
    /// Its kind, by the code of directory entries; 0 for a free one.
    pub(super) kind: AtomicU8,
    /// A bit for each kind that an entry says it has.
    pub(super) said: AtomicU8,
}

/// The kind of an inode that is in use and cannot be read.
pub(super) const UNREADABLE: u8 = 0xff;

/// The chunks of a group in order, each with what is known of its inodes.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) chunks: Vec<Chunk>,
    known: Vec<[Known; INODES as usize]>,
}

impl Chunks {
    pub(super) fn new(chunks: Vec<Chunk>) -> Self {
        let known = chunks.iter().map(|_| std::array::from_fn(|_| Known::default())).collect();
        Self { chunks, known }
    }

    /// The inode of a number within the group, if it exists.
    pub(super) fn find(&self, ino: u32) -> Option<(&Chunk, u32, &Known)> {
        let at = self.chunks.partition_point(|chunk| chunk.start <= ino).checked_sub(1)?;
        let chunk = &self.chunks[at];
        let n = ino - chunk.start;
        (n < INODES && chunk.exists(n)).then(|| (chunk, n, &self.known[at][n as usize]))
    }

    pub(super) fn known(&self, chunk: usize, n: u32) -> &Known {
        &self.known[chunk][n as usize]
    }
}

/// Adds one, up to what fits; `false` if it did not.
pub(super) fn count_up(counter: &AtomicU8) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < 254).then(|| n + 1)).is_ok()
}
