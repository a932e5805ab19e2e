//! Which inodes of a block are logged: those that were changed since the block was written home.
//!
//! A block with inodes has several, most of which a transaction leaves as they are. Only those that it changed are logged,
//! with those of the versions before it that are in the log and not written home: their log space may be used again before
//! this version is written home. An inode is logged as a whole.
//!
//! There are 32 bits; in a block with more inodes a bit stands for several neighbours.

use std::ops::Range;

use crate::format::Geometry;

/// Inodes of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Those that the running transaction has changed; of a frozen version, those that are logged.
    changed: u32,
    /// Those that the last transaction before it has logged, for as long as they may have to be logged again.
    before: u32,
}

/// Inodes that a bit stands for.
fn inodes_in_bit(geometry: &Geometry) -> u32 {
    geometry.inodes_per_block().div_ceil(u32::BITS)
}

impl Parts {
    /// All inodes of the block.
    pub(crate) const ALL: Self = Self { changed: u32::MAX, before: 0 };

    /// The inode that begins at `byte` of its block.
    pub(crate) fn of_inode(geometry: &Geometry, byte: usize) -> Self {
        let n = byte as u32 / geometry.inode_bytes() / inodes_in_bit(geometry);
        Self { changed: 1_u32.checked_shl(n).unwrap_or(u32::MAX), before: 0 }
    }

    /// These and others.
    pub(super) const fn and(self, more: Self) -> Self {
        Self { changed: self.changed | more.changed, ..self }
    }

    /// A transaction changes the block for the first time. `in_log` says whether the log may have an older version.
    pub(super) fn begin(&mut self, in_log: bool) {
        if !in_log {
            self.before = 0;
        }
    }

    /// What the frozen version logs, where the log has `committed` of an older version that is not written home.
    pub(super) fn freeze(&mut self, committed: Option<Self>) -> Self {
        let changed = self.changed | committed.map_or(0, |committed| committed.changed);
        *self = Self { changed: 0, before: changed };
        Self { changed, before: 0 }
    }

    /// Units of the log, of 512 bytes, that the block may take in this transaction: one for what describes it, and more
    /// for the inodes.
    pub(super) fn units(self, geometry: &Geometry) -> u32 {
        let logged = self.logged(geometry, self.changed | self.before);
        logged * geometry.inode_bytes() / 512 + logged / 16 + 1
    }

    fn logged(self, geometry: &Geometry, bits: u32) -> u32 {
        let all = geometry.inodes_per_block();
        let bits = if let Some(none) = u32::BITS.checked_sub(all) { bits & u32::MAX >> none } else { bits };
        (bits.count_ones() * inodes_in_bit(geometry)).min(all)
    }

    /// The bytes of the block that are logged: runs of inodes, in order.
    pub(super) fn runs(self, geometry: &Geometry) -> Vec<Range<usize>> {
        let bytes_in_bit = (inodes_in_bit(geometry) * geometry.inode_bytes()) as usize;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..geometry.block_bytes() as usize).step_by(bytes_in_bit) {
            if self.changed >> (at / bytes_in_bit) & 1 == 0 {
                continue;
            }
            let end = (at + bytes_in_bit).min(geometry.block_bytes() as usize);
            match runs.last_mut() {
                Some(run) if run.end == at => run.end = end,
                _ => runs.push(at..end),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Superblock, testing};

    fn geometry(block_log: u8) -> Geometry {
        let sector = testing::superblock_sector(|raw| {
            raw.sb_blocksize.set(1 << block_log);
            raw.sb_blocklog = block_log;
            raw.sb_inopblock.set(1 << (block_log - 9));
            raw.sb_inopblog = block_log - 9;
            raw.sb_agblocks.set(1 << 15);
            raw.sb_agblklog = 15;
            raw.sb_dblocks.set(4 << 15);
        });
        *Superblock::from_sector(&sector).unwrap().geometry()
    }

    #[test]
    fn what_is_not_written_home_is_logged_again() {
        let geometry = geometry(12);
        let inode = |n: usize| Parts::of_inode(&geometry, n * 512);
        let mut parts = Parts::default().and(inode(1)).and(inode(2)).and(inode(5));
        let first = parts.freeze(None);
        assert_eq!(first.runs(&geometry), [512..1536, 2560..3072]);
        parts = parts.and(inode(7));
        // The first version is on its way to the log, so room for it is counted.
        assert_eq!((parts.units(&geometry), first.units(&geometry)), (5, 4));
        let second = parts.freeze(Some(first));
        assert_eq!(second.runs(&geometry), [512..1536, 2560..3072, 3584..4096]);
        parts.begin(true);
        assert_eq!(parts.and(inode(0)).units(&geometry), 6);
        parts.begin(false);
        parts = parts.and(inode(0));
        assert_eq!(parts.units(&geometry), 2);
        assert_eq!(parts.freeze(None).runs(&geometry), vec![0..512; 1]);
        assert_eq!(Parts::ALL.runs(&geometry), vec![0..4096; 1]);
        assert_eq!(Parts::ALL.units(&geometry), 9);
    }

    #[test]
    fn a_bit_stands_for_neighbours_in_large_blocks() {
        let geometry = geometry(16);
        let parts = Parts::of_inode(&geometry, 65_536 - 512).and(Parts::of_inode(&geometry, 0));
        assert_eq!(parts.runs(&geometry), [0..2048, 63_488..65_536]);
        assert_eq!(parts.units(&geometry), 9);
        assert_eq!(Parts::ALL.runs(&geometry), vec![0..65_536; 1]);
    }
}
