//! What the second pass will read soon, announced to the device, which then reads much at once: chunks of inodes some
//! way ahead, and the blocks that the inodes of a chunk lead to.
//!
//! Between the chunks lie the files' own blocks, which a read-ahead of the device by itself would bring in too.

use zerocopy::FromBytes;

use super::Checker;
use super::chunks::Chunk;
use crate::format::dinode::{CORE_V2_BYTES, CORE_V3_BYTES, RawDinode};
use crate::format::extent::{EXTENT_BYTES, RawExtent};
use crate::format::{AgBlock, AgNumber};

/// How many chunks ahead one is announced: 2 MiB of inodes of 512 bytes.
pub(super) const CHUNKS_AHEAD: usize = 64;

/// Of an extent, as many blocks are announced.
const BLOCKS_MAX: u32 = 64;

/// The formats of a fork that lists extents, and of a directory's mode.
const EXTENTS: u8 = 2;
const DIRECTORY: u16 = 0o04;

impl Checker<'_> {
    /// Announces the inodes of a chunk.
    pub(super) fn announce_chunk(&self, group: usize, chunk: &Chunk) {
        let per_block = self.geometry.inodes_per_block();
        for run in chunk.runs() {
            let first = (chunk.start + run.start) / per_block;
            let end = (chunk.start + run.end).div_ceil(per_block);
            self.announce(AgNumber(group as u32), AgBlock(first), end - first);
        }
    }

    /// Announces the first blocks of directories and attributes among inodes, whose bytes are not validated yet.
    pub(super) fn announce_forks(&self, inodes: &[u8]) {
        for inode in inodes.chunks_exact(self.geometry.inode_bytes() as usize) {
            let Ok((raw, _)) = RawDinode::read_from_prefix(inode) else { continue };
            let core = if raw.di_version == 3 { CORE_V3_BYTES } else { CORE_V2_BYTES };
            let split = core + usize::from(raw.di_forkoff) * 8;
            let (data_end, attributes) = match inode.get(split..) {
                Some(attributes) if raw.di_forkoff > 0 => (split, attributes),
                _ => (inode.len(), &[][..]),
            };
            if raw.di_mode.get() >> 12 == DIRECTORY && raw.di_format == EXTENTS {
                self.announce_extents(&inode[core..data_end]);
            }
            if raw.di_mode.get() != 0 && raw.di_aformat == EXTENTS {
                self.announce_extents(attributes);
            }
        }
    }

    fn announce_extents(&self, records: &[u8]) {
        for record in records.chunks_exact(EXTENT_BYTES) {
            let Ok(extent) = RawExtent::read_from_bytes(record).map(|raw| raw.unpack()) else { return };
            // Behind the last extent there is anything.
            if extent.validate(&self.geometry).is_err() {
                return;
            }
            if let Some((ag, block)) = self.geometry.split(extent.block) {
                self.announce(ag, block, extent.count.min(BLOCKS_MAX));
            }
        }
    }

    fn announce(&self, ag: AgNumber, block: AgBlock, blocks: u32) {
        let byte = self.geometry.join(ag, block).and_then(|block| self.geometry.byte(block));
        if let Some(byte) = byte {
            self.device.prefetch(byte, u64::from(blocks) * u64::from(self.geometry.block_bytes()));
        }
    }
}
