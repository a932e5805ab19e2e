//! Inodes: allocated near their directory, by the free inode B+tree where there is one; and freed.
//!
//! A file goes to the group of its directory, to the chunk with a free inode that is nearest to the directory itself. A
//! directory goes to another group each time, as in Linux: groups that have more free space than half of the average
//! come first. A chunk is made where no inode is free in the group; see `chunk`.
//!
//! The free inode tree (finobt) has the chunks with free inodes, as the tree of all chunks (inobt) has them. Both are
//! kept wherever a volume has both; which of them is searched is an option. An inode that the trees call free must be
//! free in its own place too, because two files in one inode would be the end of both.
//!
//! The inode's place keeps what was there; a freed inode has no mode, no links and the next generation.
//!
//! Locks: one group at a time (class `group`), with the handle's space and credits reserved before.

use std::ops::Range;

use undercroft_sync::atomic::Ordering;
use undercroft_sync::thread_number;
use undercroft_vfs::Error;
use zerocopy::FromBytes;

use super::changing::ChangingGroup;
use super::group::Group;
use super::runs::Run;
use super::*;
use crate::btree::{self, Btree, Finobt, Inobt, InodeChunk, Kind};
use crate::error::{corrupt, corrupt_inode};
use crate::format::dinode::{ForkFormat, RawDinode};
use crate::format::geometry::CHUNK_INODES;
use crate::format::{AgBlock, AgIno, AgNumber, Geometry};
use crate::inode::{change_bytes, core_in, new_flags2, place};
use crate::statfs;

const STRUCTURE: &str = "inode";

/// A number that a new inode gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNumber {
    pub(crate) ino: Ino,
    /// The generation that its place has: it rose when the last inode there was freed, and is random in a new chunk.
    pub(crate) generation: u32,
}

/// How an inode is freed.
#[derive(Clone, Copy)]
pub(super) struct Freed {
    ino: Ino,
    /// Its chunk, before and afterwards.
    chunk: InodeChunk,
    after: InodeChunk,
    /// No inode of the chunk is in use then, and its blocks are freed.
    chunk_goes: bool,
}

/// What the trees have of a chunk whose record is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InTrees {
    /// The same record; it is corruption if they have another one.
    Same,
    /// Perhaps an older one.
    Older,
}

/// Which groups are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Those with space for the inode's content as well.
    WithSpace,
    /// Each one that may have a free inode or space for a chunk.
    Any,
}

impl Allocator {
    /// Takes a free inode near `parent`, or for a directory in a group with room; makes a chunk where none is free, if
    /// `may_make_chunk`: the handle has [`chunk_space`] reserved beyond what the caller needs for itself. The inode's place
    /// still holds what was there before; the caller stores a new inode there
    /// ([`Inode::store_new`](crate::inode::Inode::store_new)), and puts it on an unlinked list after that.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace), when nothing has changed: no inode is free, and no chunk can be made, or not with the
    /// space that the handle has; corruption; I/O failure.
    pub(crate) fn new_inode(
        &self,
        handle: &Handle<'_>,
        parent: Ino,
        is_directory: bool,
        may_make_chunk: bool,
    ) -> Result<NewNumber> {
        let volume = handle.volume();
        let geometry = volume.geometry();
        let Some((parent_ag, near)) = geometry.split_ino(parent) else {
            return Err(corrupt_inode(STRUCTURE, parent, None, "lies in no allocation group"));
        };
        let count = self.groups.len() as u32;
        let first = if is_directory {
            self.directory_rotor.fetch_add(1, Ordering::Relaxed) % count
        } else {
            parent_ag.0
        };
        let may_make =
            may_make_chunk && handle.space() >= chunk_space(geometry) && self.has_room_for_chunk(volume);
        let wanted_space = if is_directory { self.average_space() / 2 } else { 1 };
        for pass in [Pass::WithSpace, Pass::Any] {
            for number in (first..count).chain(0..first).map(AgNumber) {
                let group = self.group(number)?;
                if !may_serve(group, pass, may_make, wanted_space, geometry) {
                    continue;
                }
                let near = (number == parent_ag).then_some(near);
                if let Some(new) = self.new_inode_in(handle, number, near, may_make)? {
                    return Ok(new);
                }
            }
        }
        Err(Error::NoSpace)
    }

