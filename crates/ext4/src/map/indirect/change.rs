//! Inserting and removing blocks of a block map.

use undercroft_vfs::{Error, Result};

use super::{MAX_LEVELS, Route, check, corrupt, count_run, get, set};
use crate::alloc::ALLOCATE_CREDITS;
use crate::inode::Inode;
use crate::map::run::{BATCH, Progress, Removed};
use crate::map::space;
use crate::numbers::FsBlock;
use crate::transaction::{Block, Handle, Seal};
use crate::volume::Volume;

/// Blocks that one step may change: the indirect blocks on the way, made or freed.
pub(in crate::map) const CREDITS: u32 = MAX_LEVELS as u32 * (1 + ALLOCATE_CREDITS);

/// The indirect blocks on the way to a file block, as far as there are any.
pub(super) struct Way {
    pub(super) route: Route,
    blocks: [Option<Block>; MAX_LEVELS],
    /// How many.
    pub(super) depth: usize,
}

impl Way {
    pub(super) fn find(volume: &Volume, inode: &Inode, route: Route) -> Result<Self> {
        let mut way = Self { route, blocks: [const { None }; MAX_LEVELS], depth: 0 };
        while way.depth < route.levels {
            let number = way.with(inode, way.depth, |bytes| get(bytes, route.slots[way.depth]));
            if number == 0 {
                break;
            }
            let at = FsBlock(u64::from(number));
            check(volume, inode, way.home(way.depth), at, 1)?;
            way.blocks[way.depth] = Some(volume.block(at)?);
            way.depth += 1;
        }
        Ok(way)
    }

    /// Whether the way leads to the block's own number.
    pub(super) fn is_whole(&self) -> bool {
        self.depth == self.route.levels
    }

    fn block(&self, level: usize) -> Option<&Block> {
        level.checked_sub(1).and_then(|at| self.blocks[at].as_ref())
    }

    pub(super) fn home(&self, level: usize) -> Option<FsBlock> {
        self.block(level).map(|block| FsBlock(block.number()))
    }

    /// Looks at the numbers of a level: the inode's at 0.
    pub(super) fn with<R>(&self, inode: &Inode, level: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.block(level) {
            None => look(&inode.i_block),
            Some(block) => look(block.lock().buffer()),
        }
    }

    pub(super) fn change<R>(
        &self,
        handle: &Handle<'_>,
        inode: &mut Inode,
        level: usize,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        match self.block(level) {
            None => change(&mut inode.i_block),
            Some(block) => handle.change_block(block, Seal::Plain, change),
        }
    }
}

/// Inserts blocks where the file has a hole.
pub(in crate::map) fn insert(
    handle: &Handle<'_>,
    inode: &mut Inode,
    at: u64,
    first: FsBlock,
    count: u64,
) -> Result<()> {
    let volume = handle.volume();
    if first.0 + count > 1 << 32 {
        // The numbers of a block map have 32 bits.
        return Err(Error::NoSpace);
    }
    let (mut at, mut first, mut count) = (at, first.0 as u32, count);
    while count > 0 {
        let route = Route::to(volume, at).ok_or(Error::FileTooLarge)?;
        let way = Way::find(volume, inode, route)?;
        let (slot, end) = route.last_slots();
        let len = count.min(end - slot);
        if way.is_whole() {
            let (found, holes) = way.with(inode, route.levels, |bytes| count_run(bytes, slot, end));
            if found != 0 || holes < len {
                let detail = format!("file block {at} is mapped, where {len} blocks are to be inserted");
                return Err(corrupt(inode, way.home(route.levels), detail));
            }
        }
        let made = allocate(handle, inode, route.levels - way.depth, FsBlock(u64::from(first)))?;
        let numbers = |bytes: &mut [u8]| {
            for n in 0..len {
                set(bytes, slot + n, first + n as u32);
            }
        };
        // From the block's own number up, so that nothing is linked before it is whole.
        let mut child = None;
        for (&home, level) in made.iter().zip((way.depth + 1..=route.levels).rev()) {
            handle.make(home, Seal::Plain, |bytes| match child {
                None => numbers(bytes),
                Some(number) => set(bytes, route.slots[level], number),
            })?;
            child = Some(home.0 as u32);
        }
        way.change(handle, inode, way.depth, |bytes| match child {
            None => numbers(bytes),
            Some(number) => set(bytes, route.slots[way.depth], number),
        });
        space::count(volume, inode, len);
        (at, first, count) = (at + len, first.wrapping_add(len as u32), count - len);
    }
    Ok(())
}

