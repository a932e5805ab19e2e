//! Reading the list and the file as they lie on the disk.
//!
//! A read-only open does not need them for a correct tree; they are counted for reports and for the checker.

use std::collections::HashSet;

use undercroft_cache::Buffer;
use undercroft_vfs::Result;
use zerocopy::FromBytes;

use crate::checksum::crc32c;
use crate::error::{corrupt, corrupt_inode};
use crate::inode::{Inode, InodeBytes, NamedBy, RawInode};
use crate::map;
use crate::numbers::FsBlock;
use crate::volume::{Validated, Volume};

const FILE: &str = "orphan file";
pub(super) const TAIL_MAGIC: u32 = 0x0B10_CA04;
/// At the end of each block of the file: a magic number, and the checksum.
pub(super) const TAIL_BYTES: usize = 8;

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
        let following = next_in_list(volume, next)?;
        found.push(next);
        next = following;
    }
    Ok(())
}

fn collect_file(volume: &Volume, found: &mut Vec<u32>, seen: &mut HashSet<u32>) -> Result<()> {
    let Some(number) = volume.superblock().orphan_file_inode() else { return Ok(()) };
    let inode = Inode::read_own(volume, number, NamedBy::SuperblockAsOrphanFile)?;
    for block in blocks_of(volume, &inode)? {
        collect_block(volume, &inode, block, found, seen)?;
    }
    Ok(())
}

/// Where the blocks of the orphan file lie.
///
/// # Errors
/// Corruption of its map, or that it lacks blocks; I/O failure.
pub(crate) fn blocks_of(volume: &Volume, file: &Inode) -> Result<impl Iterator<Item = FsBlock>> {
    let blocks = file.size_bytes.div_ceil(u64::from(volume.block_bytes()));
    let pieces = map::collect_whole(volume, file, blocks)?;
    Ok(pieces.into_iter().flat_map(|(_, first, count)| (first.0..first.0 + count).map(FsBlock)))
}

fn collect_block(
    volume: &Volume,
    file: &Inode,
    block: FsBlock,
    found: &mut Vec<u32>,
    seen: &mut HashSet<u32>,
) -> Result<()> {
    let buffer = volume.read_block(block)?;
    for number in validate_block(volume, file, block, &buffer)?.filter(|number| *number != 0) {
        if seen.insert(number) {
            found.push(number);
        }
    }
    Ok(())
}

/// The slots of a block of the orphan file: numbers of inodes that exist, or 0.
///
/// # Errors
/// Corruption.
pub(super) fn validate_block<'b>(
    volume: &Volume,
    file: &Inode,
    block: FsBlock,
    buffer: &'b Buffer,
) -> Result<impl Iterator<Item = u32> + 'b> {
    let (numbers, tail) = buffer.split_at(buffer.len() - TAIL_BYTES);
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    let wrong = |detail: String| corrupt_inode(FILE, file.number, Some(block), detail);
    buffer.verify_once(Validated::OrphanBlock as u32, || {
        let (magic, stored) = (word(tail, 0), word(tail, 4));
        if magic != TAIL_MAGIC {
            return Err(wrong(format!("magic number is {magic:#010x}, not {TAIL_MAGIC:#010x}")));
        }
        if volume.superblock().has_metadata_checksums() {
            let seed = crc32c(file.checksum_seed(volume), &block.0.to_le_bytes());
            let computed = crc32c(seed, numbers);
            if stored != computed {
                return Err(wrong(format!("checksum is {stored:#010x}, its content gives {computed:#010x}")));
            }
        }
        Ok(())
    })?;
    let inodes = volume.superblock().geometry().inodes();
    let numbers = numbers.chunks_exact(4).map(move |n| word(n, 0));
    if let Some(number) = numbers.clone().find(|number| *number > inodes) {
        return Err(wrong(format!("names inode {number}, which does not exist")));
    }
    Ok(numbers)
}

/// The next on the list after an inode, which is in its deletion time. As it lies on disk: a fast commit logs the
/// successor that an inode had when it was logged, which may be one in another list than that of the superblock.
///
/// # Errors
/// Corruption: the inode cannot exist; I/O failure.
pub(super) fn next_in_list(volume: &Volume, number: u32) -> Result<u32> {
    let bytes = InodeBytes::read_on_disk(volume, number)?;
    Ok(RawInode::ref_from_prefix(&bytes).map_or(0, |(raw, _)| raw.i_dtime.get()))
}

#[cfg(all(test, feature = "oracle"))]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{Access, Device, MemoryDevice};
    use undercroft_oracle::{Mke2fs, Scratch};

    use super::*;
    use crate::fast_commit::{FastCommitOp, FastCommitView};
    use crate::inode::incarnation_on_disk;
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
