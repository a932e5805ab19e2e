//! The files that every filesystem begins with: root, `lost+found`, and those that only the filesystem itself uses.
//!
//! Source: kernel documentation, sections "Special inodes", "Orphan file", "Journal (jbd2)" and "Multiple Mount
//! Protection"; what debugfs shows of what mke2fs makes. The resize inode maps the blocks reserved for more group
//! descriptors: its block of double indirection leads to the reserved blocks after the primary descriptors, each
//! of which lists the blocks that stand for it beside the backups.

use std::ops::Range;

use undercroft_vfs::{FileType, Timestamp};
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U32;

use super::inode::{Map, NewInode, checksum_seed};
use super::shape::Shape;
use super::space::Space;
use super::writer::Planned;
use super::{FIRST_INODE, LOST_AND_FOUND_INODE, ORPHAN_FILE_INODE};
use crate::checksum::crc32c;
use crate::features::{Compat, Incompat, RoCompat};
use crate::inode::ROOT_INODE;
use crate::jbd2;
use crate::mmp;
use crate::numbers::Group;
use crate::superblock::{RawSuperblock, Superblock};
use undercroft_diskfs::mkfs::{MkfsError, refuse};

const RESIZE_INODE: u32 = 7;
const JOURNAL_INODE: u32 = 8;
/// `lost+found` is made large enough for e2fsck to put names into it without looking for blocks.
const LOST_AND_FOUND_BYTES: u64 = 16 << 10;
const LOST_AND_FOUND_MAX_BLOCKS: u64 = 12;
/// The slot of double indirection in an inode's block map.
const DOUBLE_INDIRECT: usize = 13;

/// What is being made, so far.
pub(super) struct Files<'a> {
    pub(super) superblock: &'a Superblock,
    pub(super) space: &'a mut Space,
    pub(super) planned: &'a mut Planned,
    pub(super) inodes: Vec<NewInode>,
}