    /// Whether a new inode with this directory as its parent most likely needs a chunk, so that the caller reserves
    /// [`chunk_space`] beside its own. Where it cannot be reserved, the caller goes on without it: another group may have a
    /// free inode. When [`new_inode`](Self::new_inode) finds none, another thread has taken the last one meanwhile, or the
    /// filesystem is full: the caller starts once more with the space reserved, and gives up when it cannot reserve it.
    pub(crate) fn needs_chunk(&self, volume: &Volume, parent: Ino, is_directory: bool) -> bool {
        let geometry = volume.geometry();
        let number = if is_directory {
            AgNumber(self.directory_rotor.load(Ordering::Relaxed) % self.groups.len() as u32)
        } else {
            match geometry.split_ino(parent) {
                Some((ag, _)) => ag,
                None => return false,
            }
        };
        self.group(number).is_ok_and(|group| !group.hints.has_free_inode.load(Ordering::Relaxed))
            && self.has_room_for_chunk(volume)
    }

    /// Frees an inode whose content is gone and which is on no list; marks its place as free. A chunk of which no inode
    /// is in use is freed.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace): the group has no block for its tree of free inodes; corruption; I/O failure. Nothing
    /// has changed then, or the changes are aborted.
    pub(crate) fn free_inode(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let Some((ag, within)) = handle.volume().geometry().split_ino(ino) else {
            return Err(corrupt_inode(STRUCTURE, ino, None, "lies in no allocation group"));
        };
        let mut group = self.change_group(handle, ag)?;
        let freed = group.plan_freed(ino, within, false)?;
        group.free_inode(freed)
    }

    /// Gives back an inode that was taken under the same handle and has not been stored. Its chunk stays.
    ///
    /// # Errors
    /// As for [`free_inode`](Self::free_inode).
    pub(crate) fn give_back_inode(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let Some((ag, within)) = handle.volume().geometry().split_ino(ino) else {
            return Err(corrupt_inode(STRUCTURE, ino, None, "lies in no allocation group"));
        };
        let mut group = self.change_group(handle, ag)?;
        let Freed { chunk, after, .. } = group.plan_freed(ino, within, true)?;
        group.change_chunk(&chunk, &after)
    }

    /// As [`Inode::check_in_use`](crate::inode::Inode::check_in_use), on a writable filesystem. Under no handle.
    ///
    /// # Errors
    /// [`Stale`](Error::Stale) when it is not in use; corruption of the inode tree; I/O failure.
    pub(crate) fn check_in_use(&self, volume: &Volume, ino: Ino) -> Result<()> {
        let Some((ag, within)) = volume.geometry().split_ino(ino) else { return Err(Error::Stale) };
        // A group that is not in the list yet, while the filesystem grows, has no inodes.
        let Some(group) = self.groups.get(ag.0 as usize) else { return Err(Error::Stale) };
        let state = group.state.lock();
        let (root, levels) = (AgBlock(state.agi.agi_root.get()), state.agi.agi_level.get());
        let chunk = match state.open.of(within) {
            None => Btree::<Inobt>::in_ag(volume, ag, root, levels)?.cursor().lookup_le(&within)?,
            open => open,
        };
        if chunk.is_some_and(|chunk| chunk.has_in_use(within)) { Ok(()) } else { Err(Error::Stale) }
    }

