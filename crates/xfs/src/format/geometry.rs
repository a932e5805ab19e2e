//! Sizes and counts of a filesystem, and the conversions between its kinds of addresses.
//!
//! A conversion answers `None` for an address outside the filesystem, so a number from the disk is checked where it
//! becomes a place.

use undercroft_vfs::Ino;

use super::features::{Features, VersionBits};
use super::superblock::RawSuperblock;
use super::{AgBlock, AgIno, AgNumber, Daddr, FsBlock};
use crate::error::Verdict;

/// Fewer blocks than this no allocation group has.
pub(crate) const AG_MIN_BLOCKS: u32 = 64;

/// The largest block of a directory, and of the filesystem.
const BLOCK_MAX_LOG: u8 = 16;

/// Inodes in a chunk.
pub(crate) const CHUNK_INODES: u32 = 64;

/// Inodes that version 5 aligns and buffers together: the least part of a sparse chunk.
pub(crate) const CLUSTER_INODES: u32 = 32;

/// Sizes and counts that were checked against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    block_log: u8,
    sector_log: u8,
    inode_log: u8,
    ag_block_log: u8,
    dir_block_log: u8,
    ag_blocks: u32,
    ag_count: u32,
    blocks: u64,
    /// Inode chunks begin at multiples of so many blocks; 1 where they are not aligned.
    inode_alignment: u32,
    /// Parts of sparse chunks begin at multiples of so many blocks; 0 without them, and where a block holds a whole part.
    sparse_alignment: u32,
    has_sparse_inodes: bool,
    has_crc: bool,
}

impl Geometry {
    /// From a superblock whose sector size is right.
    pub(crate) fn new(raw: &RawSuperblock, features: &Features) -> Verdict<Self> {
        let block_bytes = raw.sb_blocksize.get();
        let block_log = raw.sb_blocklog;
        let least_log = if features.has_crc() { 10 } else { 9 };
        if !(least_log..=BLOCK_MAX_LOG).contains(&block_log) || block_bytes != 1 << block_log {
            return Err(format!("blocks have {block_bytes} bytes, as a power of two {block_log}").into());
        }
        if block_log < raw.sb_sectlog {
            return Err(format!("blocks have {block_bytes} bytes, sectors {}", raw.sb_sectsize).into());
        }
        let inode_log = raw.sb_inodelog;
        let inode_bytes = u32::from(raw.sb_inodesize.get());
        if !(8..=11).contains(&inode_log)
            || inode_bytes != 1 << inode_log
            || inode_log >= block_log
            || raw.sb_inopblog != block_log - inode_log
            || u32::from(raw.sb_inopblock.get()) != block_bytes / inode_bytes
        {
            return Err(format!(
                "inodes have {inode_bytes} bytes, as a power of two {inode_log}, {} to a block of {block_bytes}",
                raw.sb_inopblock
            )
            .into());
        }
        let dir_block_log = block_log.saturating_add(raw.sb_dirblklog);
        if dir_block_log > BLOCK_MAX_LOG {
            return Err(format!("directory blocks have 2^{dir_block_log} bytes").into());
        }
        let (ag_blocks, ag_count, blocks) =
            (raw.sb_agblocks.get(), raw.sb_agcount.get(), raw.sb_dblocks.get());
        let ag_block_log = raw.sb_agblklog;
        if ag_blocks < AG_MIN_BLOCKS
            || ag_block_log > 31
            || ag_blocks.checked_next_power_of_two() != Some(1_u32 << ag_block_log)
        {
            return Err(format!(
                "an allocation group has {ag_blocks} blocks, as a power of two {ag_block_log}"
            )
            .into());
        }
        let most = u64::from(ag_count) * u64::from(ag_blocks);
        let least = most.saturating_sub(u64::from(ag_blocks - AG_MIN_BLOCKS));
        if ag_count == 0 || !(least..=most).contains(&blocks) {
            return Err(format!(
                "{ag_count} allocation groups of {ag_blocks} blocks cannot hold {blocks} blocks"
            )
            .into());
        }
        if blocks.checked_shl(u32::from(block_log)).is_none_or(|bytes| bytes >> block_log != blocks) {
            return Err(
                format!("{blocks} blocks of {block_bytes} bytes are more than a device can have").into()
            );
        }
        let ino_bits = u32::from(ag_block_log) + u32::from(block_log - inode_log);
        if ino_bits > 32 {
            return Err(format!("inode numbers within an allocation group have {ino_bits} bits").into());
        }
        validate_inode_alignment(raw, features)?;
        let aligned = features.version_bits().contains(VersionBits::ALIGN) || features.has_crc();
        let inode_alignment = if aligned { raw.sb_inoalignmt.get().max(1) } else { 1 };
        let sparse_alignment = if features.has_sparse_inodes() { raw.sb_spino_align.get() } else { 0 };
        let geometry = Self {
            block_log,
            sector_log: raw.sb_sectlog,
            inode_log,
            ag_block_log,
            dir_block_log,
            ag_blocks,
            ag_count,
            blocks,
            inode_alignment,
            sparse_alignment,
            has_sparse_inodes: features.has_sparse_inodes(),
            has_crc: features.has_crc(),
        };
        geometry.validate_log(raw, features)?;
        Ok(geometry)
    }

