//! Changing what lies under the blocks of a fork.
//!
//! All functions change the inode in memory and the blocks of the fork's B+tree, keep the count of blocks, the reverse
//! map and the reference counts, and leave the inode to be stored by the caller. The inode's fields are held exclusively,
//! under a handle.
//!
//! What can be refused is refused before the first change. Changes of many extents go one by one, each of which leaves a
//! good map, and stop where the handle has no room left. The tree's blocks come out of the handle's space: [`space`] says
//! how many one change may need.

use undercroft_vfs::{Error, Result};

use super::records::{self, Records};
use crate::alloc::{self, Owner};
use crate::format::extent::{EXTENT_MAX_BLOCKS, Extent, FILE_BLOCK_END};
use crate::format::{FileBlock, FsBlock};
use crate::inode::{Fork, ForkKind, Inode, STORE_CREDITS};
use crate::transaction::Handle;
use crate::volume::Volume;

/// Blocks that taking or freeing one run of a group changes at least, with the group's headers and free list and its four
/// trees: two for each of three levels, and a new root.
const GROUP_CREDITS_LEAST: u32 = 28;

/// Blocks of metadata that one step removes: each of them is cancelled in the log.
pub(crate) const METADATA_STEP: u64 = 64;

/// How far a change of many extents came under one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// The rest, from this block on, wants another handle.
    From(u64),
}

/// Blocks that taking or freeing one run of a group changes. The trees of large groups of small blocks are higher.
pub(crate) fn group_credits(volume: &Volume) -> u32 {
    alloc::extent_credits(volume).max(GROUP_CREDITS_LEAST)
}

/// Blocks that a change of one extent changes at most, with the trees of its group; without the inode.
pub(crate) fn credits(volume: &Volume, inode: &Inode, kind: ForkKind) -> u32 {
    // The extent itself or the one that it replaces, a block of the fork's tree, and on each level of that three blocks.
    2 * group_credits(volume) + 3 * (levels(inode, kind) + 1)
}

/// Blocks of space that a change of one extent may need for the fork's B+tree.
pub(crate) fn space(inode: &Inode, kind: ForkKind) -> u64 {
    u64::from(levels(inode, kind)) + 1
}

/// Levels of the fork's tree outside of the inode.
fn levels(inode: &Inode, kind: ForkKind) -> u32 {
    match inode.fork(kind) {
        Some(Fork::Btree(tree)) => {
            tree.root.first_chunk().map_or(0, |level| u32::from(u16::from_be_bytes(*level)))
        }
        _ => 0,
    }
}

/// Refuses a change that the inode has no room to count the extents of.
///
/// # Errors
/// [`FileTooLarge`](Error::FileTooLarge).
pub(crate) fn check_count(volume: &Volume, inode: &Inode, kind: ForkKind) -> Result<()> {
    if records::can_count_more(volume, inode, kind) { Ok(()) } else { Err(Error::FileTooLarge) }
}

/// Enters blocks that belong to nothing yet into a hole of the fork.
///
/// # Errors
/// [`FileTooLarge`](Error::FileTooLarge) for more extents than can be counted; [`NoSpace`](Error::NoSpace) from a handle
/// with less than [`space`]; corruption; I/O failure. Nothing has changed then.
pub(crate) fn insert(handle: &Handle<'_>, inode: &mut Inode, kind: ForkKind, extent: Extent) -> Result<()> {
    let mut records = Records { handle, inode, kind };
    records.check_room(1)?;
    check_extent(&records, &extent)?;
    let around = records.around(extent.file.0)?;
    if around.before.is_some_and(|before| before.end() > extent.file.0)
        || around.after.is_some_and(|after| after.file.0 < extent.end())
    {
        return Err(records.corrupt(format!("has blocks at {}, where others are to come", extent.file)));
    }
    records.substitute(None, &[extent])?;
    handle.or_abort(note_mapped(&mut records, &extent))
}

