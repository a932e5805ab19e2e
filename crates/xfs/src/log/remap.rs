//! Changes of files' maps that were interrupted (`BUI`), carried out in memory.
//!
//! A clone, a copy on write and an exchange of extents announce that a piece of a file is to leave its blocks and to get
//! others. Linux carries that out when it mounts, in the order in which it was announced, so a reader must see the file
//! with its new map. The blocks that the map's own tree gains or loses by it are not counted.

use std::collections::BTreeMap;

use undercroft_vfs::{Error, Ino, Result};

use super::intents::{MapChange, Unfinished};
use crate::error::corrupt_inode;
use crate::format::FileBlock;
use crate::format::extent::{EXTENT_MAX_BLOCKS, Extent, FILE_BLOCK_END};
use crate::inode::{Fork, ForkKind, Inode, Remap, Remapped};
use crate::map;
use crate::volume::Volume;

const STRUCTURE: &str = "logged change of a map";

/// Extents of all the forks that are changed, at most: they are held in memory.
const MAX_EXTENTS: usize = 1 << 20;

/// A fork's extents by their first block, and how many blocks it has gained.
#[derive(Debug, Default)]
struct Changed {
    extents: BTreeMap<u64, Extent>,
    more_blocks: i64,
}

/// The maps that files have after all announced changes.
///
/// # Errors
/// `Corrupt` for a change that cannot be made; `Unsupported` for more extents than are held in memory; `Io`.
pub(super) fn remapped(volume: &Volume, steps: &[Unfinished]) -> Result<Remapped> {
    let mut forks: BTreeMap<(Ino, bool), Changed> = BTreeMap::new();
    let mut held = 0;
    for step in steps {
        let Unfinished::Map(change) = step else { continue };
        let key = (change.ino, change.attribute_fork);
        let fork = match forks.entry(key) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(read(volume, change, &mut held)?)
            }
        };
        let before = fork.extents.len();
        if change.map {
            fork.add(change)?;
        } else {
            fork.remove(change);
        }
        held += fork.extents.len().saturating_sub(before);
    }
    let mut remapped = Remapped::default();
    for ((ino, attribute_fork), Changed { extents, more_blocks }) in forks {
        let kind = if attribute_fork { ForkKind::Attr } else { ForkKind::Data };
        remapped.insert(ino, kind, Remap { extents: extents.into_values().collect(), more_blocks });
    }
    Ok(remapped)
}

fn read(volume: &Volume, change: &MapChange, held: &mut usize) -> Result<Changed> {
    let wrong = |what: &'static str| corrupt_inode(STRUCTURE, change.ino, None, what);
    let inode = Inode::read(volume, change.ino).map_err(|error| match error {
        Error::Stale => wrong("the inode is free"),
        error => error,
    })?;
    let kind = if change.attribute_fork { ForkKind::Attr } else { ForkKind::Data };
    let fork = inode.fork(kind).ok_or_else(|| wrong("the inode has no such fork"))?;
    if !matches!(fork, Fork::Extents(_) | Fork::Btree(_)) {
        return Err(wrong("the fork has its bytes in the inode and no blocks"));
    }
    let mut changed = Changed::default();
    map::for_each_extent(volume, change.ino, fork, |extent| {
        *held += 1;
        if *held > MAX_EXTENTS {
            let what = format!(
                "a log that was interrupted in the middle of changes of files with more than {MAX_EXTENTS} extents: mount \
                 the filesystem once"
            );
            return Err(Error::Unsupported(what.into()));
        }
        changed.extents.insert(extent.file.0, *extent);
        Ok(())
    })?;
    Ok(changed)
}

