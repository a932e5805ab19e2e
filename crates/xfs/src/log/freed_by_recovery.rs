//! The space that Linux frees after the replay: of unlinked inodes, of interrupted work, and of copies of shared blocks
//! that were being made.
//!
//! It is only counted here. The blocks stay what the trees say that they are; blocks that the trees themselves would
//! gain or lose by Linux's work are not counted. Counting ends after [`MAX_STEPS`], with an error.

use std::collections::BTreeMap;

use undercroft_vfs::{Error, Ino, Result};

use super::intents::{Unfinished, UsersChange};
use super::report::Recovery;
use crate::ag::{Agf, Agi};
use crate::error::corrupt;
use crate::format::geometry::CHUNK_INODES;
use crate::format::{AgBlock, AgIno, AgNumber, FsBlock};
use crate::inode::Inode;
use crate::map;
use crate::volume::Volume;

/// Inodes, extents and records of reference counts that are looked at, at most. Extents of files may overlap, each with
/// as many records as a tree has, so the sum of their lengths is no bound.
const MAX_STEPS: u32 = 1 << 20;

/// Steps that are left.
#[derive(Debug)]
struct Steps(u32);

impl Steps {
    /// Takes a step.
    ///
    /// # Errors
    /// `Corrupt` when none is left.
    fn take(&mut self) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| {
            corrupt("interrupted work", format!("and deleted files have more than {MAX_STEPS} extents"))
        })?;
        Ok(())
    }
}

/// What becomes free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FreedByRecovery {
    pub(super) blocks: u64,
    /// Inodes that become free.
    pub(super) inodes: u64,
    /// Free inodes that go away with their chunks.
    pub(super) chunk_inodes: u64,
}

impl FreedByRecovery {
    /// Inodes and intents may claim any number.
    fn add_blocks(&mut self, blocks: u64) {
        self.blocks = self.blocks.saturating_add(blocks);
    }
}

/// Counts what becomes free.
///
/// # Errors
/// Corruption of a group's header or tree, or more to count than is counted here; I/O failure.
pub(super) fn freed_by_recovery(volume: &Volume, recovery: &Recovery) -> Result<FreedByRecovery> {
    let steps = &mut Steps(MAX_STEPS);
    let mut leaving = Leaving::default();
    let mut given = FreedByRecovery::default();
    for step in &recovery.unfinished {
        match *step {
            Unfinished::Free { blocks, .. } => given.add_blocks(blocks.into()),
            Unfinished::Users { start, blocks, change } => match change {
                UsersChange::Decrease => leaving.add(volume, steps, start, blocks, 1)?,
                UsersChange::Increase => leaving.add(volume, steps, start, blocks, -1)?,
                // Set aside, recorded, and then found without a file.
                UsersChange::Reserve => given.add_blocks(blocks.into()),
                UsersChange::Release => {}
            },
            Unfinished::Owner(_) | Unfinished::Map(_) => {}
        }
    }
    let mut chunks = Chunks::default();
    for &ino in &recovery.unlinked {
        steps.take()?;
        let inode = match Inode::read(volume, ino) {
            Ok(inode) => inode,
            // Linux skips inodes that it cannot read.
            Err(Error::Corrupt(_) | Error::Stale) => continue,
            Err(error) => return Err(error),
        };
        let mut in_data: u64 = 0;
        map::for_each_extent(volume, ino, &inode.data, |extent| {
            in_data = in_data.saturating_add(extent.count.into());
            leaving.add(volume, steps, extent.block, extent.count, 1)
        })?;
        given.add_blocks(inode.core.blocks.saturating_sub(in_data));
        given.inodes += 1;
        chunks.free(volume, ino)?;
    }
    given.add_blocks(leaving.unshared);
    given.add_blocks(leaving.last_users());
    given.add_blocks(copies(volume, steps)?);
    let (inodes, blocks) = chunks.empty(volume);
    given.chunk_inodes = inodes;
    given.add_blocks(blocks);
    Ok(given)
}

/// Runs of blocks that users leave.
#[derive(Debug, Default)]
struct Leaving {
    /// Blocks with one user.
    unshared: u64,
    /// Where the number of those that leave changes, by how much, and how many users there are from there on.
    changes: Vec<(FsBlock, i64, u32)>,
}