/// Removes the blocks from `from` to before `to`, as many extents as the handle has room for. Each block loses a user,
/// and those without another are freed. Blocks that are metadata are forgotten.
///
/// # Errors
/// As for [`insert`]: [`NoSpace`](Error::NoSpace) where an extent is cut in two, which is the first change, if any is, and
/// where a group has no block for its trees, when what has been removed by then stays removed.
pub(crate) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    from: FileBlock,
    to: FileBlock,
) -> Result<Progress> {
    let (mut from, to) = (from.0, to.0.min(FILE_BLOCK_END));
    let mut records = Records { handle, inode, kind };
    let mut is_first = true;
    while from < to {
        let Some(here) = first_between(&records, from, to)? else { break };
        let start = from.max(here.file.0);
        if !is_first && !handle.has_room(credits(handle.volume(), records.inode, kind) + STORE_CREDITS) {
            return Ok(Progress::From(start));
        }
        let piece = piece_to_remove(&records, &here, start, to)?;
        let cuts = piece.file > here.file && piece.end() < here.end();
        records.check_room(u64::from(cuts))?;
        let (allocator, count) = (&handle.writer().allocator, u64::from(piece.count));
        allocator.check_blocks_in_use(handle, piece.block, count)?;
        allocator.check_owner(handle, piece.block, count, owner(&records, &piece))?;
        check_group(&records, &piece)?;
        records.substitute(Some(here), &rest(&here, piece.file.0, piece.end()))?;
        handle.or_abort(release(&mut records, &piece))?;
        is_first = false;
        // Otherwise what is before it is still there.
        if piece.file.0 == start {
            from = piece.end();
        }
    }
    Ok(Progress::Done)
}

/// Takes the blocks from `from` to before `to` out of the fork. They keep their users, as many extents as the handle has
/// room for.
///
/// # Errors
/// As for [`insert`].
pub(crate) fn unmap(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    from: FileBlock,
    to: FileBlock,
) -> Result<Progress> {
    let mut records = Records { handle, inode, kind };
    let mut from = from.0;
    loop {
        let Some(here) = first_between(&records, from, to.0)? else { return Ok(Progress::Done) };
        if !handle.has_room(credits(handle.volume(), records.inode, kind) + STORE_CREDITS) {
            return Ok(Progress::From(from));
        }
        let piece = cut(&here, from.max(here.file.0), to.0.min(here.end()));
        records.check_room(u64::from(piece.file > here.file && piece.end() < here.end()))?;
        records.substitute(Some(here), &rest(&here, piece.file.0, piece.end()))?;
        handle.or_abort(note_unmapped(&mut records, &piece))?;
        from = piece.end();
    }
}

/// Blocks of an extent from `start` to before `to` that are removed in one step: the first of them, or the last where blocks
/// of the same extent stay before them and none behind, so that the extent is not cut in two.
fn piece_to_remove(records: &Records<'_, '_>, here: &Extent, start: u64, to: u64) -> Result<Extent> {
    let whole = cut(here, start, here.end().min(to));
    let is_tail = start > here.file.0 && whole.end() == here.end();
    let most = if is_metadata(records) {
        METADATA_STEP
    } else if may_share(records) && !here.unwritten {
        let allocator = &records.handle.writer().allocator;
        let sharing = if is_tail {
            allocator.sharing_before(records.volume(), whole.block, whole.count)
        } else {
            allocator.sharing(records.volume(), whole.block, whole.count)
        };
        u64::from(sharing?.count)
    } else {
        return Ok(whole);
    };
    if most >= u64::from(whole.count) {
        return Ok(whole);
    }
    // No structure is cut in two: it is forgotten as a whole.
    let unit = u64::from(structure_blocks(records, &whole));
    if is_tail {
        let from = (whole.end() - most.max(1)).next_multiple_of(unit);
        return Ok(cut(&whole, from.min(whole.end() - 1), whole.end()));
    }
    let to = (start + most.max(1)) / unit * unit;
    Ok(cut(&whole, start, to.max(start + 1)))
}

