//! A name added to a directory with an index of its own, or removed from it: in the one leaf or in a leaf of the tree, in a
//! block of names, and in the free index. Threads that change different leaves and blocks of names do so at the same time.

use undercroft_sync::MutexGuard;
use undercroft_vfs::{Error, FileType, Ino, Result};

use super::super::super::data::{DataBlock, header_bytes};
use super::super::super::leaf::Leaf;
use super::super::data::{self, New};
use super::super::free;
use super::super::leaf::{self as one_leaf, NO_BLOCK};
use super::super::raw::{self, ENTRIES_AT, ENTRY_BYTES};
use super::{Found, GiveNumber, Quick, Release, Touch};
use crate::da::Node;
use crate::da::node::LEVEL_MAX;
use crate::dir::code_of;
use crate::error::Verdict;
use crate::format::FsBlock;
use crate::format::block_header::HeaderKind;
use crate::inode::Fork;
use crate::transaction::{Block, Seal};
use crate::volume::Validated;

/// Blocks of names with room that are tried before one is waited for.
const CANDIDATES: usize = 4;

/// They lie within so many blocks: in a large directory most blocks are full, and not all of its index is searched for more
/// than one with room.
const CANDIDATES_WITHIN: usize = 64;

/// The leaf that may have a hash.
struct FoundLeaf {
    home: FsBlock,
    block: Block,
    /// The directory's one leaf, which knows the unused space of all blocks of names.
    is_only: bool,
    /// It is the root: no node has its last hash.
    is_root: bool,
}

/// What a look at a leaf tells about a hash.
struct Look {
    /// The entries with the hash: their numbers, and where they lead.
    same: Vec<(usize, u32)>,
    /// There may be more in the next leaf.
    may_go_on: bool,
    /// An entry can be entered, and the leaf ends with the same hash afterwards.
    has_room: bool,
    /// Entries that are not stale.
    live: usize,
}

/// A block of the free index.
struct FreeBlock {
    block: Block,
    /// How many places it has.
    valid: usize,
}

/// A name that was found in a block of names.
struct Hit {
    /// The number of its entry in the leaf.
    item: usize,
    number: u32,
    home: FsBlock,
    block: Block,
    found: Found,
}

