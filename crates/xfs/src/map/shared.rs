//! Which blocks of an extent other files have too, by the tree of reference counts.

use undercroft_vfs::Result;

use crate::btree::{Btree, RefcountBt, RefcountRecord};
use crate::format::AgBlock;

/// How the first blocks of a run are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharing {
    pub(crate) shared: bool,
    /// How many blocks this applies to.
    pub(crate) count: u32,
}

/// Whether the block at `start` is shared, by the tree of its group, and for how many of the `count` blocks from there on the
/// same holds.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn sharing_in(tree: &Btree<'_, RefcountBt>, start: AgBlock, count: u32) -> Result<Sharing> {
    let alone = Sharing { shared: false, count };
    let mut cursor = tree.cursor();
    let from = start.0;
    let end_of = |record: &RefcountRecord| record.start.0.saturating_add(record.count);
    if let Some(record) = cursor.lookup_le(&(false, start))?
        && !record.cow
        && end_of(&record) > from
    {
        return Ok(Sharing { shared: true, count: count.min(end_of(&record) - from) });
    }
    match cursor.lookup_ge(&(false, AgBlock(from.saturating_add(1))))? {
        Some(record) if !record.cow && record.start.0 - from < count => {
            Ok(Sharing { shared: false, count: record.start.0 - from })
        }
        _ => Ok(alone),
    }
}

/// Whether the last of `count` blocks from `start` on is shared, and for how many of the last blocks the same holds.
pub(crate) fn sharing_in_before(tree: &Btree<'_, RefcountBt>, start: AgBlock, count: u32) -> Result<Sharing> {
    let end = start.0.saturating_add(count);
    let last = AgBlock(end.saturating_sub(1));
    let record = tree.cursor().lookup_le(&(false, last))?.filter(|record| !record.cow);
    let Some(record) = record else { return Ok(Sharing { shared: false, count }) };
    let record_end = record.start.0.saturating_add(record.count);
    if record_end >= end {
        return Ok(Sharing { shared: true, count: count.min(end.saturating_sub(record.start.0)) });
    }
    Ok(Sharing { shared: false, count: count.min(end - record_end) })
}
