//! Finding every checksummed structure of a good image.

use std::collections::HashSet;

use undercroft_vfs::{FileSystem, FileType, Ino, Result};

use super::mend::{Checksum, Site, u16_at};
use crate::Ext4;
use crate::checksum::crc32c;
use crate::features::RoCompat;
use crate::inode::{self, Inode, InodeFlags, Location, ROOT_INODE};
use crate::map::{self, RunState};
use crate::numbers::{FileBlock, FsBlock, Group};
use crate::volume::Volume;

/// Every structure with metadata in `fs`: superblock, group descriptors, and the inodes, extent trees,
/// directory blocks and attribute blocks of all files that have a name.
///
/// # Errors
/// Corruption of the image; I/O failure.
pub fn sites(fs: &Ext4) -> Result<Vec<Site>> {
    let mut survey = Survey { volume: fs.volume(), sites: Vec::new() };
    survey.add_superblock();
    survey.add_group_descriptors();
    let mut seen = HashSet::from([ROOT_INODE]);
    let mut pending = vec![ROOT_INODE];
    while let Some(number) = pending.pop() {
        let inode = Inode::read(survey.volume, number)?;
        survey.add_inode(&inode)?;
        if inode.kind != FileType::Directory {
            continue;
        }
        let handle = fs.read_inode(Ino(u64::from(number)))?;
        handle.read_dir(Default::default(), &mut |entry| {
            let child = entry.ino.0 as u32;
            if seen.insert(child) {
                pending.push(child);
            }
            std::ops::ControlFlow::Continue(())
        })?;
    }
    if let Some(number) = fs.superblock().journal_inode() {
        let journal = Inode::read(survey.volume, number)?;
        survey.add_inode(&journal)?;
        survey.add_journal(&journal)?;
    }
    Ok(survey.sites)
}

struct Survey<'a> {
    volume: &'a Volume,
    sites: Vec<Site>,
}

impl Survey<'_> {
    /// Adds a structure; its checksum is `checksum` where the filesystem keeps them.
    fn add(&mut self, structure: &'static str, start: u64, len: u64, checksum: Checksum) {
        let checksum =
            if self.volume.superblock().has_metadata_checksums() { checksum } else { Checksum::None };
        self.sites.push(Site { structure, range: start..start + len, checksum });
    }

    fn add_block(&mut self, structure: &'static str, block: FsBlock, checksum: Checksum) {
        let len = u64::from(self.volume.block_bytes());
        self.add(structure, block.0 * len, len, checksum);
    }

    fn add_superblock(&mut self) {
        self.add("superblock", 1024, 1024, Checksum::Before { seed: !0, at: 1020 });
    }

    fn add_group_descriptors(&mut self) {
        const AT: usize = 0x1E;
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry();
        let checksummed = superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM);
        for group in (0..geometry.groups()).map(Group) {
            let (block, byte) = geometry.descriptor_location(group);
            let seed = crc32c(superblock.checksum_seed(), &group.0.to_le_bytes());
            let checksum = if checksummed { Checksum::AroundLow16 { seed, at: AT } } else { Checksum::None };
            let start = block.0 * u64::from(geometry.block_bytes()) + byte as u64;
            self.add("group descriptor", start, u64::from(geometry.descriptor_bytes()), checksum);
        }
    }

    fn add_inode(&mut self, inode: &Inode) -> Result<()> {
        let superblock = self.volume.superblock();
        let Location { block, byte, .. } = inode::locate(self.volume, inode.number)?;
        let start = block.0 * u64::from(self.volume.block_bytes()) + byte as u64;
        let checksum = Checksum::Inode { fs_seed: superblock.checksum_seed(), number: inode.number };
        self.add("inode", start, u64::from(superblock.geometry().inode_bytes()), checksum);
        if inode.xattr_block != FsBlock(0) {
            const AT: usize = 0x10;
            let seed = crc32c(superblock.checksum_seed(), &inode.xattr_block.0.to_le_bytes());
            self.add_block("extended attribute block", inode.xattr_block, Checksum::Around { seed, at: AT });
        }
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.add_extent_nodes(inode, inode.i_block.to_vec())?;
        }
        if inode.kind == FileType::Directory && !inode.has_inline_data() {
            self.add_directory_blocks(inode)?;
        }
        Ok(())
    }

    fn add_extent_nodes(&mut self, inode: &Inode, root: Vec<u8>) -> Result<()> {
        let mut pending = vec![root];
        while let Some(node) = pending.pop() {
            let (entries, depth) = (usize::from(u16_at(&node, 2)), u16_at(&node, 6));
            if depth == 0 {
                continue;
            }
            for entry in node[12..].chunks_exact(12).take(entries) {
                let low = u64::from(u16_at(entry, 4)) | u64::from(u16_at(entry, 6)) << 16;
                let child = FsBlock(low | u64::from(u16_at(entry, 8)) << 32);
                let seed = inode.checksum_seed(self.volume);
                self.add_block("extent tree node", child, Checksum::Extents { seed });
                pending.push(self.volume.read_block(child)?.to_vec());
            }
        }
        Ok(())
    }

    fn add_directory_blocks(&mut self, inode: &Inode) -> Result<()> {
        /// Where a root's count and limit lie: after `.`, `..` and the index's own header.
        const ROOT_COUNTS: usize = 32;
        /// In the other nodes: after one empty entry that covers the block.
        const INNER_COUNTS: usize = 8;
        let block_bytes = self.volume.block_bytes() as usize;
        let seed = inode.checksum_seed(self.volume);
        let indexed = inode.flags.contains(InodeFlags::INDEXED);
        for number in 0..inode.size_bytes / block_bytes as u64 {
            let run = map::lookup(self.volume, inode, FileBlock(number as u32))?;
            let RunState::Mapped(block) = run.state else { continue };
            let bytes = self.volume.read_block(block)?;
            // Only an index node begins with one empty entry as long as the block; 64 KiB is written as 0 or -1.
            let entry_bytes = usize::from(u16_at(&bytes, 4));
            let covers_all = entry_bytes == block_bytes || matches!(entry_bytes, 0 | 0xffff);
            let empty = bytes[..4] == [0; 4] && covers_all;
            let checksum = if indexed && number == 0 {
                Checksum::HashTree { seed, counts: ROOT_COUNTS }
            } else if indexed && empty {
                Checksum::HashTree { seed, counts: INNER_COUNTS }
            } else {
                // The last twelve bytes look like an entry and end in the checksum, which leaves them out.
                Checksum::DirectoryTail { seed }
            };
            self.add_block("directory block", block, checksum);
        }
        Ok(())
    }

    /// The log's blocks carry checksums of several kinds; they are damaged as they are, except its superblock.
    fn add_journal(&mut self, journal: &Inode) -> Result<()> {
        let blocks = journal.size_bytes / u64::from(self.volume.block_bytes());
        for (file_block, first, count) in map::collect_whole(self.volume, journal, blocks)? {
            for n in 0..count {
                let structure =
                    if file_block.0 == 0 && n == 0 { "journal superblock" } else { "journal block" };
                self.add_block(structure, FsBlock(first.0 + n), Checksum::None);
            }
        }
        Ok(())
    }
}