    /// All inodes, and the free ones among them.
    pub(crate) fn inode_counts(&self) -> (u64, u64) {
        self.groups.iter().fold((0, 0), |(inodes, free), group| {
            let more = u64::from(group.inodes.load(Ordering::Relaxed));
            (inodes + more, free + u64::from(group.free_inodes.load(Ordering::Relaxed)))
        })
    }

    /// Whether one chunk more is within the part of the space that inodes may take.
    fn has_room_for_chunk(&self, volume: &Volume) -> bool {
        let geometry = volume.geometry();
        let more = u64::from(geometry.chunk_blocks()) << geometry.inodes_per_block_log();
        statfs::most_inodes(volume).is_none_or(|most| self.inode_counts().0 + more <= most)
    }

    /// Free blocks of a group on average.
    fn average_space(&self) -> u32 {
        let sum: u64 =
            self.groups.iter().map(|group| u64::from(group.hints.available.load(Ordering::Relaxed))).sum();
        (sum / self.groups.len().max(1) as u64) as u32
    }

    /// Takes an inode in one group; `None` if it has none.
    fn new_inode_in(
        &self,
        handle: &Handle<'_>,
        number: AgNumber,
        near: Option<AgIno>,
        may_make: bool,
    ) -> Result<Option<NewNumber>> {
        let mut group = self.change_group(handle, number)?;
        if let Some(chunk) = group.nearest_free_chunk(near)? {
            return group.take_inode(&chunk).map(Some);
        }
        if !may_make {
            return Ok(None);
        }
        let Some(chunk) = group.make_chunk(near)? else { return Ok(None) };
        let taken = group.take_inode(&chunk);
        handle.or_abort(taken).map(Some)
    }
}

/// Space that a new chunk takes, with that for the tree of all chunks to grow. The tree of free ones grows into what is set
/// aside for it.
pub(crate) fn chunk_space(geometry: &Geometry) -> u64 {
    u64::from(geometry.chunk_blocks()) + u64::from(TREE_LEVELS)
}

/// Blocks that [`Allocator::new_inode`] changes at most, with the trees of space and all headers; `with_chunk` if the
/// handle has the space for a chunk.
pub(crate) fn new_inode_credits(geometry: &Geometry, with_chunk: bool) -> u32 {
    let made = if with_chunk { geometry.chunk_blocks() + SPACE_CREDITS } else { 0 };
    RECORD_CREDITS + made
}

/// Blocks that [`Allocator::give_back_inode`] changes at most.
pub(crate) const GIVE_BACK_CREDITS: u32 = RECORD_CREDITS;

/// Blocks that [`Allocator::free_inode`] changes at most.
pub(crate) const FREE_INODE_CREDITS: u32 = RECORD_CREDITS + RUNS_OF_CHUNK as u32 * SPACE_CREDITS;

/// Runs of blocks that a chunk consists of at most: as it is made, it has two parts.
const RUNS_OF_CHUNK: usize = 2;

/// Levels of the trees of a group that credits are reserved for: more than the largest group needs.
const TREE_LEVELS: u8 = 5;

/// A record of both trees, the inode, and the header.
const RECORD_CREDITS: u32 = 2 * btree::credits(TREE_LEVELS) + 2;

/// One run of blocks taken or freed: the trees of free space by place and by size, the reverse map, and the headers.
const SPACE_CREDITS: u32 = 3 * btree::credits(TREE_LEVELS) + 3;

/// Whether a group is worth being locked, by what can be seen without its lock.
fn may_serve(group: &Group, pass: Pass, may_make: bool, wanted_space: u32, geometry: &Geometry) -> bool {
    let has_free = group.hints.has_free_inode.load(Ordering::Relaxed);
    let space = group.hints.available.load(Ordering::Relaxed);
    match pass {
        Pass::Any => has_free || may_make && space > 0,
        Pass::WithSpace => {
            let least = match geometry.sparse_alignment() {
                0 => geometry.chunk_blocks(),
                blocks => blocks.min(geometry.chunk_blocks()),
            };
            let for_chunk = may_make && group.hints.longest.load(Ordering::Relaxed) >= least && space > least;
            space >= wanted_space.max(1) && (has_free || for_chunk)
        }
    }
}

