//! Orphans: inodes that were unlinked while open, or whose truncation was under way, when the system stopped.
//!
//! Source: kernel documentation, sections "Orphan list" and "Orphan file". Two homes: a list that begins in the
//! superblock and goes on in each inode's deletion time, and a file of inode numbers with a checksum a block.
//! A reader needs neither to show the right tree; they are counted for people and for the checker.

use std::collections::HashSet;

use undercroft_vfs::Result;
use zerocopy::FromBytes;

use crate::checksum::crc32c;
use crate::error::{corrupt, corrupt_inode};
use crate::inode::{Inode, InodeBytes, RawInode};
use crate::map;
use crate::numbers::FsBlock;
use crate::volume::{Judged, Volume};

const FILE: &str = "orphan file";
const TAIL_MAGIC: u32 = 0x0B10_CA04;
const TAIL_BYTES: usize = 8;

/// The numbers of all orphans, each once: those of the list in its order, then those of the file.
pub(crate) fn collect(volume: &Volume) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    collect_list(volume, &mut found, &mut seen)?;
    collect_file(volume, &mut found, &mut seen)?;
    Ok(found)
}

fn collect_list(volume: &Volume, found: &mut Vec<u32>, seen: &mut HashSet<u32>) -> Result<()> {
    let mut next = volume.superblock().first_orphan();
    // Ends: a number that comes twice is an error, and there are only so many.
    while next != 0 {
        if !seen.insert(next) {
            return Err(corrupt("orphan list", format!("inode {next} comes twice")));
        }
        // As it lies on disk: a fast commit logs the successor that an inode had when it was logged, which may be
        // one in another list than that of the superblock.
        let bytes = InodeBytes::read_on_disk(volume, next)?;
        found.push(next);
        next = RawInode::ref_from_prefix(&bytes).map_or(0, |(raw, _)| raw.i_dtime.get());
    }
    Ok(())
}

fn collect_file(volume: &Volume, found: &mut Vec<u32>, seen: &mut HashSet<u32>) -> Result<()> {
    let Some(number) = volume.superblock().orphan_file_inode() else { return Ok(()) };
    let inode = Inode::read(volume, number)?;
    let blocks = inode.size_bytes.div_ceil(u64::from(volume.block_bytes()));
    for (_, first, count) in map::collect_whole(volume, &inode, blocks)? {
        for block in (first.0..first.0 + count).map(FsBlock) {
            collect_block(volume, &inode, block, found, seen)?;
        }
    }
    Ok(())
}

fn collect_block(
    volume: &Volume,
    file: &Inode,
    block: FsBlock,
    found: &mut Vec<u32>,
    seen: &mut HashSet<u32>,
) -> Result<()> {
    let buffer = volume.read_block(block)?;
    let (numbers, tail) = buffer.split_at(buffer.len() - TAIL_BYTES);
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    let wrong = |detail: String| Err(corrupt_inode(FILE, file.number, Some(block), detail));
    buffer.verify_once(Judged::OrphanBlock as u32, || {
        let (magic, stored) = (word(tail, 0), word(tail, 4));
        if magic != TAIL_MAGIC {
            return wrong(format!("magic number is {magic:#010x}, not {TAIL_MAGIC:#010x}"));
        }
        if volume.superblock().has_metadata_checksums() {
            let seed = crc32c(file.checksum_seed(volume), &block.0.to_le_bytes());
            let computed = crc32c(seed, numbers);
            if stored != computed {
                return wrong(format!("checksum is {stored:#010x}, its content gives {computed:#010x}"));
            }
        }
        Ok(())
    })?;
    for number in numbers.chunks_exact(4).map(|n| word(n, 0)).filter(|&n| n != 0) {
        if number > volume.superblock().geometry().inodes() {
            return wrong(format!("names inode {number}, which does not exist"));
        }
        if seen.insert(number) {
            found.push(number);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{Access, Device, MemoryDevice};
    use undercroft_oracle::{Mke2fs, Scratch};

    use super::*;
    use crate::inode::incarnation_on_disk;
    use crate::journal::{FastCommitOp, FastCommitView};
    use crate::superblock::Superblock;

    /// When the first of two orphans was logged, the list had moved on: its successor in the log is not the one
    /// on disk.
    #[test]
    fn the_list_goes_on_as_on_disk_whatever_fast_commits_log() {
        let source = Scratch::new("tree").unwrap();
        for name in ["a", "b"] {
            std::fs::write(source.path().join(name), name).unwrap();
        }
        let image = Mke2fs::new("ext4", 8).args(["-d", source.path().to_str().unwrap()]).make().unwrap();
        let set = [
            "set_super_value last_orphan 12",
            "set_inode_field <12> dtime 13",
            "set_inode_field <13> dtime 0",
        ];
        image.debugfs_write(&set).unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let device: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly));
        let superblock = Superblock::read(&*device).unwrap();
        let volume = Volume::new(device, superblock, 1 << 20);
        let mut raw: Box<[u8]> = InodeBytes::read(&volume, 12).unwrap()[..160].into();
        raw[0x14..0x18].fill(0);
        let operations = [FastCommitOp::Inode { ino: 12, raw }];
        let view = FastCommitView::fold(&operations, |ino| incarnation_on_disk(&volume, ino)).unwrap();
        assert_eq!(collect(&volume.with_fast_commits(view)).unwrap(), [12, 13]);
    }
}
