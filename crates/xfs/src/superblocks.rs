//! The superblock and its copies in the other groups, changed under handles.
//!
//! A changed superblock is part of the transaction as any other block, and so are the copies as far as the log has room for
//! them: a crash leaves all of them old or all of them new. Its counters are no part of it: they are written past the
//! transactions when the filesystem is closed, and are recounted after a crash.
//!
//! Locks: class `resize`, held by the caller from reading the superblock until it is changed.

use std::ops::Range;

use undercroft_vfs::Result;
use zerocopy::FromBytes;

use crate::format::superblock::{CRC_OFFSET, RawSuperblock};
use crate::format::{AgBlock, AgNumber, FsBlock, Superblock, crc};
use crate::transaction::{Block, Handle, Seal};
use crate::volume::Volume;
use crate::writer::Mounted;

/// The sector of the first superblock.
///
/// # Errors
/// I/O failure.
pub(crate) fn sector(volume: &Volume) -> Result<Vec<u8>> {
    let block = volume.read_block(FsBlock(0))?;
    Ok(block[..volume.geometry().sector_bytes() as usize].to_vec())
}

/// Makes a sector's checksum right.
pub(crate) fn seal(sector: &mut [u8]) {
    crc::seal(sector, CRC_OFFSET);
}

/// Whether a sector holds a copy of a superblock, undamaged and with the same sizes.
pub(crate) fn is_copy(sector: &[u8], of: &Superblock) -> bool {
    let Ok((raw, _)) = RawSuperblock::read_from_prefix(sector) else { return false };
    let own = of.raw();
    crc::verify(sector, CRC_OFFSET).is_ok()
        && raw.sb_magicnum == own.sb_magicnum
        && (raw.sb_dblocks, raw.sb_agblocks, raw.sb_agcount)
            == (own.sb_dblocks, own.sb_agblocks, own.sb_agcount)
}

/// Whether a sector holds what a copy of a superblock must have: its sizes and what the filesystem is known by. What is
/// counted or depends on a mount may differ.
fn is_same(sector: &[u8], of: &Superblock) -> bool {
    let Ok((raw, _)) = RawSuperblock::read_from_prefix(sector) else { return false };
    let own = of.raw();
    is_copy(sector, of)
        && (raw.sb_uuid, raw.sb_meta_uuid, raw.sb_fname) == (own.sb_uuid, own.sb_meta_uuid, own.sb_fname)
        && raw.sb_features_incompat == own.sb_features_incompat
}

/// The blocks in which superblocks lie: once they are here, changing them cannot fail.
pub(crate) struct Superblocks(Vec<Block>);

impl Superblocks {
    /// How many are changed under one handle, at most.
    pub(crate) fn at_once(volume: &Mounted) -> Result<u32> {
        let room = volume.writer()?.transactions.room();
        Ok((room / volume.credit_units() / 2).max(1))
    }

    /// Those of some groups.
    ///
    /// # Errors
    /// I/O failure.
    pub(crate) fn read(volume: &Volume, groups: Range<u32>) -> Result<Self> {
        groups.map(|group| first_block(volume, AgNumber(group))).collect::<Result<_>>().map(Self)
    }

    /// Replaces them by `sector`. Changes as many blocks.
    pub(crate) fn replace(&self, handle: &Handle<'_>, sector: &[u8]) {
        for block in &self.0 {
            handle.change_block(block, Seal::HeadersAndSuperblock, |bytes| {
                bytes[..sector.len()].copy_from_slice(sector);
            });
        }
    }
}

/// Replaces the superblocks of some groups, under as many handles as that takes.
///
/// # Errors
/// I/O failure; why the filesystem takes no changes any more.
pub(crate) fn replace(volume: &Mounted, groups: Range<u32>, sector: &[u8]) -> Result<()> {
    let at_once = Superblocks::at_once(volume)?;
    let mut first = groups.start;
    while first < groups.end {
        let end = groups.end.min(first.saturating_add(at_once));
        let superblocks = Superblocks::read(volume, first..end)?;
        superblocks.replace(&volume.start(end - first)?, sector);
        first = end;
    }
    Ok(())
}

/// Replaces copies that are older than the superblock, or damaged, and makes that durable.
///
/// # Errors
/// I/O failure; why the filesystem takes no changes any more.
pub(crate) fn replace_old_copies(volume: &Mounted) -> Result<()> {
    let sector = sector(volume)?;
    let is_old = |group: u32| -> Result<bool> {
        let block = first_block_number(volume, AgNumber(group))?;
        let bytes = volume.read_block(block)?;
        Ok(!is_same(&bytes[..sector.len()], volume.superblock()))
    };
    let mut has_any = false;
    for group in 1..volume.geometry().ag_count() {
        if is_old(group)? {
            replace(volume, group..group + 1, &sector)?;
            has_any = true;
        }
    }
    if has_any { volume.writer()?.transactions.commit_everything(volume) } else { Ok(()) }
}

fn first_block_number(volume: &Volume, group: AgNumber) -> Result<FsBlock> {
    let block = volume.geometry().join(group, AgBlock(0));
    block.ok_or_else(|| crate::error::corrupt("allocation group", format!("there is no group {group}")))
}

fn first_block(volume: &Volume, group: AgNumber) -> Result<Block> {
    volume.block(first_block_number(volume, group)?)
}
