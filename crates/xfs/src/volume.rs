//! A filesystem's blocks and numbers: what every other module reads through.
//!
//! A `Volume` says nothing about whether the log has been recovered; `open` has the types that do. Blocks are cached
//! one by one, by their linear number. A structure of several blocks with one checksum, a directory block or a long
//! link's target, is cached as one buffer where its blocks lie together, and is never read block by block then: a change
//! of it would not show there.
//!
//! The superblock in memory is replaced while the filesystem grows, and read without a lock. A thread may hold the one
//! before until its handle ends: nothing is allocated in new space earlier (`grow`).

use std::ops::Deref;
use std::sync::Arc;

use undercroft_block::{BlockDevice, Device};
use undercroft_cache::{Buffer, BufferCache, Span};
use undercroft_journal::{Stop, StoppableDevice};
use undercroft_sync::AppendList;
use undercroft_vfs::Result;

use crate::error::{Verdict, corrupt_block};
use crate::format::block_header::{self, HeaderKind};
use crate::format::{AgNumber, FsBlock, Geometry, Superblock};
use crate::inode::Remapped;
use crate::transaction::{Block, LoggedState};

/// Superblock, device and metadata cache of one filesystem.
#[derive(Debug)]
pub(crate) struct Volume {
    /// The superblock as it was when the volume was opened, and after each change.
    superblocks: AppendList<Superblock>,
    buffers: BufferCache<LoggedState>,
    remapped: Remapped,
}

/// The bytes of one or several blocks that lie together.
#[derive(Clone, Debug)]
pub(crate) enum Blocks {
    /// One block, or one structure, as the cache has it.
    One(Buffer),
    /// Several, copied together.
    Several(Arc<[u8]>),
}

impl Deref for Blocks {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::One(buffer) => buffer,
            Self::Several(bytes) => bytes,
        }
    }
}

/// Kinds of validation that a cached block passes once; see [`Buffer::verify_once`]. A block that is wrongly taken for
/// another kind of structure is validated as that kind too: each has its bit.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Validated {
    /// The header of a B+tree block of a group.
    ShortBtree = 0,
    /// The header of a B+tree block of a fork.
    LongBtree = 1,
    /// A directory's block of names or of free space.
    DirBlock = 2,
    /// A block of a hash tree.
    DaBlock = 3,
    /// A block of a long value or a long link.
    Remote = 4,
    /// The entries of a leaf or a node of a directory's hash tree.
    DirIndex = 5,
    /// The items of a directory's block of names, among which the spaces lie that its header names.
    DirNames = 6,
}

/// The first of the kinds that are about inodes: one for each inode of a block; see `inode::checksum`.
pub(crate) const INODES_VALIDATED: u32 = 16;

impl Blocks {
    /// Runs `check` unless it has passed on these bytes before. Several blocks copied together are checked each time.
    pub(crate) fn verify_once<E>(
        &self,
        kind: Validated,
        check: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self {
            Self::One(buffer) => buffer.verify_once(kind as u32, check),
            Self::Several(_) => check(),
        }
    }
}

impl Volume {
    pub(crate) fn new(device: Device, superblock: Superblock, buffer_bytes: usize) -> Self {
        let buffers = BufferCache::new(device, superblock.geometry().block_bytes(), buffer_bytes);
        let superblocks = [superblock].into_iter().collect();
        Self { superblocks, buffers, remapped: Remapped::default() }
    }