impl Quick<'_> {
    pub(super) fn add_indexed(
        &self,
        fork: &Fork,
        kind: FileType,
        give: GiveNumber<'_>,
        touch: Touch<'_>,
    ) -> Result<bool> {
        let hash = self.layout.hash(self.name);
        let locks = &self.handle.writer().directory_blocks;
        let Some((leaf_lock, leaf, look)) = self.open_leaf(fork, hash)? else { return Ok(false) };
        if self.find(fork, &look)?.is_some() {
            return Err(Error::Exists);
        }
        if !look.has_room {
            return Ok(false);
        }
        // The block of names, and its lock.
        let (candidates, free) = self.candidates(fork, &leaf)?;
        let mut chosen = None;
        for wait in [false, true] {
            for &number in candidates.iter().flatten() {
                let (home, block) = self.block(fork, self.layout.names_at(number), HeaderKind::DirBlock)?;
                let lock = if wait { Some(locks.data(home)) } else { locks.try_data(home) };
                let Some(lock) = lock else { continue };
                if self.validated(home, self.has_space(&block, number))? {
                    chosen = Some((number, home, block, lock));
                    break;
                }
            }
            if chosen.is_some() {
                break;
            }
        }
        let Some((number, home, block, data_lock)) = chosen else { return Ok(false) };
        if free.is_none() && !leaf.is_only {
            return Ok(false);
        }
        let new = New { name: self.name, ino: give()?.0, kind: code_of(kind) };
        let layout = &self.layout;
        let entered = self.handle.change_block(&block, Seal::DirData, |bytes| {
            let at = data::enter(bytes, layout, u64::from(number), &new)?;
            Ok((at, data::best(bytes)))
        });
        let (at, best) = self.handle.or_abort(self.validated(home, entered))?;
        self.set_best(&leaf, free.as_ref(), number, best);
        drop(data_lock);
        let address = self.address(number, at);
        let inserted = self.handle.change_block(&leaf.block, leaf.seal(), |bytes| {
            let room = self.leaf_room(&leaf, bytes);
            raw::insert(bytes, (hash, address), room)
        });
        drop(leaf_lock);
        if !inserted {
            let wrong = Err(self.corrupt(Some(leaf.home), "counts its stale entries wrong"));
            return self.handle.or_abort(wrong);
        }
        self.finish(touch)?;
        Ok(true)
    }

    pub(super) fn remove_indexed(&self, fork: &Fork, ino: Ino, touch: Touch<'_>) -> Result<bool> {
        let hash = self.layout.hash(self.name);
        let locks = &self.handle.writer().directory_blocks;
        let Some((leaf_lock, leaf, look)) = self.open_leaf(fork, hash)? else { return Ok(false) };
        let hit = self.find(fork, &look)?.filter(|hit| hit.found.ino == ino.0).ok_or(Error::NotFound)?;
        // A leaf that is less than half full may be joined, and a directory of few names may get a smaller form.
        let stays = if leaf.is_only {
            self.dir.fields.read().core.size_bytes > self.layout.dir_block_bytes as u64
        } else {
            !leaf.is_root && look.live > self.tree_room() / 2 + 1
        };
        if !stays {
            return Ok(false);
        }
        let free = if leaf.is_only { None } else { self.free_block(fork, hit.number)? };
        if free.is_none() && !leaf.is_only {
            return Ok(false);
        }
        if !self.knows(&leaf, free.as_ref(), hit.number) {
            return Ok(false);
        }
        let data_lock = locks.data(hit.home);
        let release = {
            let guard = hit.block.lock();
            DataBlock::validate(guard.buffer(), &self.layout, u64::from(hit.number), false)
                .and_then(|data| Release::plan(&data, hit.found.at))
        };
        let release = self.validated(hit.home, release)?;
        // A block without names is removed, but for the first.
        let all = self.layout.dir_block_bytes - header_bytes(&self.layout);
        if release.best[0].len == all && hit.number != 0 {
            return Ok(false);
        }
        self.handle.change_block(&leaf.block, leaf.seal(), |bytes| raw::make_stale(bytes, hit.item));
        self.handle.change_block(&hit.block, Seal::DirData, |bytes| release.apply(bytes));
        self.set_best(&leaf, free.as_ref(), hit.number, release.best[0].len as u16);
        drop(data_lock);
        drop(leaf_lock);
        self.finish(touch)?;
        Ok(true)
    }

    /// The leaf that has all entries with a hash, if there are any, its lock held, and what a look at it tells. `None` where
    /// that needs a plan.
    fn open_leaf(&self, fork: &Fork, hash: u32) -> Result<Option<(MutexGuard<'_, ()>, FoundLeaf, Look)>> {
        let Some(leaf) = self.find_leaf(fork, hash)? else { return Ok(None) };
        let lock = self.handle.writer().directory_blocks.leaf(leaf.home);
        let look = self.look(&leaf, hash)?;
        Ok((!look.may_go_on).then_some((lock, leaf, look)))
    }

    /// The leaf in which a hash comes first, if it is anywhere. `None` where the leaf would end with a new hash, which the
    /// nodes above it would have to learn.
    fn find_leaf(&self, fork: &Fork, hash: u32) -> Result<Option<FoundLeaf>> {
        let mut at = self.layout.index_start();
        let mut above: Option<u16> = None;
        for _ in 0..=LEVEL_MAX {
            let (home, block) = self.block(fork, at, HeaderKind::DaBlock)?;
            let is_root = at == self.layout.index_start();
            let next = {
                let guard = block.lock();
                let bytes = guard.buffer();
                let level = |level: u16| match above {
                    Some(above) if above != level + 1 => {
                        Err(format!("is of level {level}, below one of level {above}").into())
                    }
                    _ => Ok(()),
                };
                let step = || -> Verdict<_> {
                    match raw::get16(bytes, 8) {
                        raw::MAGIC_NODE => {
                            let own = raw::get16(bytes, 58);
                            level(own)?;
                            bytes.verify_once(Validated::DirIndex as u32, || {
                                Node::validate(bytes, &self.layout).map(drop)
                            })?;
                            let count = raw::count(bytes);
                            if count == 0 || count > self.tree_room() {
                                return Err(format!("is a node with {count} entries").into());
                            }
                            let place = raw::place_of(bytes, hash);
                            let child = (place < count).then(|| raw::item(bytes, place).1);
                            Ok(Err((own, child)))
                        }
                        raw::MAGIC_LEAF_ONE if is_root => Ok(Ok(true)),
                        raw::MAGIC_LEAF => level(0).map(|()| Ok(false)),
                        magic => Err(format!("has the magic number {magic:#06x}").into()),
                    }
                };
                step()
            };
            match self.validated(home, next)? {
                Ok(is_only) => return Ok(Some(FoundLeaf { home, block, is_only, is_root })),
                Err((_, None)) => return Ok(None),
                Err((level, Some(child))) => {
                    if !self.layout.is_below_root(child) {
                        return Err(self.corrupt(Some(home), format!("leads to block {child}")));
                    }
                    (above, at) = (Some(level), child);
                }
            }
        }
        Err(self.corrupt(None, "has more levels than a tree can have"))
    }

    /// Looks at a leaf whose lock is held.
    fn look(&self, leaf: &FoundLeaf, hash: u32) -> Result<Look> {
        let guard = leaf.block.lock();
        let bytes = guard.buffer();
        let look = || -> Verdict<Look> {
            bytes
                .verify_once(Validated::DirIndex as u32, || Leaf::validate(bytes, &self.layout).map(drop))?;
            let (count, stale, room) = (raw::count(bytes), raw::stale(bytes), self.leaf_room(leaf, bytes));
            if count > room || stale > count {
                return Err(
                    format!("has {count} entries, {stale} of them stale, with room for {room}").into()
                );
            }
            let place = raw::place_of(bytes, hash);
            let with_hash = (place..count).map(|number| (number, raw::item(bytes, number)));
            let same: Vec<_> = with_hash
                .take_while(|(_, item)| item.0 == hash)
                .map(|(number, item)| (number, item.1))
                .collect();
            let reaches_end = place + same.len() == count;
            // Entered behind all others, or the last one, which is stale, is used again: another hash would be the last.
            let ends_the_same = leaf.is_only || leaf.is_root || place < count;
            let has_room = if stale == 0 {
                count < room && ends_the_same
            } else {
                ends_the_same
                    && raw::nearest_stale(bytes, place)
                        .is_some_and(|used| leaf.is_only || leaf.is_root || used + 1 < count)
            };
            let may_go_on =
                reaches_end && !(leaf.is_only || leaf.is_root) && (!same.is_empty() || count == 0);
            Ok(Look { same, may_go_on, has_room, live: count - stale })
        };
        let verdict = look();
        drop(guard);
        self.validated(leaf.home, verdict)
    }

    /// The name among the entries with its hash.
    fn find(&self, fork: &Fork, look: &Look) -> Result<Option<Hit>> {
        let mut folded = None;
        for &(item, address) in look.same.iter().filter(|(_, address)| *address != 0) {
            let (number, at) = self.place(address)?;
            let (home, block) = self.block(fork, self.layout.names_at(number), HeaderKind::DirBlock)?;
            let found = {
                let guard = block.lock();
                DataBlock::validate(guard.buffer(), &self.layout, u64::from(number), false)
                    .and_then(|data| self.compare(&data, at))
            };
            if let Some(found) = self.validated(home, found)? {
                let hit = Hit { item, number, home, block, found };
                if found.is_equal {
                    return Ok(Some(hit));
                }
                folded.get_or_insert(hit);
            }
        }
        Ok(folded)
    }

    /// Blocks of names that have room for the name, by the index, and the block of the free index that knows them if the
    /// directory has such blocks.
    fn candidates(
        &self,
        fork: &Fork,
        leaf: &FoundLeaf,
    ) -> Result<([Option<u32>; CANDIDATES], Option<FreeBlock>)> {
        let len = self.entry_bytes();
        let mut found = [None; CANDIDATES];
        let fits = |best: &[u8]| {
            let best = u16::from_be_bytes([best[0], best[1]]);
            best != NO_BLOCK && usize::from(best) >= len
        };
        if leaf.is_only {
            let guard = leaf.block.lock();
            let bests = one_leaf::best_bytes(guard.buffer());
            let with_room = bests.chunks_exact(2).enumerate().filter(|(_, best)| fits(best));
            for (slot, (block, _)) in found.iter_mut().zip(with_room) {
                *slot = u32::try_from(block).ok();
            }
            return Ok((found, None));
        }
        let blocks = self.dir.fields.read().core.size_bytes / self.layout.dir_block_bytes as u64;
        let end = u32::try_from(blocks).unwrap_or(u32::MAX).min(self.layout.names_end());
        let room = free::room(&self.layout);
        // Names that come one after another go into the block that was added last. Blocks of the free index before one that
        // knows of room are not looked at: a large directory has many.
        for index in (0..=end.saturating_sub(1) / room as u32).rev() {
            let Some(free) = self.free_block(fork, index * room as u32)? else { continue };
            let guard = free.block.lock();
            let bests = free::best_bytes(guard.buffer(), free.valid);
            let mut places = bests.chunks_exact(2).enumerate().rev();
            let first = places.find(|(_, best)| fits(best));
            let more = places.take(CANDIDATES_WITHIN).filter(|(_, best)| fits(best));
            for (slot, (place, _)) in found.iter_mut().zip(first.into_iter().chain(more)) {
                *slot = u32::try_from(index as usize * room + place).ok();
            }
            drop(guard);
            if found[0].is_some() {
                return Ok((found, Some(free)));
            }
        }
        Ok((found, None))
    }

    /// Whether a block of names, whose lock is held, has room for the name where its header says so.
    fn has_space(&self, block: &Block, number: u32) -> Verdict<bool> {
        let guard = block.lock();
        let bytes = guard.buffer();
        let data = DataBlock::validate(bytes, &self.layout, u64::from(number), false)?;
        // Before the first change: a space within an entry would be found when the entry is overwritten.
        bytes.verify_once(Validated::DirNames as u32, || data::check_best(&data))?;
        let [(at, len), ..] = data.best_unused();
        if len < self.entry_bytes() {
            return Ok(false);
        }
        if data.unused_at(at)? != len {
            return Err(format!("has another space at byte {at} than its header says").into());
        }
        Ok(true)
    }

    /// The block of the free index that knows a block of names.
    fn free_block(&self, fork: &Fork, number: u32) -> Result<Option<FreeBlock>> {
        let index = number / free::room(&self.layout) as u32;
        let at = self.layout.free_start() + index * self.layout.dir_block_count();
        let Some((home, block)) = self.block_if_there(fork, at, HeaderKind::DirBlock)? else {
            return Ok(None);
        };
        let valid = free::validate(block.lock().buffer(), &self.layout, index);
        let valid = self.validated(home, valid)?;
        Ok(Some(FreeBlock { block, valid }))
    }

    /// Whether the one leaf or the free index knows a block of names.
    fn knows(&self, leaf: &FoundLeaf, free: Option<&FreeBlock>, number: u32) -> bool {
        match free {
            None => one_leaf::best(leaf.block.lock().buffer(), number) != NO_BLOCK,
            Some(free) => {
                let place = number as usize % free::room(&self.layout);
                place < free.valid && free::best(free.block.lock().buffer(), place) != NO_BLOCK
            }
        }
    }

    /// Notes the largest unused space of a block of names, whose lock is held.
    fn set_best(&self, leaf: &FoundLeaf, free: Option<&FreeBlock>, number: u32, best: u16) {
        match free {
            None => self
                .handle
                .change_block(&leaf.block, leaf.seal(), |bytes| one_leaf::set_best(bytes, number, best)),
            Some(free) => {
                let place = number as usize % free::room(&self.layout);
                if place < free.valid && free::best(free.block.lock().buffer(), place) != best {
                    self.handle
                        .change_block(&free.block, Seal::DirFree, |bytes| free::put_best(bytes, place, best));
                }
            }
        }
    }

    fn address(&self, number: u32, at: usize) -> u32 {
        super::Position::of(&self.layout, u64::from(number), at).0 as u32
    }

    /// How many entries a leaf of the tree has room for, and a node.
    fn tree_room(&self) -> usize {
        (self.layout.dir_block_bytes - ENTRIES_AT) / ENTRY_BYTES
    }

    fn leaf_room(&self, leaf: &FoundLeaf, bytes: &[u8]) -> usize {
        if leaf.is_only {
            one_leaf::room(self.layout.dir_block_bytes, one_leaf::best_bytes(bytes).len() / 2)
        } else {
            self.tree_room()
        }
    }
}

impl FoundLeaf {
    fn seal(&self) -> Seal {
        if self.is_only { Seal::DirLeaf1 } else { Seal::DirLeafN }
    }
}
