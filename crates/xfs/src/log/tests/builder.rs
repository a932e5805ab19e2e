//! A filesystem with an empty log, and records for it.

use std::sync::Arc;

use undercroft_block::{BlockDevice, Device, MemoryDevice};
use undercroft_vfs::{Ino, Result};

use super::super::format::{BASIC_BLOCK, Lsn, RECORD_CRC, RECORD_MAGIC, client, flags};
use super::super::{Recovered, recover};
use crate::format::superblock::RawSuperblock;
use crate::format::{Superblock, crc, testing};

/// Blocks of the log: 512 basic blocks, so that it is soon full.
const LOG_BLOCKS: u32 = 64;
pub(super) const RING: u32 = LOG_BLOCKS * 8;

/// Groups that have room on the device, and headers there.
const GROUPS: u32 = 4;
const GROUP_BYTES: u64 = 128 << 20;

/// Bytes that a record's header says that records have at most.
const RECORD_BYTES: u32 = 32 << 10;

/// An operation of a record: transaction, flags, bytes.
pub(super) type Operation = (u32, u8, Vec<u8>);

/// A filesystem whose log is written by hand.
pub(super) struct LogImage {
    pub(super) device: Arc<MemoryDevice>,
    pub(super) superblock: Superblock,
    start: u64,
    /// Where the next record goes.
    pub(super) head: u32,
    cycle: u32,
    /// Of the records.
    version: u32,
    /// Where records say that the log's changes begin.
    pub(super) tail: Lsn,
}

impl LogImage {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A filesystem of version 4.
    pub(super) fn version_4() -> Self {
        Self::with(|raw| {
            raw.sb_versionnum.set(0xb4a4);
            raw.sb_features2.set(0x8a);
            raw.sb_bad_features2.set(0x8a);
            raw.sb_features_ro_compat.set(0);
            raw.sb_features_incompat.set(0);
            raw.sb_spino_align.set(0);
        })
    }

    /// A filesystem of version 4 with a log of version 1, whose records have no checksums.
    pub(super) fn log_version_1() -> Self {
        let image = Self::with(|raw| {
            raw.sb_versionnum.set(0xb0a4);
            raw.sb_features2.set(0x8a);
            raw.sb_bad_features2.set(0x8a);
            raw.sb_features_ro_compat.set(0);
            raw.sb_features_incompat.set(0);
            raw.sb_logsunit.set(0);
            raw.sb_spino_align.set(0);
        });
        Self { version: 1, ..image }
    }

    /// A filesystem whose superblock is changed as a test likes.
    pub(super) fn with(change: impl FnOnce(&mut RawSuperblock)) -> Self {
        let sector = superblock_sector(change);
        let superblock = Superblock::from_sector(&sector).unwrap();
        let geometry = *superblock.geometry();
        let device = Arc::new(MemoryDevice::new(u64::from(GROUPS) * GROUP_BYTES));
        device.write_at(0, &sector).unwrap();
        let start = geometry.byte(superblock.log_start().unwrap()).unwrap();
        let image = Self { device, superblock, start, head: 0, cycle: 1, version: 2, tail: Lsn(1 << 32) };
        for ag in 0..GROUPS {
            image.put_agf(ag, |_| {});
            image.put_agi(ag, |_| {});
        }
        image
    }

    /// Writes the header of a group's free space, of which there is none, changed as a test likes.
    pub(super) fn put_agf(&self, ag: u32, change: impl FnOnce(&mut [u8])) {
        self.put_header(ag, 1, b"XAGF", (64, 216), change);
    }

    /// Writes the header of a group's inodes, of which there are none, changed as a test likes.
    pub(super) fn put_agi(&self, ag: u32, change: impl FnOnce(&mut [u8])) {
        self.put_header(ag, 2, b"XAGI", (296, 312), |agi| {
            agi[40..296].fill(0xFF);
            change(agi);
        });
    }