    fn validate_log(&self, raw: &RawSuperblock, features: &Features) -> Verdict<()> {
        let (start, blocks) = (raw.sb_logstart.get(), raw.sb_logblocks.get());
        if blocks == 0 {
            return Err("the log has no blocks".into());
        }
        if start != 0 && self.check_run(FsBlock(start), u64::from(blocks)).is_none() {
            return Err(
                format!("the log's {blocks} blocks from {start} on lie in no allocation group").into()
            );
        }
        if features.version_bits().contains(VersionBits::SECTOR) {
            let bytes = u32::from(raw.sb_logsectsize.get());
            if !(9..=15).contains(&raw.sb_logsectlog) || bytes != 1 << raw.sb_logsectlog {
                return Err(format!("the log's sectors have {bytes} bytes").into());
            }
        }
        let stripe = raw.sb_logsunit.get();
        if stripe > 1 && (!stripe.is_multiple_of(self.block_bytes()) || stripe > 256 << 10) {
            return Err(format!("the log's stripe unit has {stripe} bytes").into());
        }
        Ok(())
    }

    /// Size of a block in bytes.
    #[must_use]
    pub const fn block_bytes(&self) -> u32 {
        1 << self.block_log
    }

    /// Size of a block as a power of two.
    #[must_use]
    pub const fn block_log(&self) -> u8 {
        self.block_log
    }

    /// Size of a sector, in which the headers of groups lie, in bytes.
    #[must_use]
    pub const fn sector_bytes(&self) -> u32 {
        1 << self.sector_log
    }

    /// Size of an inode in bytes.
    #[must_use]
    pub const fn inode_bytes(&self) -> u32 {
        1 << self.inode_log
    }

    /// Inodes in a block.
    #[must_use]
    pub const fn inodes_per_block(&self) -> u32 {
        1 << self.inodes_per_block_log()
    }

    pub(crate) const fn inodes_per_block_log(&self) -> u8 {
        self.block_log - self.inode_log
    }

    /// Size of a directory block in bytes.
    #[must_use]
    pub const fn dir_block_bytes(&self) -> u32 {
        1 << self.dir_block_log
    }

    /// Filesystem blocks in a directory block.
    #[must_use]
    pub const fn dir_block_fsblocks(&self) -> u32 {
        1 << (self.dir_block_log - self.block_log)
    }

    /// Allocation groups.
    #[must_use]
    pub const fn ag_count(&self) -> u32 {
        self.ag_count
    }

    /// Blocks of an allocation group; the last one may have fewer.
    #[must_use]
    pub const fn ag_blocks(&self) -> u32 {
        self.ag_blocks
    }

