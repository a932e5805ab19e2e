//! New chunks of inodes, which are logged by their place and number, without content.

use std::sync::Arc;

use undercroft_vfs::{Ino, Result};

use super::buffer::{INODE_CRC, INODE_MAGIC, NEXT_UNLINKED};
use super::cancelled::Cancelled;
use super::format::{be32, le16};
use super::target::Target;
use super::transactions::Item;
use crate::error::corrupt;
use crate::format::geometry::CHUNK_INODES;
use crate::format::{AgBlock, AgIno, Daddr, crc};

const STRUCTURE: &str = "logged inode chunk";

/// Bytes of a cluster of inodes of 256 bytes; larger inodes have larger clusters.
const CLUSTER_BYTES: u32 = 8192;

/// Where fields of an inode lie.
mod field {
    pub(super) const VERSION: usize = 4;
    pub(super) const GENERATION: usize = 92;
    pub(super) const INO: usize = 152;
    pub(super) const UUID: usize = 160;
}

/// Writes the free inodes of a new chunk, unless its buffers were freed later on. Returns whether it did.
///
/// # Errors
/// `Corrupt` when no chunk can have that place or size; `Io`.
pub(super) fn replay(item: Item<'_>, target: &mut Target, cancelled: &Cancelled) -> Result<bool> {
    let description = item.description();
    let [ag, block, inodes, inode_bytes, blocks, generation] =
        [4, 8, 12, 16, 20, 24].map(|at| be32(description, at));
    let superblock = Arc::clone(&target.superblock);
    let geometry = superblock.geometry();
    let wrong = |what: String| corrupt(STRUCTURE, format!("at block {block} of group {ag} {what}"));
    if description.len() < 28 || le16(description, 2) != 1 {
        return Err(wrong(format!("has {} bytes", description.len())));
    }
    if inode_bytes != geometry.inode_bytes() {
        return Err(wrong(format!("has inodes of {inode_bytes} bytes, not {}", geometry.inode_bytes())));
    }
    let per_block = geometry.inodes_per_block();
    if inodes == 0 || inodes > CHUNK_INODES.max(per_block) || blocks.checked_mul(per_block) != Some(inodes) {
        return Err(wrong(format!("has {inodes} inodes in {blocks} blocks")));
    }
    let start = geometry
        .ag(ag)
        .and_then(|ag| geometry.join(ag, AgBlock(block)))
        .filter(|start| geometry.check_run(*start, u64::from(blocks)).is_some())
        .ok_or_else(|| wrong(format!("of {blocks} blocks lies outside the filesystem")))?;
    let daddr = geometry.daddr(start).ok_or_else(|| wrong("lies outside the filesystem".into()))?;

    let cluster_blocks = cluster_blocks(target);
    let cluster_sectors = cluster_blocks * (geometry.block_bytes() / 512);
    let clusters = (blocks / cluster_blocks).max(1);
    let freed = (0..clusters)
        .filter(|cluster| {
            cancelled.holds((Daddr(daddr.0 + u64::from(cluster * cluster_sectors)), cluster_sectors))
        })
        .count();
    if freed > 0 {
        return Ok(false);
    }

    let ag = crate::format::AgNumber(ag);
    let mut bytes = vec![0; blocks as usize * geometry.block_bytes() as usize];
    for (index, inode) in bytes.chunks_exact_mut(inode_bytes as usize).enumerate() {
        let within = AgIno(block * per_block + index as u32);
        let Some(Ino(number)) = geometry.join_ino(ag, within) else { break };
        inode[..2].copy_from_slice(&INODE_MAGIC.to_be_bytes());
        inode[field::VERSION] = if superblock.features().has_crc() { 3 } else { 2 };
        inode[field::GENERATION..][..4].copy_from_slice(&generation.to_be_bytes());
        inode[NEXT_UNLINKED..][..4].copy_from_slice(&u32::MAX.to_be_bytes());
        if superblock.features().has_crc() {
            inode[field::INO..][..8].copy_from_slice(&number.to_be_bytes());
            inode[field::UUID..][..16].copy_from_slice(superblock.meta_uuid().as_bytes());
            crc::seal(inode, INODE_CRC);
        }
    }
    target.write(daddr.byte(), &bytes)?;
    Ok(true)
}

/// Blocks of a cluster: the buffers in which inodes are read, written and freed.
fn cluster_blocks(target: &Target) -> u32 {
    let geometry = target.superblock.geometry();
    let mut bytes = CLUSTER_BYTES;
    if target.superblock.features().has_crc() {
        let larger = CLUSTER_BYTES * (geometry.inode_bytes() / 256);
        if geometry.inode_alignment() >= larger.div_ceil(geometry.block_bytes()) {
            bytes = larger;
        }
    }
    (bytes / geometry.block_bytes()).max(1)
}
