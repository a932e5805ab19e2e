//! What the second pass will read soon, announced to the device, which then reads much at once: chunks of inodes some
//! way ahead, and the blocks that the inodes of a chunk lead to.
//!
//! Between the chunks lie the files' own blocks, which a read-ahead of the device by itself would bring in too.

use zerocopy::FromBytes;

use super::Checker;
use crate::format::dinode::{ForkFormat, RawDinode, core_bytes};
use crate::format::extent::{EXTENT_BYTES, RawExtent};
use crate::format::{AgBlock, AgNumber, FsBlock};

/// How many chunks ahead one is announced: 2 MiB of inodes of 512 bytes.
pub(super) const CHUNKS_AHEAD: usize = 64;

/// As many extents are announced of what the inodes of a chunk lead to, and of each as many bytes. Many inodes of a
/// damaged disk may lead to the same blocks, so these bound what announcing costs beside reading the inodes.
const EXTENTS_MAX: usize = 256;
const EXTENT_BYTES_MAX: u64 = 64 << 10;

/// A directory, in the top four bits of the mode.
const DIRECTORY: u16 = 0o04;

impl Checker<'_> {
    /// Announces the inodes of a chunk.
    pub(super) fn announce_chunk(&self, group: usize, chunk: usize) {
        let chunk = &self.groups[group].chunks.chunks[chunk];
        let per_block = self.geometry.inodes_per_block();
        for run in chunk.runs() {
            let first = (chunk.start + run.start) / per_block;
            let end = (chunk.start + run.end).div_ceil(per_block);
            if let Some(block) = self.geometry.join(AgNumber(group as u32), AgBlock(first)) {
                self.announce(block, u64::from(end - first), u64::MAX);
            }
        }
    }

    /// Announces the first blocks of directories and attributes among inodes, whose bytes are not validated yet.
    pub(super) fn announce_forks(&self, inodes: &[u8]) {
        let mut left = EXTENTS_MAX;
        for inode in inodes.chunks_exact(self.geometry.inode_bytes() as usize) {
            let Ok((raw, _)) = RawDinode::ref_from_prefix(inode) else { continue };
            let core = core_bytes(raw.di_version);
            let split = core + usize::from(raw.di_forkoff) * 8;
            let (data_end, attributes) = match inode.get(split..) {
                Some(attributes) if raw.di_forkoff > 0 => (split, attributes),
                _ => (inode.len(), &[][..]),
            };
            let lists = |format| ForkFormat::from_raw(format) == Some(ForkFormat::Extents);
            if raw.di_mode.get() >> 12 == DIRECTORY && lists(raw.di_format) {
                self.announce_extents(&inode[core..data_end], &mut left);
            }
            if raw.di_mode.get() != 0 && lists(raw.di_aformat) {
                self.announce_extents(attributes, &mut left);
            }
        }
    }

    /// Announces extents as long as some are `left`.
    fn announce_extents(&self, records: &[u8], left: &mut usize) {
        for record in records.chunks_exact(EXTENT_BYTES) {
            let Ok(extent) = RawExtent::read_from_bytes(record).map(|raw| raw.unpack()) else { return };
            // Behind the last extent there is anything.
            if *left == 0 || extent.validate(&self.geometry).is_err() {
                return;
            }
            *left -= 1;
            self.announce(extent.block, u64::from(extent.count), EXTENT_BYTES_MAX);
        }
    }

    fn announce(&self, block: FsBlock, blocks: u64, bytes_max: u64) {
        if let Some(byte) = self.geometry.byte(block) {
            self.device.prefetch(byte, (blocks * u64::from(self.geometry.block_bytes())).min(bytes_max));
        }
    }
}
