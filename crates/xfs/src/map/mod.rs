//! What lies under a block of a fork: an extent, from the inode's list or its B+tree, or a hole.
//!
//! Holes are bounded by the extents around them; where there is none after a block the hole reaches to the end of what
//! a file can be.

pub(crate) mod change;
pub(crate) mod narrow;
mod records;
mod shared;

use undercroft_vfs::{Ino, Result};

use crate::btree::{Bmbt, Btree};
use crate::error::corrupt_inode;
use crate::format::FileBlock;
use crate::format::extent::{Extent, FILE_BLOCK_END};
use crate::inode::{ExtentTree, Fork, Found, INCORE_EXTENTS_MAX, IncoreExtents};
use crate::volume::Volume;
pub(crate) use records::near_inode;
pub(crate) use shared::{Sharing, sharing_in, sharing_in_before};

/// What lies under a block of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// The extent that the block lies in.
    Extent(Extent),
    /// Nothing, from `start` to before `end`.
    Hole { start: u64, end: u64 },
}

/// What lies under `at`, a block of a fork of `ino` that has no bytes of its own.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn lookup(volume: &Volume, ino: Ino, fork: &Fork, at: FileBlock) -> Result<Run> {
    let (before, after) = match fork {
        Fork::Device(_) | Fork::Local(_) => {
            return Err(corrupt_inode("fork", ino, None, "has its bytes in the inode and no blocks"));
        }
        Fork::Extents(extents) => {
            let n = extents.partition_point(|extent| extent.file <= at);
            (n.checked_sub(1).map(|n| extents[n]), extents.get(n).copied())
        }
        Fork::Btree(fork) => match known(volume, ino, fork)? {
            Some(known) => known.around(at.0),
            None => {
                let tree = Btree::<Bmbt>::in_fork(volume, ino, &fork.root)?;
                let mut cursor = tree.cursor();
                match cursor.lookup_le(&at)? {
                    Some(extent) if extent.end() > at.0 => (Some(extent), None),
                    Some(extent) => (Some(extent), cursor.increment()?),
                    None => (None, cursor.first()?),
                }
            }
        },
    };
    if let Some(extent) = before
        && extent.end() > at.0
    {
        return Ok(Run::Extent(extent));
    }
    let start = before.map_or(0, |extent| extent.end());
    let end = after.map_or(FILE_BLOCK_END, |extent| extent.file.0);
    Ok(Run::Hole { start, end: end.max(at.0 + 1) })
}

/// Calls `visit` for each extent of a fork, in order.
///
/// # Errors
/// Corruption; I/O failure; what `visit` answers.
pub(crate) fn for_each_extent(
    volume: &Volume,
    ino: Ino,
    fork: &Fork,
    mut visit: impl FnMut(&Extent) -> Result<()>,
) -> Result<()> {
    match fork {
        Fork::Device(_) | Fork::Local(_) => Ok(()),
        Fork::Extents(extents) => extents.iter().try_for_each(visit),
        Fork::Btree(fork) => {
            let mut found = 0;
            Btree::<Bmbt>::in_fork(volume, ino, &fork.root)?.for_each(|extent| {
                found += 1;
                if found > fork.extents {
                    check_count(ino, found, fork.extents)?;
                }
                visit(&extent)
            })?;
            check_count(ino, found, fork.extents)
        }
    }
}

/// The first block from `at` on that no extent of a fork has.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn first_hole(volume: &Volume, ino: Ino, fork: &Fork, at: FileBlock) -> Result<u64> {
    if let Fork::Btree(fork) = fork
        && let Some(known) = known(volume, ino, fork)?
    {
        return Ok(known.first_hole(at.0));
    }
    let mut at = at.0;
    while let Run::Extent(extent) = lookup(volume, ino, fork, FileBlock(at))? {
        at = extent.end();
    }
    Ok(at)
}

/// The extents of a tree, if they are kept in memory. All of it is read the first time. Refuses a tree that has another
/// number of extents than its inode counts.
fn known<'a>(volume: &Volume, ino: Ino, fork: &'a ExtentTree) -> Result<Option<&'a IncoreExtents>> {
    let found = match fork.found.get() {
        Some(found) => found,
        None => {
            let found = read_all(volume, ino, fork)?;
            fork.found.get_or_init(|| found)
        }
    };
    check_count(ino, found.extents, fork.extents)?;
    Ok(found.known.as_ref())
}

fn read_all(volume: &Volume, ino: Ino, fork: &ExtentTree) -> Result<Found> {
    let tree = Btree::<Bmbt>::in_fork(volume, ino, &fork.root)?;
    let mut cursor = tree.cursor();
    let (mut extents, mut list, mut next) = (0, Vec::new(), cursor.first()?);
    while let Some(extent) = next
        && extents <= fork.extents
    {
        extents += 1;
        if extents <= INCORE_EXTENTS_MAX {
            list.push(extent);
        }
        next = cursor.increment()?;
    }
    let all_known = extents == fork.extents && extents <= INCORE_EXTENTS_MAX;
    Ok(Found { extents, known: all_known.then(|| list.into_iter().collect()) })
}

fn check_count(ino: Ino, found: u64, counted: u64) -> Result<()> {
    if found == counted {
        return Ok(());
    }
    let more = if found > counted { " or more" } else { "" };
    Err(corrupt_inode("map", ino, None, format!("has {found}{more} extents, and the inode counts {counted}")))
}