impl ChangingGroup<'_> {
    /// The chunk with a free inode that is nearest to `near`, or to the chunk that was made last.
    fn nearest_free_chunk(&mut self, near: Option<AgIno>) -> Result<Option<InodeChunk>> {
        let free = self.agi().agi_freecount.get();
        if free == 0 {
            return Ok(None);
        }
        let newest = AgIno(self.agi().agi_newino.get());
        let near = near.unwrap_or(if newest == AgIno::NULL { AgIno(0) } else { newest });
        if let Some(known) = self.state().open.nearest(near) {
            return Ok(Some(known));
        }
        let found = if self.searches_finobt() {
            nearest_in_finobt(&self.tree::<Finobt>()?, near)?
        } else {
            let full = self.state().open.full.clone();
            let (found, full) = nearest_in_inobt(&self.tree::<Inobt>()?, near, full)?;
            self.state().open.full = full;
            found
        };
        let Some(found) = found else {
            let detail = format!("group {} counts {free} free inodes, and no chunk has one", self.number());
            return Err(corrupt("inode chunks", detail));
        };
        let open = &mut self.state().open;
        open.note_nearest(near, found.start);
        Ok(Some(open.newest(found)))
    }

    pub(super) fn has_finobt(&self) -> bool {
        self.volume().superblock().features().has_finobt()
    }

    fn searches_finobt(&self) -> bool {
        self.has_finobt() && self.handle.writer().options.search_free_inode_tree
    }

    /// Takes a free inode of a chunk that was found in the tree that is searched: the first one, or of several threads
    /// the first one from a block on that differs by thread.
    fn take_inode(&mut self, chunk: &InodeChunk) -> Result<NewNumber> {
        let free = chunk.existing() & chunk.free;
        let taker = self.state().takers.note(thread_number()) as u32;
        let from = taker.wrapping_mul(self.geometry().inodes_per_block()) % CHUNK_INODES;
        let bit = (free.rotate_right(from).trailing_zeros() + from) % CHUNK_INODES;
        let ino = self.geometry().join_ino(self.number(), AgIno(chunk.start.0.saturating_add(bit)));
        let (Some(ino), true) = (ino, free != 0) else {
            let detail = format!("the chunk at {} of group {} has no free inode", chunk.start, self.number());
            return Err(corrupt("inode chunks", detail));
        };
        // The tree of all chunks is compared when the record is replaced there.
        if !self.searches_finobt() {
            self.check_finobt_agrees(chunk)?;
        }
        let raw = read_slot(self.volume(), ino)?;
        if raw.di_mode.get() != 0 {
            return Err(corrupt_inode(
                STRUCTURE,
                ino,
                None,
                "is free in the tree of inode chunks, and in use",
            ));
        }
        let after = InodeChunk { free: chunk.free & !(1 << bit), free_count: chunk.free_count - 1, ..*chunk };
        self.change_chunk(chunk, &after)?;
        Ok(NewNumber { ino, generation: raw.di_gen.get() })
    }

    /// How an inode is freed, with its chunk if that gets empty and does not stay. All that can be refused is refused here.
    pub(super) fn plan_freed(&mut self, ino: Ino, within: AgIno, chunk_stays: bool) -> Result<Freed> {
        let chunk = match self.state().open.of(within) {
            None => self.tree::<Inobt>()?.cursor().lookup_le(&within)?,
            open => open,
        };
        let Some(chunk) = chunk.filter(|chunk| chunk.has_in_use(within)) else {
            return Err(corrupt_inode(STRUCTURE, ino, None, "is to be freed, and no chunk has it in use"));
        };
        self.check_finobt_agrees(&chunk)?;
        read_slot(self.volume(), ino)?;
        let bit = within.0 - chunk.start.0;
        let after = InodeChunk { free: chunk.free | 1 << bit, free_count: chunk.free_count + 1, ..chunk };
        // A block with more inodes than a chunk has stays, and so does a chunk in more pieces than were ever made.
        let mut chunk_goes =
            !chunk_stays && after.used() == 0 && self.geometry().inodes_per_block() <= CHUNK_INODES;
        if chunk_goes {
            let runs = self.runs_of(&chunk);
            let runs: Vec<_> = runs.into_iter().map(|(first, count)| Run::new(first.0, count)).collect();
            for run in &runs {
                self.check_may_free(*run)?;
                self.check_owner(AgBlock(run.start), run.count, Owner::Inodes)?;
            }
            self.fill_list()?;
            chunk_goes = runs.len() <= RUNS_OF_CHUNK && self.list_suffices_to_free_all(&runs)?;
        }
        let inserts = self.has_finobt() && chunk.free_count == 0 && !chunk_goes;
        if inserts && !self.can_grow::<Finobt>(&chunk.start, 1)? {
            return Err(Error::NoSpace);
        }
        Ok(Freed { ino, chunk, after, chunk_goes })
    }

    /// Frees an inode as planned under the same lock.
    pub(super) fn free_inode(&mut self, freed: Freed) -> Result<()> {
        let Freed { ino, chunk, after, chunk_goes } = freed;
        if chunk_goes {
            return self.free_chunk(&chunk);
        }
        self.change_chunk(&chunk, &after)?;
        let marked = self.mark_free(ino);
        self.handle.or_abort(marked)
    }

    /// Checks that a chunk that was found in the tree of all chunks is the same in the tree of free ones. One that is open
    /// was, when it was opened.
    fn check_finobt_agrees(&mut self, chunk: &InodeChunk) -> Result<()> {
        if !self.has_finobt() || self.state().open.of(chunk.start).is_some() {
            return Ok(());
        }
        let found = self.tree::<Finobt>()?.cursor().lookup_eq(&chunk.start)?;
        if found == (chunk.free_count > 0).then_some(*chunk) {
            return Ok(());
        }
        let (start, ag, tree) = (chunk.start, self.number(), Finobt::NAME);
        let detail = format!("the chunk at {start} of group {ag} is {chunk:?}, in the {tree} {found:?}");
        Err(corrupt("inode chunks", detail))
    }

    /// Replaces a chunk's record, of which free inodes have become used or the other way round, in both trees.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn replace_chunk(
        &mut self,
        before: &InodeChunk,
        after: &InodeChunk,
        in_trees: InTrees,
    ) -> Result<()> {
        match in_trees {
            InTrees::Same => self.replace::<Inobt>(before, after)?,
            InTrees::Older => self.update::<Inobt>(&before.start, after)?,
        }
        if self.has_finobt() {
            let changed = match (before.free_count > 0, after.free_count > 0) {
                (true, true) => match in_trees {
                    InTrees::Same => self.replace::<Finobt>(before, after),
                    InTrees::Older => self.update::<Finobt>(&before.start, after),
                },
                (true, false) => self.delete::<Finobt>(&before.start),
                (false, true) => self.insert::<Finobt>(after),
                (false, false) => Ok(()),
            };
            self.handle.or_abort(changed)?;
        }
        Ok(())
    }

    /// Changes the core in an inode's place, which has been validated.
    pub(super) fn change_slot(&self, ino: Ino, change: impl FnOnce(&mut RawDinode, &mut [u8])) -> Result<()> {
        change_bytes(self.handle, ino, |slot| {
            if let Ok((raw, forks)) = RawDinode::mut_from_prefix(slot) {
                change(raw, forks);
            }
            Ok(())
        })
    }

    /// Marks an inode's place as free. What Linux leaves of the last inode there stays too: owner, times, count of changes.
    fn mark_free(&mut self, ino: Ino) -> Result<()> {
        let flags2 = new_flags2(self.volume());
        self.change_slot(ino, |raw, forks| {
            raw.di_mode.set(0);
            raw.di_nlink.set(0);
            raw.di_big_nextents.set(0);
            raw.di_nextents.set(0);
            raw.di_anextents.set(0);
            raw.di_size.set(0);
            raw.di_nblocks.set(0);
            raw.di_extsize.set(0);
            raw.di_cowextsize.set(0);
            raw.di_forkoff = 0;
            raw.di_format = ForkFormat::Extents.raw();
            raw.di_aformat = ForkFormat::Extents.raw();
            raw.di_dmevmask.set(0);
            raw.di_flags.set(0);
            raw.di_flags2.set(flags2.bits());
            raw.di_gen.set(raw.di_gen.get().wrapping_add(1));
            forks.fill(0);
        })
    }
}

