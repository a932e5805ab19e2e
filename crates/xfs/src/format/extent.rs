//! Extent records of a file's fork: 128 bits that hold four numbers.
//!
//! From the top: 1 bit that says "unwritten", 54 bits of the first block in the file, 52 bits of the first block on the
//! disk, 21 bits of the length.

use zerocopy::byteorder::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::geometry::Geometry;
use super::{FileBlock, FsBlock};
use crate::error::Verdict;

/// Size of a record in bytes.
pub(crate) const EXTENT_BYTES: usize = 16;

/// The longest extent that a record holds, in blocks: 21 bits.
pub(crate) const EXTENT_MAX_BLOCKS: u32 = (1 << 21) - 1;

/// Past this block no file goes: 54 bits.
pub(crate) const FILE_BLOCK_END: u64 = 1 << 54;

/// A record as it lies on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawExtent {
    pub(crate) l0: U64,
    pub(crate) l1: U64,
}

const _: () = assert!(size_of::<RawExtent>() == EXTENT_BYTES);

/// A run of blocks of a file that lie together on the disk, within one allocation group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) file: FileBlock,
    pub(crate) block: FsBlock,
    pub(crate) count: u32,
    /// Allocated and never written; reads as zeroes.
    pub(crate) unwritten: bool,
}

impl Extent {
    /// The first block of the file after it.
    pub(crate) const fn end(&self) -> u64 {
        self.file.0 + self.count as u64
    }

    /// Validates it against the geometry.
    pub(crate) fn validate(&self, geometry: &Geometry) -> Verdict<()> {
        let Self { file, block, count, .. } = *self;
        if count == 0 {
            return Err(format!("the extent at file block {file} is empty").into());
        }
        if self.end() > FILE_BLOCK_END {
            return Err(
                format!("the extent at file block {file} of {count} blocks ends past any file").into()
            );
        }
        let Some((_, first)) = geometry.check_run(block, u64::from(count)) else {
            return Err(format!(
                "the extent at file block {file} has {count} blocks from block {block} on, which lie in no allocation \
                 group"
            )
            .into());
        };
        if first.0 < geometry.ag_header_blocks() {
            return Err(format!(
                "the extent at file block {file} has {count} blocks from block {block} on, which lie over the headers of \
                 their allocation group"
            )
            .into());
        }
        Ok(())
    }

    /// The block on the disk of a block of the file that lies in the extent.
    pub(crate) const fn block_of(&self, file: u64) -> FsBlock {
        FsBlock(self.block.0 + (file - self.file.0))
    }
}

impl RawExtent {
    /// From its two words.
    pub(crate) fn from_words(l0: u64, l1: u64) -> Self {
        Self { l0: U64::new(l0), l1: U64::new(l1) }
    }

    /// The four numbers, as they are.
    pub(crate) fn unpack(&self) -> Extent {
        let (l0, l1) = (self.l0.get(), self.l1.get());
        Extent {
            unwritten: l0 >> 63 != 0,
            file: FileBlock(l0 >> 9 & (FILE_BLOCK_END - 1)),
            block: FsBlock((l0 & 0x1ff) << 43 | l1 >> 21),
            count: (l1 & 0x1f_ffff) as u32,
        }
    }

    /// A record of four numbers, each of which fits its bits.
    pub(crate) fn pack(extent: &Extent) -> Self {
        let l0 = u64::from(extent.unwritten) << 63 | extent.file.0 << 9 | extent.block.0 >> 43;
        let l1 = extent.block.0 << 21 | u64::from(extent.count);
        Self { l0: U64::new(l0), l1: U64::new(l1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Superblock, testing};

    #[test]
    fn a_record_is_unpacked_as_it_was_packed() {
        let extremes = [
            Extent { file: FileBlock(0), block: FsBlock(0), count: 1, unwritten: false },
            Extent {
                file: FileBlock(FILE_BLOCK_END - 1),
                block: FsBlock((1 << 52) - 1),
                count: EXTENT_MAX_BLOCKS,
                unwritten: true,
            },
            Extent { file: FileBlock(3), block: FsBlock(1 << 45 | 9), count: 700, unwritten: false },
        ];
        for extent in extremes {
            assert_eq!(RawExtent::pack(&extent).unpack(), extent);
        }
    }

    #[test]
    fn a_record_outside_the_filesystem_is_refused() {
        let superblock = Superblock::from_sector(&testing::superblock_sector(|_| {})).unwrap();
        let verdict = |file, block, count| {
            let extent = Extent { file: FileBlock(file), block: FsBlock(block), count, unwritten: false };
            RawExtent::pack(&extent).unpack().validate(superblock.geometry())
        };
        assert!(verdict(0, 10, 5).is_ok());
        assert!(verdict(0, 10, 0).is_err());
        assert!(verdict(0, 32_760, 9).is_err(), "reaches into the next group");
        assert!(verdict(0, 4 << 15, 1).is_err());
        assert!(verdict(FILE_BLOCK_END - 1, 10, 2).is_err());
    }
}