    /// Blocks of the data section.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size of the data section in bytes.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.blocks << self.block_log
    }

    /// Whether blocks describe themselves.
    pub(crate) const fn has_crc(&self) -> bool {
        self.has_crc
    }

    /// Inode chunks begin at multiples of so many blocks.
    pub(crate) const fn inode_alignment(&self) -> u32 {
        self.inode_alignment
    }

    /// Whether inode chunks may have holes, which decides how their records are read.
    pub(crate) const fn has_sparse_inodes(&self) -> bool {
        self.has_sparse_inodes
    }

    /// Parts of sparse inode chunks begin at multiples of so many blocks; 0 in a filesystem without them, and in one
    /// whose blocks hold 64 inodes or more.
    pub(crate) const fn sparse_alignment(&self) -> u32 {
        self.sparse_alignment
    }

    /// Blocks of a whole inode chunk.
    pub(crate) const fn chunk_blocks(&self) -> u32 {
        let blocks = CHUNK_INODES >> self.inodes_per_block_log();
        if blocks == 0 { 1 } else { blocks }
    }

    /// All allocation groups, in order.
    pub(crate) fn ags(&self) -> impl ExactSizeIterator<Item = AgNumber> + use<> {
        (0..self.ag_count).map(AgNumber)
    }

    /// Blocks of one allocation group.
    ///
    /// `ag` lies within the filesystem.
    pub(crate) fn ag_len(&self, ag: AgNumber) -> u32 {
        let start = u64::from(ag.0) * u64::from(self.ag_blocks);
        self.blocks.saturating_sub(start).min(u64::from(self.ag_blocks)) as u32
    }

    /// Blocks at the start of each group that its four headers take, of a sector each.
    pub(crate) fn ag_header_blocks(&self) -> u32 {
        (4_u32 << self.sector_log).div_ceil(1 << self.block_log)
    }

    /// The allocation group of a number, if there is such a one.
    pub(crate) fn ag(&self, ag: u32) -> Option<AgNumber> {
        (ag < self.ag_count).then_some(AgNumber(ag))
    }

    /// Group and place of a block.
    pub(crate) fn split(&self, block: FsBlock) -> Option<(AgNumber, AgBlock)> {
        let ag = self.ag(u32::try_from(block.0 >> self.ag_block_log).ok()?)?;
        let within = (block.0 & ((1 << self.ag_block_log) - 1)) as u32;
        (within < self.ag_len(ag)).then_some((ag, AgBlock(within)))
    }

    /// The block at a place in a group.
    pub(crate) fn join(&self, ag: AgNumber, block: AgBlock) -> Option<FsBlock> {
        self.ag(ag.0)?;
        (block.0 < self.ag_len(ag))
            .then(|| FsBlock(u64::from(ag.0) << self.ag_block_log | u64::from(block.0)))
    }

    /// The run of `count` blocks from `block` on, if it lies within one group: group and first block.
    pub(crate) fn check_run(&self, block: FsBlock, count: u64) -> Option<(AgNumber, AgBlock)> {
        let (ag, within) = self.split(block)?;
        let end = u64::from(within.0).checked_add(count)?;
        (count > 0 && end <= u64::from(self.ag_len(ag))).then_some((ag, within))
    }

    /// The block's linear number: counted from the start of the device.
    pub(crate) fn linear(&self, block: FsBlock) -> Option<u64> {
        let (ag, within) = self.split(block)?;
        Some(u64::from(ag.0) * u64::from(self.ag_blocks) + u64::from(within.0))
    }

    /// The block of a linear number.
    #[cfg(test)]
    pub(crate) fn block_at_linear(&self, linear: u64) -> Option<FsBlock> {
        let ag = AgNumber(u32::try_from(linear / u64::from(self.ag_blocks)).ok()?);
        self.join(ag, AgBlock((linear % u64::from(self.ag_blocks)) as u32))
    }

    /// First byte of a block on the device.
    pub(crate) fn byte(&self, block: FsBlock) -> Option<u64> {
        Some(self.linear(block)? << self.block_log)
    }

    /// Disk address of a block.
    pub(crate) fn daddr(&self, block: FsBlock) -> Option<Daddr> {
        Some(Daddr(self.byte(block)? >> 9))
    }

    /// The block that begins at a disk address.
    #[cfg(test)]
    pub(crate) fn block_at(&self, daddr: Daddr) -> Option<FsBlock> {
        let shift = self.block_log - 9;
        (daddr.0.trailing_zeros() >= u32::from(shift)).then(|| self.block_at_linear(daddr.0 >> shift))?
    }

    /// Bits of an inode number within its group.
    pub(crate) const fn ag_ino_log(&self) -> u8 {
        self.ag_block_log + self.inodes_per_block_log()
    }

    /// Group and number within it of an inode, if a chunk could lie there.
    pub(crate) fn split_ino(&self, ino: Ino) -> Option<(AgNumber, AgIno)> {
        let ag = self.ag(u32::try_from(ino.0 >> self.ag_ino_log()).ok()?)?;
        let within = AgIno((ino.0 & ((1 << self.ag_ino_log()) - 1)) as u32);
        (within.0 >> self.inodes_per_block_log() < self.ag_len(ag)).then_some((ag, within))
    }

    /// The inode of a number within a group, if a chunk could lie there.
    pub(crate) fn join_ino(&self, ag: AgNumber, ino: AgIno) -> Option<Ino> {
        self.ag(ag.0)?;
        (ino.0 >> self.inodes_per_block_log() < self.ag_len(ag))
            .then(|| Ino(u64::from(ag.0) << self.ag_ino_log() | u64::from(ino.0)))
    }

    /// Where an inode lies: its block, and the byte within it.
    pub(crate) fn inode_place(&self, ino: Ino) -> Option<(FsBlock, usize)> {
        let (ag, within) = self.split_ino(ino)?;
        let block = self.join(ag, AgBlock(within.0 >> self.inodes_per_block_log()))?;
        let slot = within.0 & (self.inodes_per_block() - 1);
        Some((block, (slot as usize) << self.inode_log))
    }
}

