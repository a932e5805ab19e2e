//! The bytes of a new inode, and how it maps its blocks.
//!
//! Source: kernel documentation, sections "Index Nodes", "Extent Tree" and "Direct/Indirect Block Addressing".
//! The files that mkfs makes lie in few pieces: an extent tree has at most one level of leaves.

use std::ops::Range;

use undercroft_vfs::{FileType, Timestamp};

use super::space::Space;
use super::writer::Planned;
use crate::checksum::{crc32c, crc32c_around};
use crate::features::Incompat;
use crate::inode::InodeFlags;
use crate::superblock::Superblock;
use undercroft_diskfs::mkfs::{MkfsError, refuse};

const EXTENT_MAGIC: u16 = 0xF30A;
/// Entries are 12 bytes long, and so is the header before them.
const EXTENT_BYTES: usize = 12;
const EXTENTS_IN_INODE: usize = 4;
/// A written extent is at most so long.
const EXTENT_MAX_BLOCKS: u64 = 1 << 15;
const DIRECT: usize = 12;

/// An inode to be written.
#[derive(Clone, Debug)]
pub(super) struct NewInode {
    pub(super) number: u32,
    pub(super) kind: FileType,
    pub(super) permissions: u16,
    pub(super) links: u16,
    pub(super) owner: (u32, u32),
    pub(super) size_bytes: u64,
    pub(super) map: Map,
}

/// What stands in `i_block`, and what its blocks come to.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) i_block: [u8; 60],
    pub(super) by_extents: bool,
    /// Blocks that count as the file's, those of the map included.
    pub(super) blocks: u64,
}

/// Seed of an inode's checksums; mkfs gives every inode generation 0.
pub(super) fn checksum_seed(superblock: &Superblock, number: u32) -> u32 {
    crc32c(crc32c(superblock.checksum_seed(), &number.to_le_bytes()), &[0; 4])
}

impl Map {
    /// Maps a file without holes onto `pieces`, with blocks taken from `space` for the map itself.
    pub(super) fn of(
        superblock: &Superblock,
        space: &mut Space,
        planned: &mut Planned,
        number: u32,
        pieces: &[Range<u64>],
    ) -> Result<Self, MkfsError> {
        let per_cluster = u64::from(superblock.geometry().blocks_per_cluster());
        let blocks: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let mut map = if superblock.features().incompat.contains(Incompat::EXTENTS) {
            extents(superblock, space, planned, number, pieces)?
        } else {
            indirect(superblock, space, planned, pieces)?
        };
        map.blocks = map.blocks * per_cluster + blocks.next_multiple_of(per_cluster);
        Ok(map)
    }
}

fn one_block(space: &mut Space, near: u64) -> Result<u64, MkfsError> {
    match space.allocate(near, 1) {
        Some(pieces) => Ok(pieces[0].start),
        None => refuse("there is no room left for the filesystem's own files; make it larger"),
    }
}

fn extent_header(entries: usize, max: usize, depth: u16) -> [u8; EXTENT_BYTES] {
    let mut bytes = [0; EXTENT_BYTES];
    bytes[0..2].copy_from_slice(&EXTENT_MAGIC.to_le_bytes());
    bytes[2..4].copy_from_slice(&(entries as u16).to_le_bytes());
    bytes[4..6].copy_from_slice(&(max as u16).to_le_bytes());
    bytes[6..8].copy_from_slice(&depth.to_le_bytes());
    bytes
}

fn extent(file_block: u64, len: u64, first: u64) -> [u8; EXTENT_BYTES] {
    let mut bytes = [0; EXTENT_BYTES];
    bytes[0..4].copy_from_slice(&(file_block as u32).to_le_bytes());
    bytes[4..6].copy_from_slice(&(len as u16).to_le_bytes());
    bytes[6..8].copy_from_slice(&((first >> 32) as u16).to_le_bytes());
    bytes[8..12].copy_from_slice(&(first as u32).to_le_bytes());
    bytes
}