impl Leaving {
    fn add(
        &mut self,
        volume: &Volume,
        steps: &mut Steps,
        start: FsBlock,
        blocks: u32,
        leave: i64,
    ) -> Result<()> {
        steps.take()?;
        let Some((ag, first)) = volume.geometry().split(start) else { return Ok(()) };
        let end = first.0.saturating_add(blocks);
        let mut at = first.0;
        if let Some(tree) = Agf::read(volume, ag)?.reference_counts(volume)? {
            let mut cursor = tree.cursor();
            let mut next = match cursor.lookup_le(&(false, first))? {
                Some(record) => Some(record),
                None => cursor.first()?,
            };
            while let Some(record) = next.filter(|record| !record.cow && record.start.0 < end) {
                steps.take()?;
                let (from, to) =
                    (record.start.0.max(at), record.start.0.saturating_add(record.count).min(end));
                if from < to {
                    self.add_unshared(from - at, leave);
                    let block = |within: u32| FsBlock(start.0 - u64::from(first.0) + u64::from(within));
                    self.changes.push((block(from), leave, record.users));
                    self.changes.push((block(to), -leave, 0));
                    at = to;
                }
                next = cursor.increment()?;
            }
        }
        self.add_unshared(end - at, leave);
        Ok(())
    }

    fn add_unshared(&mut self, blocks: u32, leave: i64) {
        if leave > 0 {
            self.unshared = self.unshared.saturating_add(blocks.into());
        }
    }

    /// Shared blocks that all of their users leave.
    fn last_users(&mut self) -> u64 {
        self.changes.sort_unstable_by_key(|(block, _, users)| (*block, *users));
        let mut blocks = 0;
        let (mut leaving, mut users) = (0, 0);
        let mut since = FsBlock(0);
        for &(block, change, users_from_here) in &self.changes {
            if leaving > 0 && leaving >= i64::from(users) {
                blocks += block.0 - since.0;
            }
            since = block;
            leaving += change;
            if users_from_here > 0 {
                users = users_from_here;
            }
        }
        blocks
    }
}

/// Blocks of copies that were being made when the log ended, which no file has.
///
/// # Errors
/// Corruption; I/O failure.
#[cfg(test)]
pub(crate) fn unfinished_copies(volume: &Volume) -> Result<u64> {
    copies(volume, &mut Steps(MAX_STEPS))
}

/// Blocks of copies that were being made, which no file has.
fn copies(volume: &Volume, steps: &mut Steps) -> Result<u64> {
    let mut blocks = 0;
    for ag in volume.geometry().ags() {
        let Some(tree) = Agf::read(volume, ag)?.reference_counts(volume)? else { return Ok(0) };
        let mut cursor = tree.cursor();
        let mut next = cursor.lookup_ge(&(true, AgBlock(0)))?;
        while let Some(record) = next {
            steps.take()?;
            blocks += u64::from(record.count);
            next = cursor.increment()?;
        }
    }
    Ok(blocks)
}

/// Chunks in which inodes become free: what exists in them, and what stays in use.
#[derive(Debug, Default)]
struct Chunks(BTreeMap<(AgNumber, AgIno), (u64, u64)>);

impl Chunks {
    fn free(&mut self, volume: &Volume, ino: Ino) -> Result<()> {
        let Some((ag, within)) = volume.geometry().split_ino(ino) else { return Ok(()) };
        let Some(chunk) = Agi::read(volume, ag)?.chunks(volume)?.cursor().lookup_le(&within)? else {
            return Ok(());
        };
        let bit = within.0 - chunk.start.0;
        if bit < CHUNK_INODES {
            let (_, used) = self.0.entry((ag, chunk.start)).or_insert((chunk.existing(), chunk.used()));
            *used &= !(1 << bit);
        }
        Ok(())
    }

    /// Inodes and blocks of the chunks in which none stays in use: they are given up.
    fn empty(&self, volume: &Volume) -> (u64, u64) {
        let per_block = volume.geometry().inodes_per_block();
        if per_block > CHUNK_INODES {
            return (0, 0);
        }
        let empty = self.0.values().filter(|(_, used)| *used == 0);
        let inodes: u64 = empty.map(|(existing, _)| u64::from(existing.count_ones())).sum();
        (inodes, inodes / u64::from(per_block))
    }
}
