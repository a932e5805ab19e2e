//! The filesystem's own files: journal, resize inode, orphan file.

use std::collections::HashSet;

use undercroft_diskfs::At;
use undercroft_vfs::{Error, FileType, Result};

use super::checker::Checker;
use super::map::Walked;
use super::raw::{Inode, RESIZE_INODE, le32};
use crate::features::{Compat, RoCompat};
use crate::inode::InodeFlags;
use crate::numbers::{FsBlock, Group};
use crate::orphan;

const DIRECT: u64 = 12;
const DOUBLE_INDIRECT: usize = 13;

impl Checker<'_> {
    /// Collects the orphans, before inodes are checked.
    pub(super) fn collect_orphans(&mut self) -> Result<()> {
        match orphan::collect(self.volume) {
            Ok(orphans) => self.orphans = orphans.into_iter().collect(),
            Err(Error::Corrupt(corruption)) => {
                self.findings.add("orphans", At::filesystem(), corruption.to_string());
            }
            Err(error) => return Err(error),
        }
        let superblock = self.volume.superblock();
        let in_file = superblock.first_orphan() == 0 && !self.orphans.is_empty();
        let present = superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        if in_file && !present {
            self.findings.add(
                "orphans",
                At::filesystem(),
                "the orphan file has entries, and nothing says so",
            );
        }
        Ok(())
    }

    /// Every block of a log is there; what they hold is validated when it is replayed.
    pub(super) fn check_journal(&mut self, inode: &Inode<'_>, kind: FileType, walked: &Walked) -> Result<()> {
        const MAGIC: u32 = 0xC03B_3998;
        let at = At::inode(inode.number);
        let blocks: u64 = walked.runs.iter().map(|run| run.count).sum();
        let size = inode.size_bytes() >> self.volume.superblock().geometry().block_bits();
        if kind != FileType::Regular || inode.links() == 0 {
            self.findings.add("journal", at, "the journal is not a file in use");
        }
        if walked.end() != blocks || blocks < size || size == 0 || walked.runs.iter().any(|run| run.unwritten)
        {
            self.findings.add("journal", at, format!("the journal has {blocks} of {size} blocks"));
            return Ok(());
        }
        let Some(first) = walked.runs.first() else { return Ok(()) };
        let buffer = self.volume.read_block(FsBlock(first.first))?;
        let (magic, length) = (le32(&buffer, 0).swap_bytes(), u64::from(le32(&buffer, 16).swap_bytes()));
        if magic != MAGIC {
            let detail = format!("the journal's magic number is {magic:#010x}, not {MAGIC:#010x}");
            self.findings.add("journal", at.block(first.first), detail);
        } else if length > size {
            let detail = format!("the log has {length} blocks, its file {size}");
            self.findings.add("journal", at.block(first.first), detail);
        }
        Ok(())
    }

    /// The resize inode maps the blocks reserved for group descriptors, in one certain way.
    pub(super) fn check_resize_inode(&mut self, inode: &Inode<'_>) -> Result<()> {
        let at = At::inode(inode.number);
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry().clone();
        if !superblock.features().compat.contains(Compat::RESIZE_INODE) {
            self.check_unused_resize_inode(inode);
            return Ok(());
        }
        if inode.size_bytes() > i32::MAX as u64
            && !superblock.features().ro_compat.contains(RoCompat::LARGE_FILE)
        {
            let detail = format!("size is {} bytes, which take the feature large_file", inode.size_bytes());
            self.findings.add("resize-inode", at, detail);
        }
        let slots = &inode.raw.i_block;
        let others = (0..15).filter(|&slot| slot != DOUBLE_INDIRECT).any(|slot| le32(slots, slot * 4) != 0);
        let double = u64::from(le32(slots, DOUBLE_INDIRECT * 4));
        if inode.kind() != Some(FileType::Regular)
            || inode.links() == 0
            || inode.flags().intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
            || others
            || !geometry.contains(FsBlock(double), 1)
        {
            self.findings.add(
                "resize-inode",
                at,
                "does not map just the blocks reserved for group descriptors",
            );
            return Ok(());
        }
        self.claim(inode.number, double, 1);
        let reserved = u64::from(superblock.raw().s_reserved_gdt_blocks.get());
        let per_block = u64::from(geometry.block_bytes() / 4);
        let descriptor_blocks = u64::from(geometry.descriptor_blocks_before_meta_groups());
        let (first_descriptor, _) = geometry.descriptor_location(Group(0));
        let backups: Vec<u64> = (1..geometry.groups())
            .map(Group)
            .filter(|&group| geometry.has_superblock(group))
            .map(|group| u64::from(group.0) * u64::from(geometry.blocks_per_group()))
            .collect();
        let leads = self.volume.read_block(FsBlock(double))?;
        let wanted: HashSet<u64> =
            (descriptor_blocks..descriptor_blocks + reserved).map(|n| n % per_block).collect();
        if (0..per_block).any(|slot| !wanted.contains(&slot) && le32(&leads, slot as usize * 4) != 0) {
            let detail = "leads to more blocks than are reserved for group descriptors";
            self.findings.add("resize-inode", at.block(double), detail);
        }
        let mut end = 0;
        for n in descriptor_blocks..descriptor_blocks + reserved {
            let primary = first_descriptor.0 + n;
            let lead = u64::from(le32(&leads, (n % per_block) as usize * 4));
            if lead != primary {
                let detail = format!("leads to block {lead} where {primary} is reserved");
                self.findings.add("resize-inode", at.block(double), detail);
                return Ok(());
            }
            let lists = self.volume.read_block(FsBlock(primary))?;
            let differs = backups.iter().enumerate().take(per_block as usize).find_map(|(slot, distance)| {
                let (stored, expected) = (u64::from(le32(&lists, slot * 4)), primary + distance);
                (stored != expected).then_some((stored, expected))
            });
            if let Some((stored, expected)) = differs {
                let detail = format!("names block {stored} where {expected} is reserved");
                self.findings.add("resize-inode", at.block(primary), detail);
                return Ok(());
            }
            if (backups.len() as u64..per_block).any(|slot| le32(&lists, slot as usize * 4) != 0) {
                let detail = "names more blocks than are reserved for group descriptors";
                self.findings.add("resize-inode", at.block(primary), detail);
            }
            if !backups.is_empty() {
                end = end.max(DIRECT + per_block * (1 + n % per_block) + backups.len() as u64);
            }
        }
        if inode.size_bytes() < end.saturating_sub(1) << geometry.block_bits() {
            let detail =
                format!("size is {} bytes, but file block {} is mapped", inode.size_bytes(), end - 1);
            self.findings.add("inode-size", at, detail);
        }
        let blocks = 1 + reserved * (1 + backups.len() as u64);
        self.check_sectors(inode, blocks);
        Ok(())
    }

    /// A reserved inode that is not in use, although the superblock may name it.
    pub(super) fn check_unused_reserved(&mut self, inode: &Inode<'_>) {
        let superblock = self.volume.superblock();
        let quota = superblock.features().ro_compat.contains(RoCompat::QUOTA);
        if quota && superblock.quota_inodes().contains(&inode.number) {
            let detail = "is not in use, and the superblock names it as a quota file";
            self.findings.add("quota-inode", At::inode(inode.number), detail);
        }
        self.check_unused_resize_inode(inode);
    }

    fn check_unused_resize_inode(&mut self, inode: &Inode<'_>) {
        if inode.number != RESIZE_INODE {
            return;
        }
        let wanted = self.volume.superblock().features().compat.contains(Compat::RESIZE_INODE);
        let is_empty = inode.raw.i_block.iter().all(|&byte| byte == 0);
        if wanted || !is_empty {
            let detail = if wanted { "is not in use" } else { "is in use without the feature resize_inode" };
            self.findings.add("resize-inode", At::inode(inode.number), detail);
        }
    }
}