/// Marks the blocks from `from` to before `to`, which lie in one extent, as written or as never written.
///
/// # Errors
/// As for [`insert`].
pub(crate) fn mark(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: FileBlock,
    to: FileBlock,
    unwritten: bool,
) -> Result<()> {
    let mut records = Records { handle, inode, kind: ForkKind::Data };
    let here = extent_of(&records, from.0, to.0)?;
    if here.unwritten == unwritten {
        return Ok(());
    }
    records.check_room(2)?;
    let old = cut(&here, from.0, to.0);
    check_group(&records, &old)?;
    let new = Extent { unwritten, ..old };
    substitute_part(&mut records, &here, &new)?;
    let allocator = &handle.writer().allocator;
    let count = u64::from(old.count);
    let (was, is) = (owner(&records, &old), owner(&records, &new));
    let noted = allocator.note_no_owner(handle, old.block, count, was);
    handle.or_abort(noted.and_then(|()| allocator.note_owner(handle, new.block, count, is)))
}

/// Asks whether the `count` blocks from `at` on can be [replaced](replace), before the blocks that take their place are
/// taken or get a user more.
///
/// # Errors
/// As for [`insert`].
pub(crate) fn check_replace(handle: &Handle<'_>, inode: &mut Inode, at: FileBlock, count: u32) -> Result<()> {
    let records = Records { handle, inode, kind: ForkKind::Data };
    let end = at.0.saturating_add(count.into());
    let here = extent_of(&records, at.0, end)?;
    records.check_room(2)?;
    let old = cut(&here, at.0, end);
    handle.writer().allocator.check_blocks_in_use(handle, old.block, count.into())?;
    check_group(&records, &old)
}

/// Puts blocks that belong to nothing yet in the place of others, all of which lie in one extent. Those lose a user, and
/// those without another are freed: as many as [share in the same way](super::sharing), at most.
///
/// # Errors
/// As for [`insert`].
pub(crate) fn replace(handle: &Handle<'_>, inode: &mut Inode, extent: Extent) -> Result<()> {
    let mut records = Records { handle, inode, kind: ForkKind::Data };
    let here = extent_of(&records, extent.file.0, extent.end())?;
    records.check_room(2)?;
    check_extent(&records, &extent)?;
    let old = cut(&here, extent.file.0, extent.end());
    substitute_part(&mut records, &here, &extent)?;
    handle.or_abort(release(&mut records, &old).and_then(|()| note_mapped(&mut records, &extent)))
}

/// Moves every extent from `from` on down by `by` blocks, into a hole. None of them straddles `from`.
///
/// # Errors
/// As for [`insert`]: nothing has moved then, so that it may be tried again.
pub(crate) fn shift_down(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: FileBlock,
    by: u64,
) -> Result<Progress> {
    let mut records = Records { handle, inode, kind: ForkKind::Data };
    let (mut from, mut is_first) = (from.0, true);
    loop {
        let around = records.around(from)?;
        let here = around.before.filter(|before| before.file.0 == from);
        let Some(here) = here.or(around.after) else { return Ok(Progress::Done) };
        if !is_first
            && !handle.has_room(credits(handle.volume(), records.inode, ForkKind::Data) + STORE_CREDITS)
        {
            return Ok(Progress::From(here.file.0));
        }
        let before =
            if here.file.0 == from { records.around(from.wrapping_sub(1))?.before } else { around.before };
        let to = here.file.0.checked_sub(by);
        let Some(to) = to.filter(|&to| from > 0 && before.is_none_or(|before| before.end() <= to)) else {
            return Err(records.corrupt(format!("the extent at {} cannot move down by {by}", here.file)));
        };
        match move_extent(&mut records, &here, to) {
            Err(Error::NoSpace) if !is_first => return Ok(Progress::From(here.file.0)),
            moved => moved?,
        }
        (from, is_first) = (here.end(), false);
    }
}

