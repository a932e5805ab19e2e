//! The first pass: group descriptors, and the blocks of the groups' own structures.

use undercroft_diskfs::At;
use undercroft_vfs::Result;
use zerocopy::FromBytes;

use super::checker::{Checker, GroupState};
use super::raw::{le16, le32};
use crate::features::Incompat;
use crate::group::{GroupFlags, are_checked, descriptor_checksum};
use crate::numbers::{FsBlock, Group};
use crate::superblock::RawSuperblock;

impl Checker<'_> {
    pub(super) fn check_groups(&mut self) -> Result<()> {
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry();
        // Before the first group there may be a boot block.
        for block in 0..u64::from(geometry.first_data_block()) {
            self.claim_for_groups(At::filesystem(), block, 1);
        }
        for group in (0..geometry.groups()).map(Group) {
            let boot = geometry.block_bits() == 10 && geometry.first_data_block() == 0 && group == Group(0);
            let base = u64::from(boot)
                + u64::from(geometry.has_superblock(group))
                + u64::from(geometry.descriptor_blocks_in(group));
            self.claim_for_groups(At::group(group.0), geometry.group_start(group).0, base);
        }
        for group in 0..geometry.groups() {
            let state = self.check_descriptor(group)?;
            self.groups.push(state);
        }
        if let Some((block, _)) = superblock.mmp() {
            self.claim_for_groups(At::filesystem(), block, 1);
        }
        self.check_backups()
    }

    fn check_descriptor(&mut self, group: u32) -> Result<GroupState> {
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry();
        let (block, byte) = geometry.descriptor_location(Group(group));
        let buffer = self.volume.read_block(block)?;
        let bytes = &buffer[byte..byte + usize::from(geometry.descriptor_bytes())];
        let at = At::group(group);
        let checked = are_checked(superblock);
        if checked {
            let (stored, computed) =
                (le16(bytes, 0x1E), descriptor_checksum(superblock, Group(group), bytes));
            if stored != computed {
                let detail =
                    format!("descriptor's checksum is {stored:#06x}, its content gives {computed:#06x}");
                self.findings.add("group-checksum", at.block(block.0), detail);
            }
        }
        let mut state = decode(bytes);
        let never_used = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        if !checked && state.flags.intersects(never_used) {
            self.findings.add(
                "group-flags",
                at,
                "says that bitmaps were never written, which takes a checksum",
            );
            state.flags.remove(never_used);
        }
        if !checked {
            // It is not kept without checksums.
            state.unused_inodes = 0;
        } else if state.unused_inodes > geometry.inodes_per_group() {
            let detail =
                format!("{} of {} inodes were never used", state.unused_inodes, geometry.inodes_per_group());
            self.findings.add("group-unused-inodes", at, detail);
            state.unused_inodes = 0;
        }
        let tables = [
            ("block bitmap", &mut state.block_bitmap, 1),
            ("inode bitmap", &mut state.inode_bitmap, 1),
            ("inode table", &mut state.inode_table, u64::from(geometry.inode_table_blocks())),
        ];
        for (what, first, count) in tables {
            if let Some(detail) = self.misplaced(group, *first, count) {
                self.findings.add("group-misplaced", at.block(*first), format!("{what} {detail}"));
                *first = 0;
            } else {
                self.claim_for_groups(at, *first, count);
            }
        }
        Ok(state)
    }

    fn misplaced(&self, group: u32, first: u64, count: u64) -> Option<&'static str> {
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry();
        if !geometry.contains(FsBlock(first), count) {
            return Some("lies outside the filesystem");
        }
        let start = geometry.group_start(Group(group)).0;
        let end = start + u64::from(geometry.blocks_per_group());
        let flexible = superblock.features().incompat.contains(Incompat::FLEX_BG);
        (!flexible && (first < start || first + count > end)).then_some("lies outside its group")
    }

    /// Copies of the superblock say the same of what never changes without them.
    fn check_backups(&mut self) -> Result<()> {
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry();
        let primary = superblock.raw();
        for group in (1..geometry.groups()).map(Group).filter(|&group| geometry.has_superblock(group)) {
            let block = geometry.group_start(group);
            let buffer = self.volume.read_block(block)?;
            let Ok((copy, _)) = RawSuperblock::read_from_prefix(&buffer) else { continue };
            let differs = copy.s_magic != primary.s_magic
                || copy.s_uuid != primary.s_uuid
                || copy.s_log_block_size != primary.s_log_block_size
                || copy.s_blocks_per_group != primary.s_blocks_per_group
                || copy.s_inodes_per_group != primary.s_inodes_per_group
                || copy.s_inode_size != primary.s_inode_size
                || copy.s_first_data_block != primary.s_first_data_block;
            if differs {
                let detail = "the copy of the superblock is not one of this filesystem's superblock";
                self.findings.add("backup-superblock", At::group(group.0).block(block.0), detail);
            }
        }
        Ok(())
    }
}

fn decode(bytes: &[u8]) -> GroupState {
    let wide = |low: usize, high: usize| u64::from(le32(bytes, low)) | u64::from(le32(bytes, high)) << 32;
    let count = |low: usize, high: usize| u32::from(le16(bytes, low)) | u32::from(le16(bytes, high)) << 16;
    GroupState {
        block_bitmap: wide(0x00, 0x20),
        inode_bitmap: wide(0x04, 0x24),
        inode_table: wide(0x08, 0x28),
        free_clusters: count(0x0C, 0x2C),
        free_inodes: count(0x0E, 0x2E),
        used_directories: count(0x10, 0x30),
        flags: GroupFlags::from_bits_retain(le16(bytes, 0x12)),
        block_bitmap_sum: count(0x18, 0x38),
        inode_bitmap_sum: count(0x1A, 0x3A),
        unused_inodes: count(0x1C, 0x32),
    }
}
