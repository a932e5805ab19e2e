//! An inode's bytes as they lie in its table, not validated.

use undercroft_vfs::FileType;
use zerocopy::FromBytes;

use crate::checksum::{crc32c, crc32c_around};
use crate::inode::{InodeFlags, RawInode};
use crate::superblock::Superblock;

pub(super) const BAD_BLOCKS_INODE: u32 = 1;
/// Where usage by users and by groups is accounted since there is a feature for it; by projects anywhere.
pub(super) const QUOTA_INODES: [u32; 2] = [3, 4];
pub(super) const RESIZE_INODE: u32 = 7;

/// Numbers at an offset; zero where the bytes end.
pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// One inode's bytes, and their fixed part by name.
#[derive(Clone, Debug)]
pub(super) struct Inode<'a> {
    pub(super) number: u32,
    pub(super) bytes: &'a [u8],
    pub(super) raw: RawInode,
}

impl<'a> Inode<'a> {
    /// `None` for too few bytes, which cannot happen with a validated superblock.
    pub(super) fn new(number: u32, bytes: &'a [u8]) -> Option<Self> {
        let (raw, _) = RawInode::read_from_prefix(bytes).ok()?;
        Some(Self { number, bytes, raw })
    }

    pub(super) fn kind(&self) -> Option<FileType> {
        FileType::from_mode(u32::from(self.raw.i_mode.get()))
    }

    pub(super) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.raw.i_flags.get())
    }

    pub(super) fn links(&self) -> u16 {
        self.raw.i_links_count.get()
    }

    pub(super) fn size_bytes(&self) -> u64 {
        u64::from(self.raw.i_size_lo.get()) | u64::from(self.raw.i_size_high.get()) << 32
    }

    pub(super) fn xattr_block(&self) -> u64 {
        u64::from(self.raw.i_file_acl_lo.get()) | u64::from(self.raw.i_file_acl_high.get()) << 32
    }

    /// Bytes of the fields after the first 128; 0 where there are none.
    pub(super) fn extra_bytes(&self) -> usize {
        if self.bytes.len() > 128 { usize::from(le16(self.bytes, 0x80)) } else { 0 }
    }

    /// Where attributes in the inode may lie.
    pub(super) fn attribute_area(&self) -> &'a [u8] {
        let extra = self.extra_bytes();
        if extra == 0 { &[] } else { self.bytes.get(128 + extra..).unwrap_or(&[]) }
    }

    /// Seed of the checksums of what belongs to this inode.
    pub(super) fn seed(&self, superblock: &Superblock) -> u32 {
        let with_number = crc32c(superblock.checksum_seed(), &self.number.to_le_bytes());
        crc32c(with_number, &self.raw.i_generation.get().to_le_bytes())
    }

    /// The checksum that is there, and the one that should be.
    pub(super) fn checksums(&self, superblock: &Superblock) -> (u32, u32) {
        let (fixed, rest) = self.bytes.split_at(128);
        let base = crc32c_around(self.seed(superblock), fixed, 0x7C..0x7E);
        let low = u32::from(self.raw.i_checksum_lo.get());
        if rest.len() < 4 || self.extra_bytes() < 4 {
            return (low, crc32c(base, rest) & 0xffff);
        }
        (low | u32::from(le16(rest, 2)) << 16, crc32c_around(base, rest, 2..4))
    }
}