/// Moves every extent from `from` on, and before `to`, up by `by` blocks, the last one first. None of them straddles
/// `from`. If not all is done, what is left lies between `from` and a new `to`.
///
/// # Errors
/// As for [`insert`]: nothing has moved then, so that it may be tried again.
pub(crate) fn shift_up(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: FileBlock,
    to: u64,
    by: u64,
) -> Result<Progress> {
    let mut records = Records { handle, inode, kind: ForkKind::Data };
    let (mut to, mut is_first) = (to, true);
    loop {
        let Some(last) = to.checked_sub(1) else { return Ok(Progress::Done) };
        let around = records.around(last)?;
        let Some(here) = around.before.filter(|here| here.file >= from) else { return Ok(Progress::Done) };
        if !is_first
            && !handle.has_room(credits(handle.volume(), records.inode, ForkKind::Data) + STORE_CREDITS)
        {
            return Ok(Progress::From(to));
        }
        let end = here.end().checked_add(by).filter(|&end| end <= FILE_BLOCK_END);
        if end.is_none_or(|end| around.after.is_some_and(|after| after.file.0 < end)) {
            return Err(records.corrupt(format!("the extent at {} cannot move up by {by}", here.file)));
        }
        match move_extent(&mut records, &here, here.file.0 + by) {
            Err(Error::NoSpace) if !is_first => return Ok(Progress::From(to)),
            moved => moved?,
        }
        (to, is_first) = (here.file.0, false);
    }
}

/// Moves an extent to another place of the file, between the same neighbours.
fn move_extent(records: &mut Records<'_, '_>, here: &Extent, to: u64) -> Result<()> {
    let moved = Extent { file: FileBlock(to), ..*here };
    records.check_room(0)?;
    check_group(records, here)?;
    records.splice(&[*here], &[moved])?;
    let handle = records.handle;
    let allocator = &handle.writer().allocator;
    let count = u64::from(here.count);
    let (was, is) = (owner(records, here), owner(records, &moved));
    let noted = allocator.note_no_owner(handle, here.block, count, was);
    handle.or_abort(noted.and_then(|()| allocator.note_owner(handle, moved.block, count, is)))
}

/// Cuts the extent in two that straddles `at`, if one does.
///
/// # Errors
/// As for [`insert`].
pub(crate) fn split_at(handle: &Handle<'_>, inode: &mut Inode, at: FileBlock) -> Result<()> {
    let mut records = Records { handle, inode, kind: ForkKind::Data };
    let here = records.around(at.0)?.before.filter(|here| here.file < at && here.end() > at.0);
    let Some(here) = here else { return Ok(()) };
    records.check_room(1)?;
    records.splice(&[here], &[cut(&here, here.file.0, at.0), cut(&here, at.0, here.end())])
}

/// Takes a block out of the handle's space and enters it at `at`, in a hole of a fork of metadata.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace) from a handle with less than one block and [`space`]; as for [`insert`]. Nothing has
/// changed then.
pub(crate) fn add_block(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    at: FileBlock,
) -> Result<FsBlock> {
    add_run(handle, inode, kind, at, 1).map(|(block, _)| block)
}

/// The same with up to `most` blocks that lie together. Returns the first, and how many.
///
/// # Errors
/// As for [`add_block`].
pub(crate) fn add_run(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    at: FileBlock,
    most: u32,
) -> Result<(FsBlock, u32)> {
    check_count(handle.volume(), inode, kind)?;
    if handle.space() < 1 + needed_space(inode, kind, 1) {
        return Err(Error::NoSpace);
    }
    let goal = goal(handle.volume(), inode, kind, at)?;
    let (block, count) = handle.writer().allocator.take(handle, goal, most.into())?;
    let extent = Extent { file: at, block, count: count as u32, unwritten: false };
    handle.or_abort(insert(handle, inode, kind, extent))?;
    Ok((block, extent.count))
}