    /// A volume that takes changes until they end with `stop`.
    pub(crate) fn for_changes<D: BlockDevice + ?Sized + 'static>(
        device: Arc<D>,
        superblock: Superblock,
        buffer_bytes: usize,
        stop: Arc<Stop>,
    ) -> Self {
        Self::new(Arc::new(StoppableDevice::new(device, stop)), superblock, buffer_bytes)
    }

    /// From here on inodes have these maps instead of those on the device.
    pub(crate) fn remap(&mut self, remapped: Remapped) {
        self.remapped = remapped;
    }

    /// Inodes that have other maps than those on the device.
    pub(crate) const fn remapped(&self) -> &Remapped {
        &self.remapped
    }

    pub(crate) fn into_remapped(self) -> Remapped {
        self.remapped
    }

    #[inline]
    pub(crate) fn superblock(&self) -> &Superblock {
        self.superblocks.last()
    }

    /// The superblock is this one from now on. The caller must serialize calls.
    pub(crate) fn replace_superblock(&self, superblock: Superblock) {
        self.superblocks.push(superblock);
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        self.superblock().geometry()
    }

    pub(crate) fn device(&self) -> &Device {
        self.buffers.device()
    }

    pub(crate) fn buffers(&self) -> &BufferCache<LoggedState> {
        &self.buffers
    }

    /// A metadata block, to be changed under a handle. Its content is not validated.
    pub(crate) fn block(&self, block: FsBlock) -> Result<Block> {
        Ok(self.buffers.block(self.linear(block)?)?)
    }

    /// A structure of `count` blocks that lie together, to be changed under a handle. Its content is not validated.
    pub(crate) fn structure(&self, block: FsBlock, count: u32) -> Result<Block> {
        if count == 1 {
            return self.block(block);
        }
        Ok(self.buffers.span(self.span(block, count)?)?)
    }

    /// A block, or a structure of `count` blocks, that is about to become metadata; it is not read.
    pub(crate) fn make_structure(&self, block: FsBlock, count: u32) -> Result<Block> {
        Ok(self.buffers.make_span(self.span(block, count)?))
    }

    /// A structure of `count` blocks that lie together, to be read. Its content is not validated.
    pub(crate) fn read_structure(&self, block: FsBlock, count: u32) -> Result<Blocks> {
        if count == 1 {
            return self.read_block(block).map(Blocks::One);
        }
        self.structure(block, count).map(|block| Blocks::One(block.buffer()))
    }

    /// What the cache and the log call a structure of `count` blocks.
    pub(crate) fn span(&self, block: FsBlock, count: u32) -> Result<Span> {
        let is_there = self.geometry().check_run(block, u64::from(count)).is_some();
        let linear = if is_there { self.geometry().linear(block) } else { None };
        let span = linear.and_then(|linear| Span::new(linear, count));
        span.ok_or_else(|| {
            let detail = format!("with {count} blocks from there on lies in no allocation group");
            corrupt_block("block number", block, detail)
        })
    }

    fn linear(&self, block: FsBlock) -> Result<u64> {
        self.geometry()
            .linear(block)
            .ok_or_else(|| corrupt_block("block number", block, "lies in no allocation group"))
    }

    /// One block. Its content is not validated.
    pub(crate) fn read_block(&self, block: FsBlock) -> Result<Buffer> {
        Ok(self.buffers.read(self.linear(block)?)?)
    }

    /// `count` blocks that lie together in one group; at most 64 KiB are asked for. Their content is not validated.
    pub(crate) fn read_blocks(&self, block: FsBlock, count: u32) -> Result<Blocks> {
        if count == 1 {
            return self.read_block(block).map(Blocks::One);
        }
        if self.geometry().check_run(block, u64::from(count)).is_none() {
            let detail = format!("with {count} blocks from there on lies in no allocation group");
            return Err(corrupt_block("block number", block, detail));
        }
        self.prefetch(block, count);
        let mut bytes = Vec::with_capacity(count as usize * self.geometry().block_bytes() as usize);
        for n in 0..u64::from(count) {
            bytes.extend_from_slice(&self.read_block(FsBlock(block.0 + n))?);
        }
        Ok(Blocks::Several(bytes.into()))
    }

    /// The first bytes of an allocation group: as many blocks as its four header sectors take.
    pub(crate) fn read_ag_headers(&self, ag: AgNumber) -> Result<Blocks> {
        let geometry = self.geometry();
        let count = geometry.ag_header_blocks();
        let Some(first) = geometry.join(ag, crate::format::AgBlock(0)) else {
            return Err(crate::error::corrupt("allocation group", format!("there is no group {ag}")));
        };
        self.read_blocks(first, count)
    }

    /// Brings blocks that lie together into the cache, for a caller that is about to ask for them one by one. A hint.
    pub(crate) fn prefetch(&self, block: FsBlock, count: u32) {
        if let Some(linear) = self.geometry().linear(block) {
            self.buffers.prefetch(linear, u64::from(count));
        }
    }

    /// Brings scattered blocks into the cache with one batch of reads. A hint.
    pub(crate) fn prefetch_scattered(&self, blocks: impl Iterator<Item = FsBlock>) {
        self.prefetch_structures(blocks, 1);
    }

    /// The same for structures of `count` blocks.
    pub(crate) fn prefetch_structures(&self, firsts: impl Iterator<Item = FsBlock>, count: u32) {
        let span = |first| self.span(first, count).map(Span::name).ok();
        let mut names: Vec<u64> = firsts.filter_map(span).collect();
        names.sort_unstable();
        names.dedup();
        self.buffers.prefetch_scattered(&names);
    }

    /// Whether a block is in the cache.
    pub(crate) fn is_cached(&self, block: FsBlock) -> bool {
        self.geometry().linear(block).is_some_and(|linear| self.buffers.contains(linear))
    }

    /// Validates the header of a self-describing block that was read from `block` and belongs to `owner`.
    pub(crate) fn validate_header(
        &self,
        bytes: &[u8],
        kind: HeaderKind,
        block: FsBlock,
        owner: u64,
    ) -> Verdict<()> {
        let Some(at) = self.geometry().daddr(block) else {
            return Err("lies in no allocation group".into());
        };
        block_header::validate(bytes, kind, self.superblock(), at, owner)
    }
}

#[cfg(test)]
mod tests {
    use undercroft_block::{BlockDevice, MemoryDevice};

    use super::*;
    use crate::format::testing;

    fn volume() -> Volume {
        let device = Arc::new(MemoryDevice::new(512 << 20));
        device.write_at(0, &testing::superblock_sector(|_| {})).unwrap();
        // Block 5 of group 2 and the one after it.
        device.write_at((2 * 32_768 + 5) * 4096, &[5; 4096]).unwrap();
        device.write_at((2 * 32_768 + 6) * 4096, &[6; 4096]).unwrap();
        let superblock = Superblock::read(&*device).unwrap();
        Volume::new(device, superblock, 1 << 20)
    }

    #[test]
    fn blocks_are_read_where_their_group_has_them() {
        let volume = volume();
        let block = FsBlock(2 << 15 | 5);
        assert_eq!(volume.read_block(block).unwrap()[..], [5; 4096]);
        let both = volume.read_blocks(block, 2).unwrap();
        assert_eq!((both.len(), both[4095], both[4096]), (8192, 5, 6));
        assert_eq!(volume.read_ag_headers(AgNumber(0)).unwrap()[..4], *b"XFSB");
    }

    #[test]
    fn blocks_outside_are_corruption() {
        let volume = volume();
        for (block, count) in [(FsBlock(4 << 15), 1), (FsBlock::NULL, 1), (FsBlock(1 << 15 | 32_767), 2)] {
            let error = volume.read_blocks(block, count).unwrap_err();
            assert!(error.to_string().contains("allocation group"), "{error}");
        }
    }
}