fn extent_index(file_block: u64, leaf: u64) -> [u8; EXTENT_BYTES] {
    let mut bytes = [0; EXTENT_BYTES];
    bytes[0..4].copy_from_slice(&(file_block as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(leaf as u32).to_le_bytes());
    bytes[8..10].copy_from_slice(&((leaf >> 32) as u16).to_le_bytes());
    bytes
}

/// The answer's `blocks` are those of the tree's leaves.
fn extents(
    superblock: &Superblock,
    space: &mut Space,
    planned: &mut Planned,
    number: u32,
    pieces: &[Range<u64>],
) -> Result<Map, MkfsError> {
    let mut all: Vec<(u64, [u8; EXTENT_BYTES])> = Vec::new();
    let mut file_block = 0;
    for piece in pieces {
        let mut first = piece.start;
        while first < piece.end {
            let len = (piece.end - first).min(EXTENT_MAX_BLOCKS);
            all.push((file_block, extent(file_block, len, first)));
            first += len;
            file_block += len;
        }
    }
    let mut i_block = [0; 60];
    if all.len() <= EXTENTS_IN_INODE {
        i_block[..EXTENT_BYTES].copy_from_slice(&extent_header(all.len(), EXTENTS_IN_INODE, 0));
        for (slot, (_, bytes)) in i_block[EXTENT_BYTES..].chunks_exact_mut(EXTENT_BYTES).zip(&all) {
            slot.copy_from_slice(bytes);
        }
        return Ok(Map { i_block, by_extents: true, blocks: 0 });
    }
    let block_bytes = superblock.geometry().block_bytes() as usize;
    let per_leaf = block_bytes / EXTENT_BYTES - 1;
    let leaves: Vec<_> = all.chunks(per_leaf).collect();
    if leaves.len() > EXTENTS_IN_INODE {
        return refuse(format!("the journal would lie in {} pieces; make it smaller", all.len()));
    }
    i_block[..EXTENT_BYTES].copy_from_slice(&extent_header(leaves.len(), EXTENTS_IN_INODE, 1));
    for (slot, leaf) in i_block[EXTENT_BYTES..].chunks_exact_mut(EXTENT_BYTES).zip(&leaves) {
        let home = one_block(space, pieces[0].start)?;
        slot.copy_from_slice(&extent_index(leaf[0].0, home));
        let mut bytes = extent_header(leaf.len(), per_leaf, 0).to_vec();
        bytes.extend(leaf.iter().flat_map(|(_, bytes)| bytes));
        bytes.resize(EXTENT_BYTES * (1 + per_leaf), 0);
        if superblock.has_metadata_checksums() {
            bytes.extend(crc32c(checksum_seed(superblock, number), &bytes).to_le_bytes());
        }
        bytes.resize(block_bytes, 0);
        planned.write(home, bytes);
    }
    Ok(Map { i_block, by_extents: true, blocks: leaves.len() as u64 })
}

/// The answer's `blocks` are those of block numbers.
fn indirect(
    superblock: &Superblock,
    space: &mut Space,
    planned: &mut Planned,
    pieces: &[Range<u64>],
) -> Result<Map, MkfsError> {
    let block_bytes = superblock.geometry().block_bytes() as usize;
    let near = pieces.first().map_or(0, |piece| piece.start);
    let mut homes = pieces.iter().cloned().flatten();
    let mut i_block = [0; 60];
    let mut used = 0;
    let mut set = |slot: usize, home: u64| {
        i_block[slot * 4..slot * 4 + 4].copy_from_slice(&(home as u32).to_le_bytes());
    };
    for (slot, home) in homes.by_ref().take(DIRECT).enumerate() {
        set(slot, home);
    }
    // What is left is cut into blocks of numbers; those of the double and triple trees are then cut again.
    let mut left: Vec<u64> = homes.collect();
    let per_block = block_bytes / 4;
    for level in 1..=3_u32 {
        if left.is_empty() {
            break;
        }
        let room = per_block.saturating_pow(level).min(left.len());
        let mut numbers: Vec<u64> = left.drain(..room).collect();
        for _ in 0..level {
            let mut above = Vec::new();
            for part in numbers.chunks(per_block) {
                let home = one_block(space, near)?;
                let mut bytes: Vec<u8> = part.iter().flat_map(|&n| (n as u32).to_le_bytes()).collect();
                bytes.resize(block_bytes, 0);
                planned.write(home, bytes);
                above.push(home);
                used += 1;
            }
            numbers = above;
        }
        set(DIRECT + level as usize - 1, numbers[0]);
    }
    Ok(Map { i_block, by_extents: false, blocks: used })
}

impl NewInode {
    /// The inode's bytes, checksum included.
    pub(super) fn encode(&self, superblock: &Superblock, time: Timestamp) -> Vec<u8> {
        let geometry = superblock.geometry();
        let mut bytes = vec![0; usize::from(geometry.inode_bytes())];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let mode = self.kind.mode_bits() as u16 | self.permissions;
        put(0x00, &mode.to_le_bytes());
        put(0x02, &(self.owner.0 as u16).to_le_bytes());
        put(0x04, &(self.size_bytes as u32).to_le_bytes());
        let (seconds, extra) = encode_time(time);
        for at in [0x08, 0x0C, 0x10] {
            put(at, &seconds);
        }
        put(0x18, &(self.owner.1 as u16).to_le_bytes());
        put(0x1A, &self.links.to_le_bytes());
        let sectors = self.map.blocks * u64::from(geometry.block_bytes() / 512);
        put(0x1C, &(sectors as u32).to_le_bytes());
        let flags = if self.map.by_extents { InodeFlags::EXTENTS } else { InodeFlags::empty() };
        put(0x20, &flags.bits().to_le_bytes());
        put(0x28, &self.map.i_block);
        put(0x6C, &((self.size_bytes >> 32) as u32).to_le_bytes());
        put(0x74, &((sectors >> 32) as u16).to_le_bytes());
        put(0x78, &((self.owner.0 >> 16) as u16).to_le_bytes());
        put(0x7A, &((self.owner.1 >> 16) as u16).to_le_bytes());
        if geometry.inode_bytes() > 128 {
            put(0x80, &super::EXTRA_INODE_BYTES.to_le_bytes());
            for at in [0x84, 0x88, 0x8C, 0x94] {
                put(at, &extra);
            }
            put(0x90, &seconds);
        }
        seal(superblock, self.number, &mut bytes);
        bytes
    }
}

/// A reserved inode that nothing uses. The list of bad blocks, inode 1, bears the time of its making.
pub(super) fn encode_reserved(superblock: &Superblock, number: u32, time: Timestamp) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(superblock.geometry().inode_bytes())];
    if number == 1 {
        for at in [0x08, 0x0C, 0x10] {
            bytes[at..at + 4].copy_from_slice(&encode_time(time).0);
        }
    }
    seal(superblock, number, &mut bytes);
    bytes
}

fn encode_time(time: Timestamp) -> ([u8; 4], [u8; 4]) {
    // The seconds' upper part counts from what the sign of the lower already says.
    let epoch = (time.seconds - i64::from(time.seconds as i32)) >> 32;
    let extra = time.nanoseconds << 2 | (epoch & 3) as u32;
    ((time.seconds as u32).to_le_bytes(), extra.to_le_bytes())
}

fn seal(superblock: &Superblock, number: u32, bytes: &mut [u8]) {
    if !superblock.has_metadata_checksums() {
        return;
    }
    let base = crc32c_around(checksum_seed(superblock, number), &bytes[..0x80], 0x7C..0x7E);
    let has_high = bytes.get(0x80..0x82).is_some_and(|extra| u16::from_le_bytes([extra[0], extra[1]]) >= 4);
    let sum = if has_high { crc32c_around(base, &bytes[0x80..], 2..4) } else { crc32c(base, &bytes[0x80..]) };
    bytes[0x7C..0x7E].copy_from_slice(&(sum as u16).to_le_bytes());
    if has_high {
        bytes[0x82..0x84].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
    }
}