/// Enters blocks that are held at `at`, all of them, in a hole of a fork of metadata. Where their group has become too full
/// for its trees to let them go, others are entered, wherever there are any. Returns the runs in which they lie.
///
/// # Errors
/// As for [`insert`]; corruption; I/O failure.
pub(crate) fn add_held(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    at: FileBlock,
    mut held: alloc::Held,
) -> Result<Vec<(FsBlock, u32)>> {
    check_count(handle.volume(), inode, kind)?;
    if handle.space() < needed_space(inode, kind, 1) {
        return Err(Error::NoSpace);
    }
    let count = held.len() as u32;
    match handle.writer().allocator.take_held(handle, &mut held, count.into()) {
        Ok(block) => {
            let extent = Extent { file: at, block, count, unwritten: false };
            handle.or_abort(insert(handle, inode, kind, extent))?;
            Ok(vec![(block, count)])
        }
        Err(Error::NoSpace) => {
            held.give_to(handle);
            let (mut runs, mut added) = (Vec::new(), 0);
            while added < count {
                let run = add_run(handle, inode, kind, FileBlock(at.0 + u64::from(added)), count - added)?;
                added += run.1;
                runs.push(run);
            }
            Ok(runs)
        }
        Err(error) => Err(error),
    }
}

/// Where a block of a fork of metadata is best: behind the one before it.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn goal(volume: &Volume, inode: &Inode, kind: ForkKind, at: FileBlock) -> Result<FsBlock> {
    let fork =
        inode.fork(kind).ok_or_else(|| crate::error::corrupt_inode("fork", inode.ino, None, "is missing"))?;
    let around = records::around(volume, inode.ino, fork, at.0)?;
    Ok(around.before.map_or_else(
        || records::near_inode(volume, inode.ino),
        // The block may be the last of its group; then the search begins there.
        |before| {
            let next = before.block_of(before.end());
            if volume.geometry().split(next).is_some() { next } else { before.block }
        },
    ))
}

/// Refuses to remove blocks of a fork of metadata that are not in use, or that their group has no room to free: for changes
/// that cannot be refused any more when they come to it.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); corruption; I/O failure.
pub(crate) fn check_removal(handle: &Handle<'_>, first: FsBlock, count: u64) -> Result<()> {
    let allocator = &handle.writer().allocator;
    allocator.check_blocks_in_use(handle, first, count)?;
    allocator.check_room(handle, first, count, false)
}

/// Removes `count` blocks of a fork of metadata, which are forgotten and freed.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace) where that cuts an extent in two and the handle has less than [`space`]: the caller may
/// leave the blocks where they are. As for [`insert`]. Nothing has changed then.
pub(crate) fn remove_blocks(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: ForkKind,
    at: FileBlock,
    count: u32,
) -> Result<()> {
    match remove(handle, inode, kind, at, FileBlock(at.0 + u64::from(count)))? {
        Progress::Done => Ok(()),
        Progress::From(_) => {
            debug_assert!(false, "the handle has room for every extent of the blocks");
            Err(Error::NoSpace)
        }
    }
}

/// Blocks of space that `more` extents, entered near each other, need for the fork's tree at most.
pub(crate) fn needed_space(inode: &Inode, kind: ForkKind, more: u64) -> u64 {
    match inode.fork(kind) {
        Some(Fork::Extents(list)) if list.len() as u64 + more <= records::capacity(inode, kind) as u64 => 0,
        _ => space(inode, kind),
    }
}

/// The first extent that has blocks from `from` to before `to`.
fn first_between(records: &Records<'_, '_>, from: u64, to: u64) -> Result<Option<Extent>> {
    let around = records.around(from)?;
    let here = around.before.filter(|before| before.end() > from).or(around.after);
    Ok(here.filter(|here| from < to && here.file.0 < to))
}

/// The extent in which all blocks from `from` to before `to` lie.
fn extent_of(records: &Records<'_, '_>, from: u64, to: u64) -> Result<Extent> {
    let here = records.around(from)?.before.filter(|here| from < to && here.end() >= to);
    here.ok_or_else(|| records.corrupt(format!("has no extent for the blocks from {from} to {to}")))
}

/// Refuses a change of the user or the owner of an extent's blocks that their group has no room for.
fn check_group(records: &Records<'_, '_>, extent: &Extent) -> Result<()> {
    let allocator = &records.handle.writer().allocator;
    allocator.check_room(records.handle, extent.block, u64::from(extent.count), may_share(records))
}

fn check_extent(records: &Records<'_, '_>, extent: &Extent) -> Result<()> {
    extent.validate(records.volume().geometry()).map_err(|detail| records.corrupt(detail))?;
    debug_assert!(extent.count <= EXTENT_MAX_BLOCKS);
    Ok(())
}

