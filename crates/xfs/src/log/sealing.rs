//! What a buffer of metadata is, and the position and checksum that version 5 keeps in it.
//!
//! It is used twice for a buffer. Before a change it determines how new the buffer's content is, from what the buffer
//! contains now. After the changes of one position of the log it determines where the position and the checksum go,
//! from what the log says the buffer is, if the buffer's content agrees.

use super::format::{Lsn, be16, be32, be64};
use crate::format::block_header::HeaderKind;
use crate::format::buffer_kind::BufferKind;
use crate::format::{Daddr, crc};

/// Where a structure has what version 5 added.
#[derive(Clone, Copy)]
struct Places {
    lsn: Option<usize>,
    uuid: usize,
    crc: usize,
}

const fn places(lsn: usize, uuid: usize, crc: usize) -> Places {
    Places { lsn: Some(lsn), uuid, crc }
}

const fn in_header(kind: HeaderKind) -> Places {
    places(kind.lsn_offset(), kind.uuid_offset(), kind.crc_offset())
}

const SHORT_BTREE: Places = in_header(HeaderKind::ShortBtree);
const LONG_BTREE: Places = in_header(HeaderKind::LongBtree);
const AGF: Places = places(208, 64, 216);
const AGI: Places = places(320, 296, 312);
const AGFL: Places = places(24, 8, 32);
const SYMLINK: Places = in_header(HeaderKind::Remote);
const DIR_BLOCK: Places = in_header(HeaderKind::DirBlock);
const DA_BLOCK: Places = in_header(HeaderKind::DaBlock);
const SUPERBLOCK: Places = places(240, 32, 224);
/// Remote attribute values are not ordered by the log.
const REMOTE_VALUE: Places = Places { lsn: None, ..SYMLINK };

/// A superblock's UUID of the metadata, which counts where there is one.
const SUPERBLOCK_META_UUID: usize = 248;

const fn magic(name: [u8; 4]) -> u32 {
    u32::from_be_bytes(name)
}

const SHORT_BTREES: [u32; 6] =
    [magic(*b"AB3B"), magic(*b"AB3C"), magic(*b"IAB3"), magic(*b"FIB3"), magic(*b"RMB3"), magic(*b"R3FC")];
const DIR_BLOCKS: [u32; 3] = [magic(*b"XDB3"), magic(*b"XDD3"), magic(*b"XDF3")];
const DIR3_LEAF1: u16 = 0x3DF1;
const DIR3_LEAFN: u16 = 0x3DFF;
const ATTR3_LEAF: u16 = 0x3BEE;
const DA3_NODE: u16 = 0x3EBE;
const LONG_BTREE_MAGIC: u32 = magic(*b"BMA3");
const AGF_MAGIC: u32 = magic(*b"XAGF");
const AGI_MAGIC: u32 = magic(*b"XAGI");
const AGFL_MAGIC: u32 = magic(*b"XAFL");
const SYMLINK_MAGIC: u32 = magic(*b"XSLM");
const REMOTE_MAGIC: u32 = magic(*b"XARM");
const SUPERBLOCK_MAGIC: u32 = crate::format::superblock::MAGIC;

/// Where the magic number of a directory's or attribute fork's inner block lies.
const DA_MAGIC: usize = 8;

fn places_by_content(bytes: &[u8]) -> Option<Places> {
    let word = be32(bytes, 0);
    Some(match word {
        _ if SHORT_BTREES.contains(&word) => SHORT_BTREE,
        _ if DIR_BLOCKS.contains(&word) => DIR_BLOCK,
        LONG_BTREE_MAGIC => LONG_BTREE,
        AGF_MAGIC => AGF,
        AGI_MAGIC => AGI,
        AGFL_MAGIC => AGFL,
        SYMLINK_MAGIC => SYMLINK,
        SUPERBLOCK_MAGIC => SUPERBLOCK,
        REMOTE_MAGIC => REMOTE_VALUE,
        _ => match be16(bytes, DA_MAGIC) {
            DIR3_LEAF1 | DIR3_LEAFN | ATTR3_LEAF | DA3_NODE => DA_BLOCK,
            _ => return None,
        },
    })
}

/// How new a buffer's content is: the position of the log whose changes it holds. `None` where it does not say, or is
/// none of this filesystem's, or has a wrong checksum: a write that was cut short may have left the position and not what
/// belongs to it. Such a buffer takes each change.
pub(super) fn position(bytes: &[u8], meta_uuid: [u8; 16]) -> Option<Lsn> {
    let places = places_by_content(bytes)?;
    let lsn = Lsn(be64(bytes, places.lsn?));
    let mut uuid = bytes.get(places.uuid..places.uuid + 16)?;
    if be32(bytes, 0) == SUPERBLOCK_MAGIC && uuid != meta_uuid {
        uuid = bytes.get(SUPERBLOCK_META_UUID..SUPERBLOCK_META_UUID + 16)?;
    }
    let is_named = uuid == meta_uuid && lsn != Lsn(0) && lsn != Lsn::NULL;
    (is_named && crc::verify(bytes, places.crc).is_ok()).then_some(lsn)
}