/// The core in an inode's place, in whatever state it is.
///
/// # Errors
/// Corruption: the place holds something else; I/O failure.
pub(super) fn read_slot(volume: &Volume, ino: Ino) -> Result<RawDinode> {
    let (block, byte) = place(volume, ino)?;
    core_in(volume, &volume.read_block(block)?, byte, ino)
        .map_err(|detail| corrupt_inode(STRUCTURE, ino, Some(block), detail))
}

/// Whether of two chunks, of which none lies between, the one before `near` is nearer to it: its own, or by where they
/// begin. `None` without any.
fn is_nearer_before(near: AgIno, before: Option<&InodeChunk>, after: Option<&InodeChunk>) -> Option<bool> {
    match (before, after) {
        (None, None) => None,
        (Some(before), Some(after)) => {
            let distance = near.0 - before.start.0;
            Some(distance < CHUNK_INODES || distance <= after.start.0 - near.0)
        }
        (before, _) => Some(before.is_some()),
    }
}

/// The chunk with a free inode that is nearest to `near`, by the tree that has no others: one of two.
fn nearest_in_finobt(tree: &Btree<'_, Finobt>, near: AgIno) -> Result<Option<InodeChunk>> {
    let mut cursor = tree.cursor();
    let Some(before) = cursor.lookup_le(&near)? else { return cursor.first() };
    if near.0 - before.start.0 < CHUNK_INODES {
        return Ok(Some(before));
    }
    let after = cursor.increment()?;
    Ok(if is_nearer_before(near, Some(&before), after.as_ref()) == Some(true) { Some(before) } else { after })
}