/// Blocks for `count` indirect blocks, or none.
fn allocate(handle: &Handle<'_>, inode: &mut Inode, count: usize, goal: FsBlock) -> Result<Vec<FsBlock>> {
    let mut homes = Vec::new();
    while homes.len() < count {
        match space::allocate_metadata(handle, inode, goal) {
            Ok(home) if home.0 < 1 << 32 => homes.push(home),
            other => {
                for home in homes.into_iter().chain(other.as_ref().ok().copied()) {
                    space::unallocate_metadata(handle, inode, home)?;
                }
                return Err(other.err().unwrap_or(Error::NoSpace));
            }
        }
    }
    Ok(homes)
}

/// Takes the blocks of a range out of the file.
pub(in crate::map) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
    removed: Removed,
) -> Result<Progress> {
    let volume = handle.volume();
    let mut from = from;
    while from < to {
        let Some(route) = Route::to(volume, from) else { break };
        let way = Way::find(volume, inode, route)?;
        let (runs, after) = if way.is_whole() {
            way.with(inode, route.levels, |bytes| runs(volume, bytes, &route, to))
        } else {
            ([None; BATCH], route.end(way.depth))
        };
        for &(first, len) in runs.iter().flatten() {
            check(volume, inode, way.home(route.levels), first, len)?;
        }
        let mut is_empty = way.with(inode, way.depth, is_zero);
        if runs[0].is_some() || is_empty && way.depth > 0 {
            if !handle.has_room(BATCH as u32 * ALLOCATE_CREDITS + CREDITS) {
                return Ok(Progress::From(from));
            }
            if runs[0].is_some() {
                let (slot, _) = route.last_slots();
                is_empty = way.change(handle, inode, route.levels, |bytes| {
                    (slot..slot + (after - from)).for_each(|slot| set(bytes, slot, 0));
                    is_zero(bytes)
                });
            }
            for (first, len) in runs.into_iter().flatten() {
                space::take_out(handle, inode, first, len, removed)?;
            }
            for level in (1..=way.depth).rev() {
                let Some(home) = way.home(level).filter(|_| is_empty) else { break };
                is_empty = way.change(handle, inode, level - 1, |bytes| {
                    set(bytes, route.slots[level - 1], 0);
                    is_zero(bytes)
                });
                space::free_metadata(handle, inode, home)?;
            }
        }
        from = after;
    }
    Ok(Progress::Done)
}

fn is_zero(numbers: &[u8]) -> bool {
    numbers.iter().all(|&byte| byte == 0)
}

type Runs = [Option<(FsBlock, u64)>; BATCH];

/// Some runs of blocks from the route's own on that lie before `to`, in no more than [`BATCH`] groups, and where what
/// follows them begins.
fn runs(volume: &Volume, bytes: &[u8], route: &Route, to: u64) -> (Runs, u64) {
    let (slot, end) = route.last_slots();
    let end = end.min(slot + (to - route.wanted));
    let mut runs = [None; BATCH];
    let (mut at, mut count, mut groups) = (slot, 0, BATCH as u64);
    while at < end && count < BATCH && groups > 0 {
        let (first, mut len) = count_run(bytes, at, end);
        if first != 0 {
            let first = FsBlock(u64::from(first));
            len = space::in_groups(volume, first, len, &mut groups);
            runs[count] = Some((first, len));
            count += 1;
        }
        at += len;
    }
    (runs, route.wanted + (at - slot))
}