/// Where version 5 keeps its fields in a buffer that the log says is of a kind, if it is.
fn places_by_kind(kind: BufferKind, bytes: &[u8]) -> Option<Places> {
    let word = be32(bytes, 0);
    let inner = be16(bytes, DA_MAGIC);
    let when = |condition: bool, places: Places| condition.then_some(places);
    match kind {
        BufferKind::BTREE if word == LONG_BTREE_MAGIC => Some(LONG_BTREE),
        BufferKind::BTREE => when(SHORT_BTREES.contains(&word), SHORT_BTREE),
        BufferKind::AGF => when(word == AGF_MAGIC, AGF),
        BufferKind::AGFL => when(word == AGFL_MAGIC, AGFL),
        BufferKind::AGI => when(word == AGI_MAGIC, AGI),
        BufferKind::SYMLINK => when(word == SYMLINK_MAGIC, SYMLINK),
        BufferKind::DIR_BLOCK => when(word == DIR_BLOCKS[0], DIR_BLOCK),
        BufferKind::DIR_DATA => when(word == DIR_BLOCKS[1], DIR_BLOCK),
        BufferKind::DIR_FREE => when(word == DIR_BLOCKS[2], DIR_BLOCK),
        BufferKind::DIR_LEAF1 => when(inner == DIR3_LEAF1, DA_BLOCK),
        BufferKind::DIR_LEAFN => when(inner == DIR3_LEAFN, DA_BLOCK),
        BufferKind::DA_NODE => when(inner == DA3_NODE, DA_BLOCK),
        BufferKind::ATTR_LEAF => when(inner == ATTR3_LEAF, DA_BLOCK),
        BufferKind::ATTR_REMOTE => when(word == REMOTE_MAGIC, REMOTE_VALUE),
        BufferKind::SUPERBLOCK => when(word == SUPERBLOCK_MAGIC, SUPERBLOCK),
        _ => None,
    }
}

/// Puts the position and the checksum into a buffer that the log says is of a kind. A buffer of unknown kind, or whose
/// content is not what the log says, stays as it is; its reader validates it.
pub(super) fn seal(kind: BufferKind, bytes: &mut [u8], lsn: Lsn, block_bytes: usize) {
    let Some(places) = places_by_kind(kind, bytes) else { return };
    if kind == BufferKind::ATTR_REMOTE {
        // Each block of it has a header.
        for block in bytes.chunks_exact_mut(block_bytes) {
            if be32(block, 0) == REMOTE_MAGIC {
                crc::seal(block, places.crc);
            }
        }
        return;
    }
    // A buffer has whole sectors, and every place lies in the first.
    if let Some(at) = places.lsn {
        bytes[at..at + 8].copy_from_slice(&lsn.0.to_be_bytes());
    }
    crc::seal(bytes, places.crc);
}

/// Whether a buffer is a directory block, or a block of a hash tree, by its content, and its header says that it lies there.
/// Returns where it has its fields.
fn directory_places(bytes: &[u8], daddr: Daddr, meta_uuid: [u8; 16]) -> Option<(Places, usize)> {
    let places = places_by_content(bytes)?;
    let lsn = [DIR_BLOCK.lsn, DA_BLOCK.lsn].into_iter().flatten().find(|&lsn| places.lsn == Some(lsn))?;
    // The address lies before the position in both.
    let is_here = be64(bytes, lsn - 8) == daddr.0 && bytes.get(places.uuid..places.uuid + 16)? == meta_uuid;
    is_here.then_some((places, lsn))
}

/// Whether the header of a directory block or of a block of a hash tree has its own address.
pub(super) fn is_at(bytes: &[u8], daddr: Daddr, meta_uuid: [u8; 16]) -> bool {
    directory_places(bytes, daddr, meta_uuid).is_some()
}

/// Seals a directory block that was put together from its parts, without a position. `false`, with nothing changed, if it is
/// none that lies there.
pub(super) fn seal_directory_block(bytes: &mut [u8], daddr: Daddr, meta_uuid: [u8; 16]) -> bool {
    let Some((places, lsn)) = directory_places(bytes, daddr, meta_uuid) else { return false };
    bytes[lsn..lsn + 8].fill(0);
    crc::seal(bytes, places.crc);
    true
}