/// The same by the tree of all chunks: those between are passed, but for those that begin in `full`, of which none has a
/// free inode. Returns also the range around `near` in which no chunk with a free inode begins.
fn nearest_in_inobt(
    tree: &Btree<'_, Inobt>,
    near: AgIno,
    full: Range<AgIno>,
) -> Result<(Option<InodeChunk>, Range<AgIno>)> {
    let next = |ino: AgIno| AgIno(ino.0.saturating_add(1));
    let mut full = if full.contains(&near) { full } else { next(near)..next(near) };
    let (mut below, mut above) = (tree.cursor(), tree.cursor());
    let mut before = match full.start.0.checked_sub(1) {
        Some(last) => below.lookup_le(&AgIno(last))?,
        None => None,
    };
    let mut after = above.lookup_ge(&full.end)?;
    loop {
        let Some(nearer_before) = is_nearer_before(near, before.as_ref(), after.as_ref()) else {
            return Ok((None, full));
        };
        let candidate = if nearer_before { before } else { after };
        match candidate {
            Some(chunk) if chunk.free_count == 0 => {
                if nearer_before {
                    full.start = chunk.start;
                    before = below.decrement()?;
                } else {
                    full.end = next(chunk.start);
                    after = above.increment()?;
                }
            }
            found => return Ok((found, full)),
        }
    }
}