/// The part of an extent from `from` to before `to`.
pub(super) fn cut(extent: &Extent, from: u64, to: u64) -> Extent {
    Extent {
        file: FileBlock(from),
        block: extent.block_of(from),
        count: (to - from) as u32,
        unwritten: extent.unwritten,
    }
}

/// What is left of an extent without its blocks from `from` to before `to`.
fn rest(extent: &Extent, from: u64, to: u64) -> Vec<Extent> {
    let ends = [(extent.file.0, from), (to, extent.end())];
    ends.into_iter().filter(|(from, to)| from < to).map(|(from, to)| cut(extent, from, to)).collect()
}

/// Puts `new` in the place of a part of `here`.
fn substitute_part(records: &mut Records<'_, '_>, here: &Extent, new: &Extent) -> Result<()> {
    let mut pieces = rest(here, new.file.0, new.end());
    let at = pieces.partition_point(|piece| piece.file < new.file);
    pieces.insert(at, *new);
    records.substitute(Some(*here), &pieces)
}

fn is_metadata(records: &Records<'_, '_>) -> bool {
    records.kind == ForkKind::Attr || records.inode.core.kind != undercroft_vfs::FileType::Regular
}

fn may_share(records: &Records<'_, '_>) -> bool {
    records.kind == ForkKind::Data && records.inode.core.may_share_blocks()
}

/// What an extent's blocks belong to.
fn owner(records: &Records<'_, '_>, extent: &Extent) -> Owner {
    Owner::Fork {
        ino: records.inode.ino,
        attr: records.kind == ForkKind::Attr,
        at: extent.file,
        unwritten: extent.unwritten,
    }
}

/// Blocks have come into the map.
fn note_mapped(records: &mut Records<'_, '_>, extent: &Extent) -> Result<()> {
    records.count_blocks(i64::from(extent.count));
    let is = owner(records, extent);
    records.handle.writer().allocator.note_owner(records.handle, extent.block, u64::from(extent.count), is)
}

/// Blocks have gone out of the map.
fn note_unmapped(records: &mut Records<'_, '_>, extent: &Extent) -> Result<()> {
    records.count_blocks(-i64::from(extent.count));
    let was = owner(records, extent);
    let allocator = &records.handle.writer().allocator;
    allocator.note_no_owner(records.handle, extent.block, u64::from(extent.count), was)
}

/// Blocks have gone out of the map: they lose a user.
fn release(records: &mut Records<'_, '_>, extent: &Extent) -> Result<()> {
    let (handle, count) = (records.handle, u64::from(extent.count));
    let allocator = &handle.writer().allocator;
    if is_metadata(records) {
        forget(records, extent);
    }
    note_unmapped(records, extent)?;
    if may_share(records) {
        allocator.remove_user(handle, extent.block, count)
    } else if is_metadata(records) {
        allocator.free(handle, extent.block, count)
    } else {
        allocator.free_data(handle, extent.block, count)
    }
}

/// Forgets the metadata in an extent, as it was logged: structure by structure, and one that lies in several extents block
/// by block.
fn forget(records: &Records<'_, '_>, extent: &Extent) {
    let unit = structure_blocks(records, extent);
    let mut at = extent.file.0;
    while at < extent.end() {
        let is_whole = at.is_multiple_of(unit.into()) && at + u64::from(unit) <= extent.end();
        let count = if is_whole { unit } else { 1 };
        records.handle.forget_structure(extent.block_of(at), count);
        at += u64::from(count);
    }
}

/// Blocks of an extent of metadata that are one structure: a directory block, or a part of a long link's target.
fn structure_blocks(records: &Records<'_, '_>, extent: &Extent) -> u32 {
    match records.inode.core.kind {
        _ if records.kind == ForkKind::Attr => 1,
        undercroft_vfs::FileType::Directory => records.volume().geometry().dir_block_fsblocks(),
        undercroft_vfs::FileType::Symlink if extent.count.is_power_of_two() => extent.count,
        _ => 1,
    }
}