impl Changed {
    /// Blocks for a piece of the file, where it has none.
    fn add(&mut self, change: &MapChange) -> Result<()> {
        let MapChange { ino, at, start, blocks, unwritten, .. } = *change;
        let wrong = |what: String| corrupt_inode(STRUCTURE, ino, None, what);
        let end = at.0.saturating_add(u64::from(blocks));
        if blocks == 0 || u64::from(blocks) > u64::from(EXTENT_MAX_BLOCKS) || end > FILE_BLOCK_END {
            return Err(wrong(format!("{blocks} blocks at file block {at} are no extent")));
        }
        let before = self.extents.range(..=at.0).next_back().map(|(_, extent)| *extent);
        let after = self.extents.range(at.0..).next().map(|(_, extent)| *extent);
        if before.is_some_and(|before| before.end() > at.0) || after.is_some_and(|after| after.file.0 < end) {
            return Err(wrong(format!(
                "the {blocks} blocks at file block {at} have a place on the disk already"
            )));
        }
        let mut extent = Extent { file: at, block: start, count: blocks, unwritten };
        if let Some(before) = before.filter(|before| continues(before, &extent)) {
            extent = Extent { count: before.count + extent.count, ..before };
        }
        if let Some(after) = after.filter(|after| continues(&extent, after)) {
            self.extents.remove(&after.file.0);
            extent.count += after.count;
        }
        self.extents.insert(extent.file.0, extent);
        self.more_blocks += i64::from(blocks);
        Ok(())
    }

    /// Removes the blocks of a piece of the file.
    fn remove(&mut self, change: &MapChange) {
        let (from, to) = (change.at.0, change.at.0.saturating_add(u64::from(change.blocks)));
        if let Some(before) = self.extents.range(..from).next_back().map(|(_, extent)| *extent)
            && before.end() > from
        {
            self.extents.insert(before.file.0, Extent { count: (from - before.file.0) as u32, ..before });
            let rest = Extent {
                file: FileBlock(from),
                block: before.block_of(from),
                count: (before.end() - from) as u32,
                ..before
            };
            self.extents.insert(from, rest);
        }
        while let Some(extent) = self.extents.range(from..to).next().map(|(_, extent)| *extent) {
            self.extents.remove(&extent.file.0);
            let end = extent.end().min(to);
            self.more_blocks -= (end - extent.file.0) as i64;
            if extent.end() > to {
                let rest = Extent {
                    file: FileBlock(to),
                    block: extent.block_of(to),
                    count: (extent.end() - to) as u32,
                    ..extent
                };
                self.extents.insert(to, rest);
            }
        }
    }
}

/// Whether two extents are one, where they fit in one.
fn continues(first: &Extent, second: &Extent) -> bool {
    first.end() == second.file.0
        && first.block.0 + u64::from(first.count) == second.block.0
        && first.unwritten == second.unwritten
        && u64::from(first.count) + u64::from(second.count) <= u64::from(EXTENT_MAX_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FsBlock;

    fn change(map: bool, at: u64, start: u64, blocks: u32) -> MapChange {
        MapChange {
            ino: Ino(131),
            attribute_fork: false,
            map,
            unwritten: false,
            at: FileBlock(at),
            start: FsBlock(start),
            blocks,
        }
    }

    fn shown(changed: &Changed) -> Vec<(u64, u64, u32)> {
        changed.extents.values().map(|extent| (extent.file.0, extent.block.0, extent.count)).collect()
    }

    #[test]
    fn pieces_leave_and_come() {
        let mut changed = Changed::default();
        changed.add(&change(true, 0, 100, 10)).unwrap();
        changed.add(&change(true, 20, 200, 10)).unwrap();
        changed.remove(&change(false, 4, 0, 20));
        assert_eq!(shown(&changed), [(0, 100, 4), (24, 204, 6)]);
        changed.add(&change(true, 4, 104, 3)).unwrap();
        assert_eq!(shown(&changed), [(0, 100, 7), (24, 204, 6)], "one extent with what it continues");
        changed.add(&change(true, 23, 203, 1)).unwrap();
        assert_eq!(shown(&changed), [(0, 100, 7), (23, 203, 7)]);
        changed.remove(&change(false, 2, 0, 1));
        assert_eq!(shown(&changed), [(0, 100, 2), (3, 103, 4), (23, 203, 7)]);
        assert_eq!(changed.more_blocks, 13);
    }

    #[test]
    fn a_piece_that_has_blocks_gets_no_others() {
        let mut changed = Changed::default();
        changed.add(&change(true, 10, 100, 10)).unwrap();
        for (at, blocks) in [(5, 6), (10, 1), (15, 1), (19, 4), (0, 0), (FILE_BLOCK_END, 1)] {
            let error = changed.add(&change(true, at, 500, blocks)).unwrap_err();
            assert!(error.to_string().contains("inode 131"), "{error}");
        }
        assert_eq!(shown(&changed), [(10, 100, 10)]);
    }
}