/// Whether inode chunks are aligned as Linux demands where it mounts: with sparse inodes, to their size.
fn validate_inode_alignment(raw: &RawSuperblock, features: &Features) -> Verdict<()> {
    let found = raw.sb_inoalignmt.get();
    let wanted = CHUNK_INODES << raw.sb_inodelog >> raw.sb_blocklog;
    if features.has_sparse_inodes() && found != wanted {
        return Err(format!("sb_inoalignmt is {found}, and must be {wanted} with sparse inodes").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::features::Incompat;
    use crate::format::{Superblock, testing};

    /// Four groups of 32,768 blocks of 4 KiB, the last cut to 100 blocks.
    fn geometry() -> Geometry {
        let sector = testing::superblock_sector(|raw| {
            raw.sb_dblocks.set(3 * 32_768 + 100);
        });
        *Superblock::from_sector(&sector).unwrap().geometry()
    }

    #[test]
    fn inode_chunks_are_aligned_as_linux_demands() {
        let verdict = |change: &dyn Fn(&mut RawSuperblock)| {
            Superblock::from_sector(&testing::superblock_sector(change))
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let sparse = |chunks: u32, parts: u32| {
            verdict(&|raw| {
                raw.sb_inoalignmt.set(chunks);
                raw.sb_spino_align.set(parts);
            })
        };
        assert_eq!(sparse(8, 4), Ok(()));
        for chunks in [0, 1, 2, 4, 7, 16, 1 << 30] {
            let error = sparse(chunks, 4).unwrap_err();
            assert!(error.contains("superblock") && error.contains("sb_inoalignmt"), "{error}");
        }
        // Not every Linux looks at these; a check finds them.
        for parts in [0, 1, 2, 3, 8, 1 << 30] {
            assert_eq!(sparse(8, parts), Ok(()));
        }
        let whole = |chunks: u32, parts: u32| {
            verdict(&|raw| {
                let without = raw.sb_features_incompat.get() & !Incompat::SPARSE_INODES.bits();
                raw.sb_features_incompat.set(without);
                raw.sb_inoalignmt.set(chunks);
                raw.sb_spino_align.set(parts);
            })
        };
        for chunks in [0, 2, 3, 4, 8, 1 << 30] {
            assert_eq!(whole(chunks, 0), Ok(()));
        }
        assert_eq!(whole(4, 4), Ok(()));
    }

    #[test]
    fn addresses_convert_both_ways() {
        let geometry = geometry();
        let block = geometry.join(AgNumber(2), AgBlock(5)).unwrap();
        assert_eq!(block, FsBlock(2 << 15 | 5));
        assert_eq!(geometry.split(block), Some((AgNumber(2), AgBlock(5))));
        assert_eq!(geometry.linear(block), Some(2 * 32_768 + 5));
        assert_eq!(geometry.block_at_linear(2 * 32_768 + 5), Some(block));
        assert_eq!(geometry.daddr(block), Some(Daddr((2 * 32_768 + 5) * 8)));
        assert_eq!(geometry.block_at(Daddr((2 * 32_768 + 5) * 8)), Some(block));
        assert_eq!(geometry.block_at(Daddr((2 * 32_768 + 5) * 8 + 1)), None);
        let ino = geometry.join_ino(AgNumber(1), AgIno(131)).unwrap();
        assert_eq!(ino, Ino(1 << 18 | 131));
        assert_eq!(geometry.split_ino(ino), Some((AgNumber(1), AgIno(131))));
        assert_eq!(geometry.inode_place(ino), Some((FsBlock(1 << 15 | 16), 3 * 512)));
    }

    #[test]
    fn what_lies_outside_has_no_place() {
        let geometry = geometry();
        assert_eq!(geometry.ag_len(AgNumber(3)), 100);
        assert_eq!(geometry.join(AgNumber(3), AgBlock(100)), None);
        assert_eq!(geometry.join(AgNumber(4), AgBlock(0)), None);
        assert_eq!(geometry.split(FsBlock(3 << 15 | 100)), None);
        assert_eq!(geometry.split(FsBlock::NULL), None);
        assert_eq!(geometry.block_at_linear(u64::MAX), None);
        assert_eq!(geometry.split_ino(Ino(u64::MAX)), None);
        assert_eq!(geometry.split_ino(Ino((3 << 18) + 100 * 8)), None);
        // The bits of another group are no part of a number within one.
        assert_eq!(geometry.join_ino(AgNumber(1), AgIno(2 << 18 | 128)), None);
        assert_eq!(geometry.join_ino(AgNumber(3), AgIno(100 * 8)), None);
        assert_eq!(geometry.join_ino(AgNumber(4), AgIno(0)), None);
        assert_eq!(geometry.check_run(FsBlock(3 << 15 | 90), 10), Some((AgNumber(3), AgBlock(90))));
        assert_eq!(geometry.check_run(FsBlock(3 << 15 | 90), 11), None);
        assert_eq!(geometry.check_run(FsBlock(7), 0), None);
        assert_eq!(geometry.check_run(FsBlock(7), u64::MAX), None);
    }
}