    fn put_header(
        &self,
        ag: u32,
        sector: u64,
        magic: &[u8; 4],
        (uuid, checksum): (usize, usize),
        change: impl FnOnce(&mut [u8]),
    ) {
        let mut header = [0; 512];
        header[..4].copy_from_slice(magic);
        let blocks = self.superblock.geometry().ag_blocks();
        for (at, word) in [(4, 1), (8, ag), (12, blocks)] {
            header[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        header[uuid..uuid + 16].copy_from_slice(self.superblock.meta_uuid().as_bytes());
        change(&mut header);
        crc::seal(&mut header, checksum);
        self.device.write_at(u64::from(ag) * GROUP_BYTES + sector * 512, &header).unwrap();
    }

    /// Writes an inode where it belongs.
    pub(super) fn put_inode(&self, ino: Ino, bytes: &[u8]) {
        let geometry = self.superblock.geometry();
        let (block, at) = geometry.inode_place(ino).unwrap();
        self.device.write_at(geometry.byte(block).unwrap() + at as u64, bytes).unwrap();
    }

    /// Writes a record, and returns where it begins.
    pub(super) fn record(&mut self, operations: &[Operation]) -> u32 {
        let mut data = Vec::new();
        for (id, flags, bytes) in operations {
            data.extend(id.to_be_bytes());
            data.extend((bytes.len() as u32).to_be_bytes());
            let client = if flags & flags::UNMOUNT != 0 { client::LOG } else { client::TRANSACTION };
            data.extend([client, *flags, 0, 0]);
            data.extend(bytes);
        }
        let len = data.len() as u32;
        data.resize(data.len().next_multiple_of(BASIC_BLOCK), 0);
        let (begin, lsn) = (self.head, u64::from(self.cycle) << 32 | u64::from(self.head));
        let mut header = vec![0; BASIC_BLOCK];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &RECORD_MAGIC.to_be_bytes());
        put(4, &self.cycle.to_be_bytes());
        put(8, &self.version.to_be_bytes());
        put(12, &len.to_be_bytes());
        put(16, &lsn.to_be_bytes());
        put(24, &self.tail.0.to_be_bytes());
        put(40, &(operations.len() as u32).to_be_bytes());
        for (index, block) in data.chunks_exact_mut(BASIC_BLOCK).enumerate() {
            put(44 + index * 4, &block[..4]);
            let cycle = self.cycle + u32::from(begin + 1 + index as u32 >= RING);
            block[..4].copy_from_slice(&cycle.to_be_bytes());
        }
        put(300, &1_u32.to_be_bytes());
        put(304, self.superblock.uuid().as_bytes());
        put(320, &RECORD_BYTES.to_be_bytes());
        if self.version > 1 {
            seal(&mut header, &data[..len as usize]);
        }
        for block in header.chunks_exact(BASIC_BLOCK).chain(data.chunks_exact(BASIC_BLOCK)) {
            self.write_block(self.head, block);
            self.head += 1;
            if self.head == RING {
                (self.head, self.cycle) = (0, self.cycle + 1);
            }
        }
        begin
    }

    /// Writes a record that holds one transaction of these items, each of some regions. Returns where it begins.
    pub(super) fn transaction(&mut self, id: u32, items: &[Vec<Vec<u8>>]) -> u32 {
        let mut operations = vec![(id, flags::START, Vec::new()), (id, 0, transaction_header(items.len()))];
        operations.extend(items.iter().flatten().map(|region| (id, 0, region.clone())));
        operations.push((id, flags::COMMIT, Vec::new()));
        self.record(&operations)
    }

    /// Where the next record goes, with its cycle.
    pub(super) fn position(&self) -> u64 {
        u64::from(self.cycle) << 32 | u64::from(self.head)
    }

    /// Says that the filesystem was unmounted.
    pub(super) fn unmount(&mut self) {
        self.record(&[(7, flags::UNMOUNT, b"nU\0\0\0\0\0\0".to_vec())]);
    }

    pub(super) fn write_block(&self, block: u32, bytes: &[u8]) {
        self.device.write_at(self.start + u64::from(block) * BASIC_BLOCK as u64, bytes).unwrap();
    }

    pub(super) fn read_block(&self, block: u32) -> [u8; BASIC_BLOCK] {
        let mut bytes = [0; BASIC_BLOCK];
        self.device.read_at(self.start + u64::from(block) * BASIC_BLOCK as u64, &mut bytes).unwrap();
        bytes
    }

    /// Changes bytes of a block of the log.
    pub(super) fn change(&self, block: u32, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.read_block(block);
        change(&mut bytes);
        self.write_block(block, &bytes);
    }

    pub(super) fn recover(&self) -> Result<Recovered> {
        let device: Device = self.device.clone();
        recover(&device, None, &self.superblock)
    }
}

/// The sector of a superblock of such a filesystem.
pub(super) fn superblock_sector(change: impl FnOnce(&mut RawSuperblock)) -> Vec<u8> {
    testing::superblock_sector(|raw| {
        raw.sb_logblocks.set(LOG_BLOCKS);
        change(raw);
    })
}

/// Stores a record's checksum in its header.
pub(super) fn seal(header: &mut [u8], data: &[u8]) {
    header[RECORD_CRC..RECORD_CRC + 4].fill(0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..328]), data);
    header[RECORD_CRC..RECORD_CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

pub(super) fn transaction_header(items: usize) -> Vec<u8> {
    [0x5452_414E, 40, 0, items as u32].iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

/// An item that changes a buffer of 8 sectors: the parts with these numbers, to these bytes.
pub(super) fn buffer_item(daddr: u64, kind_and_flags: u16, parts: &[(u32, u8)]) -> Vec<Vec<u8>> {
    let mut description = Vec::new();
    for word in [0x123C, parts.len() as u16 + 1, kind_and_flags, 8] {
        description.extend(word.to_le_bytes());
    }
    description.extend(daddr.to_le_bytes());
    description.extend(1_u32.to_le_bytes());
    description.extend(parts.iter().fold(0_u32, |map, (part, _)| map | 1 << part).to_le_bytes());
    let mut item = vec![description];
    item.extend(parts.iter().map(|(_, byte)| vec![*byte; 128]));
    item
}

/// An item that changes the inode with this number: the fields, the core and the forks as they are.
pub(super) fn inode_item(
    superblock: &Superblock,
    ino: Ino,
    fields: u32,
    regions: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let geometry = superblock.geometry();
    let (block, at) = geometry.inode_place(ino).unwrap();
    let mut description = Vec::new();
    for half in [0x123B, regions.len() as u16 + 1] {
        description.extend(half.to_le_bytes());
    }
    description.extend(fields.to_le_bytes());
    description.resize(16, 0);
    description.extend(ino.0.to_le_bytes());
    description.resize(40, 0);
    description.extend(geometry.daddr(block).unwrap().0.to_le_bytes());
    description.extend((geometry.block_bytes() / 512).to_le_bytes());
    description.extend((at as u32).to_le_bytes());
    [vec![description], regions.to_vec()].concat()
}

/// The core of a regular file with a list of extents, changed as a test likes, as a host logs it.
pub(super) fn inode_core(version: u8, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut core = vec![0; if version >= 3 { 176 } else { 96 }];
    core[..2].copy_from_slice(&0x494E_u16.to_le_bytes());
    core[2..4].copy_from_slice(&0o100_644_u16.to_le_bytes());
    (core[4], core[5]) = (version, 2);
    core[16] = 1;
    core[83] = 2;
    change(&mut core);
    core
}
