//! Values that are too large for a block and are the content of an inode of their own (feature `ea_inode`).
//!
//! Source: kernel documentation, section "Extended Attributes", and inodes that Linux made. The value's CRC-32C
//! stands in the inode's access time, and the entry's hash is made of the name and that. Values that Lustre
//! wrote before Linux had the feature have no hash; such an inode names its owner in the modification time and
//! shares its generation.

use undercroft_vfs::{Error, InodeFlags, Result};

use super::entry::{Entry, VALUE_MAX_BYTES, entry_hashes};
use crate::checksum::crc32c;
use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::map::{self, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;

const STRUCTURE: &str = "extended attribute inode";

/// The value of `entry`, an attribute of `owner`, which lies in inode `number` and is `size_bytes` long.
pub(super) fn read(
    volume: &Volume,
    owner: &Inode,
    entry: &Entry<'_>,
    number: u32,
    size_bytes: u32,
) -> Result<Vec<u8>> {
    let wrong = |detail: String| corrupt_inode(STRUCTURE, number, None, detail);
    let inode = Inode::read(volume, number).map_err(|error| match error {
        Error::Stale => wrong(format!("holds a value of inode {}, but is not in use", owner.number)),
        other => other,
    })?;
    if !inode.flags.contains(InodeFlags::EA_INODE) || inode.has_inline_data() {
        return Err(wrong(format!("holds a value of inode {}, but is not marked as such", owner.number)));
    }
    if inode.size_bytes != u64::from(size_bytes) || size_bytes > VALUE_MAX_BYTES {
        return Err(wrong(format!("is {} bytes long, its value {size_bytes}", inode.size_bytes)));
    }
    let value = read_content(volume, &inode, size_bytes as usize)?;

    let is_lustre = inode.modified.seconds as u32 == owner.number && inode.generation == owner.generation;
    if !is_lustre {
        let computed = crc32c(volume.superblock().checksum_seed(), &value);
        let stored = inode.accessed.seconds as u32;
        if stored != computed {
            return Err(wrong(format!("hash is {stored:#010x}, its content gives {computed:#010x}")));
        }
        let expected = entry_hashes(entry.name, &[computed]);
        if !expected.contains(&entry.hash) {
            let detail = format!(
                "entry of inode {} has hash {:#010x}, its value gives {:#010x}",
                owner.number, entry.hash, expected[0]
            );
            return Err(wrong(detail));
        }
    }
    Ok(value)
}

fn read_content(volume: &Volume, inode: &Inode, size: usize) -> Result<Vec<u8>> {
    let block_bytes = volume.block_bytes() as usize;
    let blocks = size.div_ceil(block_bytes) as u64;
    let mut value = Vec::with_capacity(size);
    let mut at = 0;
    while at < blocks {
        let run = map::lookup(volume, inode, FileBlock(at as u32))?;
        let RunState::Mapped(first) = run.state else {
            let detail = format!("has a hole at block {at}");
            return Err(corrupt_inode(STRUCTURE, inode.number, None, detail));
        };
        let count = run.len.min(blocks - at);
        volume.buffers().prefetch(first.0, count);
        for block in first.0..first.0 + count {
            let buffer = volume.read_block(FsBlock(block))?;
            let wanted = (size - value.len()).min(block_bytes);
            value.extend_from_slice(&buffer[..wanted]);
        }
        at += count;
    }
    Ok(value)
}
