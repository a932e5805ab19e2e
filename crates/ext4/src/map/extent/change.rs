//! Inserting, removing and marking runs of blocks.

use undercroft_vfs::Result;

use super::path::Path;
use super::raw::Extent;
use super::tree::{Outcome, Tree};
use crate::alloc::ALLOCATE_CREDITS;
use crate::inode::Inode;
use crate::map::run::{BATCH, Progress, Removed};
use crate::map::space;
use crate::numbers::FsBlock;
use crate::transaction::Handle;

/// Inserts blocks where the file has a hole.
pub(in crate::map) fn insert(
    handle: &Handle<'_>,
    inode: &mut Inode,
    at: u64,
    first: FsBlock,
    count: u64,
    written: bool,
) -> Result<()> {
    let mut tree = Tree::new(handle, inode);
    let mut rest = Extent { first: at, len: count, start: first, written };
    while rest.len > 0 {
        let piece = rest.before(rest.first + rest.len.min(Extent::max_len(written)));
        loop {
            let path = tree.find(piece.first)?;
            let (place, _) = path.first_after(tree.inode, piece.first);
            let next = path.extent(tree.inode, place).map_or(path.high, |extent| extent.first);
            if next < piece.end() {
                let detail = format!("file block {next} is mapped, where blocks are to be inserted");
                return Err(tree.corrupt(&path, detail));
            }
            if tree.replace(&path, place..place, &[piece])? == Outcome::Done {
                break;
            }
        }
        space::count(handle.volume(), tree.inode, piece.len);
        rest = rest.from(piece.end());
    }
    Ok(())
}

/// Takes the blocks of a range out of the file.
pub(in crate::map) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
    removed: Removed,
) -> Result<Progress> {
    let mut tree = Tree::new(handle, inode);
    let mut from = from;
    while from < to {
        let path = tree.find(from)?;
        let (place, count) = path.first_after(tree.inode, from);
        if place == count {
            // Nothing follows in this leaf.
            from = path.high.max(from + 1);
            continue;
        }
        let Some(batch) = Batch::of(&path, &tree, place, from, to) else { break };
        if !handle.has_room(credits(&path) + BATCH as u32 * ALLOCATE_CREDITS) {
            return Ok(Progress::From(from));
        }
        if tree.replace(&path, place..place + batch.count, batch.kept())? == Outcome::LookAgain {
            continue;
        }
        for extent in batch.removed() {
            space::take_out(handle, tree.inode, extent.start, extent.len, removed)?;
        }
        from = batch.end;
    }
    Ok(Progress::Done)
}

/// What of some neighbouring extents is removed, and what is kept.
struct Batch {
    count: usize,
    removed: [Option<Extent>; BATCH],
    kept: [Extent; 2],
    kept_count: usize,
    end: u64,
}

impl Batch {
    /// Of the entries from `place` on, as far as [`BATCH`] groups go; `None` if they lie behind the range.
    fn of(path: &Path, tree: &Tree<'_>, place: usize, from: u64, to: u64) -> Option<Self> {
        let mut batch = Self {
            count: 0,
            removed: [None; BATCH],
            kept: [Extent { first: 0, len: 0, start: FsBlock(0), written: true }; 2],
            kept_count: 0,
            end: from,
        };
        let mut groups = BATCH as u64;
        while batch.count < BATCH && groups > 0 {
            let Some(extent) =
                path.extent(tree.inode, place + batch.count).filter(|extent| extent.first < to)
            else {
                break;
            };
            let mut removed = extent;
            if extent.first < from {
                batch.keep(extent.before(from));
                removed = extent.from(from);
            }
            let wanted = removed.end().min(to) - removed.first;
            let end =
                removed.first + space::in_groups(tree.handle.volume(), removed.start, wanted, &mut groups);
            if removed.end() > end {
                batch.keep(removed.from(end));
                removed = removed.before(end);
            }
            batch.end = removed.end();
            batch.removed[batch.count] = Some(removed);
            batch.count += 1;
        }
        (batch.count > 0).then_some(batch)
    }

    fn keep(&mut self, extent: Extent) {
        self.kept[self.kept_count] = extent;
        self.kept_count += 1;
    }

    fn kept(&self) -> &[Extent] {
        &self.kept[..self.kept_count]
    }

    fn removed(&self) -> impl Iterator<Item = Extent> {
        self.removed.into_iter().flatten()
    }
}

/// Marks what is mapped in a range as written or as unwritten.
pub(in crate::map) fn mark(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
    written: bool,
) -> Result<Progress> {
    let mut tree = Tree::new(handle, inode);
    let mut from = from;
    while from < to {
        let path = tree.find(from)?;
        let (place, _) = path.first_after(tree.inode, from);
        let Some(extent) = path.extent(tree.inode, place) else {
            from = path.high.max(from + 1);
            continue;
        };
        if extent.first >= to {
            break;
        }
        let end = extent.end().min(to);
        if extent.written == written {
            from = end;
            continue;
        }
        if !handle.has_room(credits(&path)) {
            return Ok(Progress::From(from));
        }
        let (pieces, count) = cut(extent, from.max(extent.first), end, written);
        if tree.replace(&path, place..place + 1, &pieces[..count])? == Outcome::Done {
            from = end;
        }
    }
    Ok(Progress::Done)
}

/// An extent with its part between two blocks marked otherwise.
fn cut(extent: Extent, from: u64, to: u64, written: bool) -> ([Extent; 4], usize) {
    let mut pieces = [extent; 4];
    let mut count = 0;
    let mut push = |piece: Extent| {
        if piece.len > 0 {
            pieces[count] = piece;
            count += 1;
        }
    };
    push(extent.before(from));
    // A whole extent of written blocks is a block too long for an unwritten one.
    let marked = Extent { written, ..extent.from(from).before(to) };
    let most = marked.first + marked.len.min(Extent::max_len(written));
    push(marked.before(most));
    push(marked.from(most));
    push(extent.from(to));
    (pieces, count)
}

/// What one change of this leaf takes.
pub(super) fn credits(path: &Path) -> u32 {
    super::credits(path.depth as u32)
}
