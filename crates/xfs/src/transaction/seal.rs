//! The position of a block's last change (LSN) and its checksum, put in when the block is written to the log and home.
//! Headers of groups get a checksum at each change too, because readers verify them in the cache; see `inode::checksum` for
//! inodes.
//!
//! The copy in the log is sealed as the one that goes home: Linux replays it and, for inodes, does not seal it again.

use super::block::Seal;
use crate::ag::{agf, agfl, agi};
use crate::format::block_header::HeaderKind;
use crate::format::buffer_kind::BufferKind;
use crate::format::{Geometry, crc, dinode, superblock};

/// The position of blocks that are not ordered by the log (`NULLCOMMITLSN`).
const NO_POSITION: u64 = u64::MAX;

/// A kind of group header: its sector, its magic number, and where its position and its checksum lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupHeader {
    sector: u32,
    magic: u32,
    lsn: usize,
    crc: usize,
    /// What the log calls it.
    pub(super) kind: BufferKind,
}

/// The superblock of a group and its headers.
const GROUP_HEADERS: [GroupHeader; 4] = [
    GroupHeader {
        sector: 0,
        magic: superblock::MAGIC,
        lsn: superblock::LSN_OFFSET,
        crc: superblock::CRC_OFFSET,
        kind: BufferKind::SUPERBLOCK,
    },
    GroupHeader {
        sector: 1,
        magic: agf::MAGIC,
        lsn: agf::LSN_OFFSET,
        crc: agf::CRC_OFFSET,
        kind: BufferKind::AGF,
    },
    GroupHeader {
        sector: 2,
        magic: agi::MAGIC,
        lsn: agi::LSN_OFFSET,
        crc: agi::CRC_OFFSET,
        kind: BufferKind::AGI,
    },
    GroupHeader {
        sector: 3,
        magic: agfl::MAGIC,
        lsn: agfl::LSN_OFFSET,
        crc: agfl::CRC_OFFSET,
        kind: BufferKind::AGFL,
    },
];

/// The headers that lie in a block of a group that is sealed as `seal`, with the place of each in the block.
pub(super) fn headers_in(
    geometry: &Geometry,
    seal: Seal,
    block_of_group: u32,
) -> impl Iterator<Item = (GroupHeader, std::ops::Range<usize>)> + use<> {
    let (sector, block) = (u64::from(geometry.sector_bytes()), u64::from(geometry.block_bytes()));
    let first = u64::from(block_of_group) * block;
    let headers = match seal {
        Seal::GroupHeaders => &GROUP_HEADERS[1..],
        Seal::HeadersAndSuperblock => &GROUP_HEADERS[..],
        _ => &[],
    };
    headers.iter().filter_map(move |&header| {
        let at = (u64::from(header.sector) * sector).checked_sub(first)?;
        (at + sector <= block).then_some((header, at as usize..(at + sector) as usize))
    })
}

impl Seal {
    /// What the log calls a block. Blocks of headers are several buffers.
    pub(super) const fn log_kind(self) -> BufferKind {
        match self {
            Self::GroupHeaders | Self::HeadersAndSuperblock => BufferKind::UNKNOWN,
            Self::ShortBtree | Self::LongBtree => BufferKind::BTREE,
            Self::Inodes(_) => BufferKind::INODES,
            Self::Symlink => BufferKind::SYMLINK,
            Self::DirBlock => BufferKind::DIR_BLOCK,
            Self::DirData => BufferKind::DIR_DATA,
            Self::DirPart => BufferKind::BYTES,
            Self::DirFree => BufferKind::DIR_FREE,
            Self::DirLeaf1 => BufferKind::DIR_LEAF1,
            Self::DirLeafN => BufferKind::DIR_LEAFN,
            Self::DaNode => BufferKind::DA_NODE,
            Self::AttrLeaf => BufferKind::ATTR_LEAF,
            Self::AttrRemote => BufferKind::ATTR_REMOTE,
        }
    }

    /// Puts the position of the last change and the checksum into `bytes`, a block of which `block_of_group` is the
    /// number within its group.
    pub(super) fn apply(self, geometry: &Geometry, block_of_group: u32, position: u64, bytes: &mut [u8]) {
        match self {
            Self::GroupHeaders | Self::HeadersAndSuperblock => {
                for (header, range) in headers_in(geometry, self, block_of_group) {
                    let sector = &mut bytes[range];
                    if sector[..4] == header.magic.to_be_bytes() {
                        sector[header.lsn..header.lsn + 8].copy_from_slice(&position.to_be_bytes());
                        crc::seal(sector, header.crc);
                    }
                }
            }
            Self::Inodes(_) => {
                for inode in bytes.chunks_exact_mut(geometry.inode_bytes() as usize) {
                    if inode[..2] == dinode::MAGIC.to_be_bytes() {
                        inode[dinode::LSN_OFFSET..dinode::LSN_OFFSET + 8]
                            .copy_from_slice(&position.to_be_bytes());
                        crc::seal(inode, dinode::CRC_OFFSET);
                    }
                }
            }
            _ => {
                let Some(kind) = self.header() else { return };
                let position = if kind == HeaderKind::Remote { NO_POSITION } else { position };
                let at = kind.lsn_offset();
                bytes[at..at + 8].copy_from_slice(&position.to_be_bytes());
                crc::seal(bytes, kind.crc_offset());
            }
        }
    }
}
