//! For unit tests: a check of structures that a test puts on a device in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use undercroft_block::{BlockDevice, MemoryDevice};
use undercroft_diskfs::Findings;
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Ino;

use super::chunks::{Chunk, Chunks};
use super::forks::Fork;
use super::inodes::Inode;
use super::space::Space;
use super::{Checker, Counts, GroupState};
use crate::format::block_header::HeaderKind;
use crate::format::dinode::{self, Dinode, RawDinode};
use crate::format::extent::Extent;
use crate::format::superblock::RawSuperblock;
use crate::format::{AgNumber, FileBlock, FsBlock, Superblock, crc, testing};

/// A device of 512 MiB with a superblock: four groups, the first of which has a chunk of inodes in use from 128 on.
pub(super) struct Bench {
    device: Arc<MemoryDevice>,
    pub(super) superblock: Superblock,
}

/// An inode in the chunk, with its bytes.
pub(super) struct OwnInode {
    number: u64,
    core: Dinode,
    bytes: Vec<u8>,
}

impl OwnInode {
    /// Changes its bytes behind the core.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut [u8])) {
        change(&mut self.bytes);
    }

    pub(super) fn get(&self) -> Inode<'_> {
        Inode { number: self.number, core: &self.core, bytes: &self.bytes }
    }
}

impl Bench {
    pub(super) fn new(change: impl FnOnce(&mut RawSuperblock)) -> Self {
        let sector = testing::superblock_sector(change);
        let device = MemoryDevice::new(512 << 20);
        device.write_at(0, &sector).unwrap();
        Self { device: Arc::new(device), superblock: Superblock::from_sector(&sector).unwrap() }
    }

    /// Writes blocks from `at` on.
    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        let byte = self.superblock.geometry().byte(FsBlock(at)).unwrap();
        self.device.write_at(byte, bytes).unwrap();
    }

    /// Writes a block that describes itself, with its header filled in.
    pub(super) fn put_owned(&self, at: u64, owner: u64, kind: HeaderKind, mut bytes: Vec<u8>) {
        let (blkno, uuid, owner_at, owner_bytes) = match kind {
            HeaderKind::DirBlock => (8, 24, 40, 8),
            HeaderKind::DaBlock => (16, 32, 48, 8),
            HeaderKind::Remote => (40, 16, 32, 8),
            HeaderKind::ShortBtree => (16, 32, 48, 4),
            HeaderKind::LongBtree => (24, 40, 56, 8),
        };
        let daddr = self.superblock.geometry().daddr(FsBlock(at)).unwrap();
        bytes[blkno..blkno + 8].copy_from_slice(&daddr.0.to_be_bytes());
        bytes[uuid..uuid + 16].copy_from_slice(self.superblock.meta_uuid().as_bytes());
        bytes[owner_at..owner_at + owner_bytes].copy_from_slice(&owner.to_be_bytes()[8 - owner_bytes..]);
        crc::seal(&mut bytes, kind.crc_offset());
        self.put(at, &bytes);
    }

    pub(super) fn inode(&self, number: u64, change: impl FnOnce(&mut RawDinode)) -> OwnInode {
        let bytes = testing::dinode(&self.superblock, Ino(number), change);
        let core = dinode::validate(&bytes, &self.superblock, Ino(number)).unwrap().unwrap();
        OwnInode { number, core, bytes }
    }

    /// A check whose first pass is over.
    pub(super) fn checker(&self) -> Checker<'_> {
        let mut checker = Checker::new(&*self.device, &self.superblock, 0, Findings::new(10_000));
        let mut record = [0; 16];
        record[..4].copy_from_slice(&128_u32.to_be_bytes());
        record[6] = 64;
        for number in 0..4 {
            let chunks = if number == 0 { vec![Chunk::from_record(&record, true)] } else { Vec::new() };
            let blocks = self.superblock.geometry().ag_len(AgNumber(number));
            checker.groups.push(GroupState {
                space: Mutex::new(&order::GROUP, Space::new(blocks, false)),
                chunks: Chunks::new(chunks),
                counts: Counts::default(),
                unlinked: Vec::new(),
            });
        }
        checker
    }
}

/// A fork of one extent from its first block on.
pub(super) fn fork(start: u64, count: u32) -> Fork {
    let extent = Extent { file: FileBlock(0), block: FsBlock(start), count, unwritten: false };
    Fork { extents: vec![extent], blocks: u64::from(count), complete: true }
}

impl Checker<'_> {
    /// What has been found until now, as it is shown.
    pub(super) fn reported(self) -> Vec<String> {
        self.findings.finish().0.iter().map(ToString::to_string).collect()
    }

    /// Names that lead to an inode.
    pub(super) fn links_found(&self, ino: u64) -> u8 {
        self.known(ino).map_or(0, |known| known.found.load(Ordering::Relaxed))
    }
}

/// What is found in a directory whose blocks lie on a device, as [`Bench`] makes it: all but what its names lead to.
pub(crate) fn directory_findings(
    device: Arc<MemoryDevice>,
    superblock: &Superblock,
    ino: Ino,
    bytes: &[u8],
    extents: Vec<Extent>,
) -> Vec<String> {
    let bench = Bench { device, superblock: superblock.clone() };
    let mut core = dinode::validate(bytes, superblock, ino);
    if core.is_err() {
        // Its content was put in after it was sealed.
        let mut sealed = bytes.to_vec();
        crc::seal(&mut sealed, dinode::CRC_OFFSET);
        core = dinode::validate(&sealed, superblock, ino);
    }
    let core = core.unwrap().unwrap();
    let inode = OwnInode { number: ino.0, core, bytes: bytes.to_vec() };
    let blocks = extents.iter().map(|extent| u64::from(extent.count)).sum();
    let checker = bench.checker();
    checker.check_directory(&inode.get(), &Fork { extents, blocks, complete: true }).unwrap();
    checker.reported().into_iter().filter(|finding| !finding.contains("directory-entry")).collect()
}