impl Files<'_> {
    /// Makes them all, and notes in the superblock where they are.
    pub(super) fn make(
        &mut self,
        shape: &Shape,
        raw: &mut RawSuperblock,
        owner: (u32, u32),
        time: Timestamp,
    ) -> Result<(), MkfsError> {
        self.root(owner)?;
        self.lost_and_found()?;
        if shape.chosen.compat(Compat::RESIZE_INODE) {
            self.resize_inode()?;
        }
        if shape.orphan_file_blocks > 0 {
            self.orphan_file(shape.orphan_file_blocks)?;
            raw.s_orphan_file_inum.set(ORPHAN_FILE_INODE);
        }
        if shape.chosen.incompat(Incompat::MMP) {
            raw.s_mmp_block.set(self.mmp_block(time, raw.s_mmp_interval.get())?);
        }
        if shape.journal_blocks > 0 {
            self.journal(shape, raw)?;
        }
        Ok(())
    }

    fn block_bytes(&self) -> usize {
        self.superblock.geometry().block_bytes() as usize
    }

    fn allocate(&mut self, near: u64, blocks: u64) -> Result<Vec<Range<u64>>, MkfsError> {
        match self.space.allocate(near, blocks) {
            Some(pieces) => Ok(pieces),
            None => refuse(format!(
                "{} blocks are too few for the filesystem's own files; make it larger or its journal smaller",
                self.superblock.geometry().blocks()
            )),
        }
    }

    fn add(
        &mut self,
        number: u32,
        kind: FileType,
        permissions: u16,
        pieces: &[Range<u64>],
    ) -> Result<&mut NewInode, MkfsError> {
        let map = Map::of(self.superblock, self.space, self.planned, number, pieces)?;
        let blocks: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let size_bytes = blocks * self.block_bytes() as u64;
        self.inodes.push(NewInode { number, kind, permissions, links: 1, owner: (0, 0), size_bytes, map });
        Ok(self.inodes.last_mut().expect("just pushed"))
    }

    fn root(&mut self, owner: (u32, u32)) -> Result<(), MkfsError> {
        let pieces = self.allocate(0, 1)?;
        let entries: [(u32, &[u8]); 3] =
            [(ROOT_INODE, b"."), (ROOT_INODE, b".."), (LOST_AND_FOUND_INODE, b"lost+found")];
        let block = self.directory_block(ROOT_INODE, &entries);
        self.planned.write(pieces[0].start, block);
        let inode = self.add(ROOT_INODE, FileType::Directory, 0o755, &pieces)?;
        inode.links = 3;
        inode.owner = owner;
        Ok(())
    }

    fn lost_and_found(&mut self) -> Result<(), MkfsError> {
        let blocks =
            LOST_AND_FOUND_BYTES.div_ceil(self.block_bytes() as u64).clamp(2, LOST_AND_FOUND_MAX_BLOCKS);
        let pieces = self.allocate(0, blocks)?;
        let mut entries: &[(u32, &[u8])] = &[(LOST_AND_FOUND_INODE, b"."), (ROOT_INODE, b"..")];
        for home in pieces.iter().cloned().flatten() {
            let block = self.directory_block(LOST_AND_FOUND_INODE, entries);
            self.planned.write(home, block);
            entries = &[];
        }
        self.add(LOST_AND_FOUND_INODE, FileType::Directory, 0o700, &pieces)?.links = 2;
        Ok(())
    }

    /// A block of entries of directories, with its checksum; without entries one unused entry fills it.
    fn directory_block(&self, directory: u32, entries: &[(u32, &[u8])]) -> Vec<u8> {
        const DIRECTORY_KIND: u8 = 2;
        const TAIL_BYTES: usize = 12;
        const TAIL_KIND: u8 = 0xDE;
        let block_bytes = self.block_bytes();
        let checksums = self.superblock.has_metadata_checksums();
        let end = if checksums { block_bytes - TAIL_BYTES } else { block_bytes };
        let kind =
            if self.superblock.features().incompat.contains(Incompat::FILETYPE) { DIRECTORY_KIND } else { 0 };
        let mut bytes = Vec::with_capacity(block_bytes);
        let unused: [(u32, &[u8]); 1] = [(0, b"")];
        let entries = if entries.is_empty() { &unused } else { entries };
        for (n, &(ino, name)) in entries.iter().enumerate() {
            let own = 8 + name.len().next_multiple_of(4);
            let record = if n + 1 == entries.len() { end - bytes.len() } else { own };
            // A record that fills a block of 64 KiB does not fit 16 bits: this value stands for it.
            let record = u16::try_from(record).unwrap_or(u16::MAX);
            bytes.extend(ino.to_le_bytes());
            bytes.extend(record.to_le_bytes());
            bytes.extend([name.len() as u8, if ino == 0 { 0 } else { kind }]);
            bytes.extend(name);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes.resize(end, 0);
        if checksums {
            let sum = crc32c(checksum_seed(self.superblock, directory), &bytes);
            bytes.extend([0; 4]);
            bytes.extend((TAIL_BYTES as u16).to_le_bytes());
            bytes.extend([0, TAIL_KIND]);
            bytes.extend(sum.to_le_bytes());
        }
        bytes
    }

    fn resize_inode(&mut self) -> Result<(), MkfsError> {
        let superblock = self.superblock;
        let geometry = superblock.geometry();
        let reserved = u64::from(superblock.raw().s_reserved_gdt_blocks.get());
        let descriptor_blocks = u64::from(geometry.groups().div_ceil(geometry.descriptors_per_block()));
        let block_bytes = self.block_bytes();
        let per_block = block_bytes as u64 / 4;
        let double = self.allocate(0, 1)?[0].start;
        let backups: Vec<u64> = (1..geometry.groups())
            .map(Group)
            .filter(|&group| geometry.has_superblock(group))
            .map(|group| u64::from(group.0) * u64::from(geometry.blocks_per_group()))
            .collect();
        let (first_descriptor_block, _) = geometry.descriptor_location(Group(0));
        let mut leads = vec![U32::ZERO; per_block as usize];
        for n in descriptor_blocks..descriptor_blocks + reserved {
            let primary = first_descriptor_block.0 + n;
            leads[(n % per_block) as usize].set(primary as u32);
            let mut lists: Vec<u8> =
                backups.iter().flat_map(|distance| ((primary + distance) as u32).to_le_bytes()).collect();
            lists.resize(block_bytes, 0);
            self.planned.write(primary, lists);
        }
        self.planned.write(double, leads.as_bytes().to_vec());
        let mut i_block = [0; 60];
        i_block[DOUBLE_INDIRECT * 4..DOUBLE_INDIRECT * 4 + 4].copy_from_slice(&(double as u32).to_le_bytes());
        // Each counts as a cluster, though those of one group lie in as few clusters as they can.
        let per_cluster = u64::from(geometry.blocks_per_cluster());
        let blocks = per_cluster * (1 + reserved * (1 + backups.len() as u64));
        self.inodes.push(NewInode {
            number: RESIZE_INODE,
            kind: FileType::Regular,
            permissions: 0o600,
            links: 1,
            owner: (0, 0),
            size_bytes: resize_inode_bytes(block_bytes as u64),
            map: Map { i_block, by_extents: false, blocks },
        });
        Ok(())
    }

    fn orphan_file(&mut self, blocks: u32) -> Result<(), MkfsError> {
        const TAIL_MAGIC: u32 = 0x0B10_CA04;
        let pieces = self.allocate(0, u64::from(blocks))?;
        let seed = checksum_seed(self.superblock, ORPHAN_FILE_INODE);
        for home in pieces.iter().cloned().flatten() {
            let mut bytes = vec![0; self.block_bytes() - 8];
            let sum = crc32c(crc32c(seed, &home.to_le_bytes()), &bytes);
            bytes.extend(TAIL_MAGIC.to_le_bytes());
            let sum = if self.superblock.has_metadata_checksums() { sum } else { 0 };
            bytes.extend(sum.to_le_bytes());
            self.planned.write(home, bytes);
        }
        self.add(ORPHAN_FILE_INODE, FileType::Regular, 0o600, &pieces)?;
        Ok(())
    }

    fn mmp_block(&mut self, time: Timestamp, interval_s: u16) -> Result<u64, MkfsError> {
        let home = self.allocate(0, 1)?[0].start;
        let mut bytes = mmp::clean_block(self.superblock, time.seconds.unsigned_abs(), interval_s);
        bytes.resize(self.block_bytes(), 0);
        self.planned.write(home, bytes);
        Ok(home)
    }

    /// In the middle of the filesystem, to keep seeks short.
    fn journal(&mut self, shape: &Shape, raw: &mut RawSuperblock) -> Result<(), MkfsError> {
        let geometry = self.superblock.geometry();
        let together = 1 << self.superblock.raw().s_log_groups_per_flex;
        let middle = Group(geometry.groups() / 2 / together * together);
        let near = geometry.group_start(middle).0;
        let pieces = self.allocate(near, u64::from(shape.journal_blocks))?;
        let mut first = jbd2::empty_superblock(
            geometry.block_bytes(),
            shape.journal_blocks,
            shape.fast_commit_blocks,
            raw.s_uuid,
        );
        first.resize(self.block_bytes(), 0);
        self.planned.write(pieces[0].start, first);
        for piece in &pieces {
            self.planned.zero(piece.clone());
        }
        let inode = self.add(JOURNAL_INODE, FileType::Regular, 0o600, &pieces)?;
        // The superblock keeps a copy of where the journal is.
        let (i_block, size) = (inode.map.i_block, inode.size_bytes);
        raw.s_journal_inum.set(JOURNAL_INODE);
        raw.s_jnl_backup_type = 1;
        for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(i_block.chunks_exact(4)) {
            word.as_mut_bytes().copy_from_slice(bytes);
        }
        raw.s_jnl_blocks[15].set((size >> 32) as u32);
        raw.s_jnl_blocks[16].set(size as u32);
        Ok(())
    }
}

/// Inodes of the files that are not special, lowest first: all below and among them are in use.
pub(super) fn used_inodes(shape: &Shape) -> u32 {
    if shape.orphan_file_blocks > 0 { ORPHAN_FILE_INODE } else { FIRST_INODE }
}

/// Clusters that statfs does not count as space: the groups' own structures, and the journal.
pub(super) fn overhead_clusters(superblock: &Superblock, taken_by_groups: u64, journal_blocks: u32) -> u64 {
    let per_cluster = u64::from(superblock.geometry().blocks_per_cluster());
    let before = if superblock.features().ro_compat.contains(RoCompat::BIGALLOC) {
        0
    } else {
        u64::from(superblock.geometry().first_data_block())
    };
    before + taken_by_groups + u64::from(journal_blocks).div_ceil(per_cluster)
}

/// The size of the resize inode, whose map is as large as two levels of lists make it.
pub(super) fn resize_inode_bytes(block_bytes: u64) -> u64 {
    let per_block = block_bytes / 4;
    (12 + per_block + per_block * per_block) * block_bytes
}
